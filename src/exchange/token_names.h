/*
 * token_names - the tokens of a GGUF file as other formats name them: UTF-8, each name once.
 *
 * A GGUF file may have a name twice, where no text becomes the second one, and empty names of
 * unused tokens: those are called "[PADi]" by their ids.
 */
#ifndef DECODE_EXCHANGE_TOKEN_NAMES_H
#define DECODE_EXCHANGE_TOKEN_NAMES_H

#include "text/vocab.h"

struct token_names {
    int n;
    struct text *name; /* [n] of the file's memory, or of what follows */
    bool *replaced;    /* [n] what merging knows by another name, or never makes */
    int twice, first;  /* how many have the name of another that is in use; the lowest of them */
    char (*byte)[2];   /* [256] in the byte alphabet */
    char (*made)[16];
};

/*
 * Of v, whose notation this is, read from g. Unused tokens are replaced, too, if `hides_unused`.
 * STATUS_BAD_FILE: a name that is not UTF-8; two tokens of one name that texts become both;
 * STATUS_NO_MEMORY. Time O(n log n). *out is for token_names_free, also on failure.
 */
enum status token_names_make(const struct gguf *g, const struct vocab *v,
                             enum vocab_notation notation, bool hides_unused,
                             struct token_names *out, struct err *e);
void token_names_free(struct token_names *t); /* legal on a zeroed struct and twice */

/* Whether the token is called "[PADi]" by its id, as import calls ids without a token. */
bool token_names_is_padding(const struct token_names *t, int id);

#endif
