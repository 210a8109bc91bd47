/*
 * vocab_build - a vocabulary while it is put together from another format's file.
 */
#ifndef DECODE_EXCHANGE_VOCAB_BUILD_H
#define DECODE_EXCHANGE_VOCAB_BUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "exchange/vocabulary.h"
#include "text/vocab.h"

/* Ends the message of whatever cannot be imported as it is. */
#define VOCAB_ADVICE "; --tokenizer none imports the tokens without text"

struct vocab_name;

/* A failed call leaves what vocab_build_drop frees. */
struct vocab_build {
    struct vocab_keys keys; /* to be filled in, but for tokens, types, scores and merges */
    struct text *tokens;    /* [n_vocab] data is NULL: none yet */
    int32_t *types;         /* [n_vocab] */
    float *scores;          /* [n_vocab], zeros; NULL: not asked for */
    struct text *merges;    /* [keys.n_merges] */
    const struct vocabulary_notes *notes;
    struct vocab_name *names; /* of vocab_build_index */
    int n_names;
    struct pool_chunk *memory;
};

/* BOS and the other ids are -1, and nothing is said of a space before texts. STATUS_NO_MEMORY. */
enum status vocab_build_start(struct vocab_build *b, int n_vocab,
                              const struct vocabulary_notes *notes, struct err *e);
void vocab_build_drop(struct vocab_build *b); /* legal on a zeroed struct and twice */

/* count * size zeroed bytes that live as long as the vocabulary; NULL without memory. */
void *vocab_build_take(struct vocab_build *b, uint64_t count, uint64_t size);
enum status vocab_build_take_scores(struct vocab_build *b, struct err *e);
enum status vocab_build_take_merges(struct vocab_build *b, uint64_t n, struct err *e);

/* Parts one after another, copied. *out is not NULL even where it is empty. */
enum status vocab_build_join(struct vocab_build *b, const struct text *parts, size_t n,
                             struct text *out, struct err *e);

/* Sets token `id`; the name is copied. STATUS_BAD_FILE: an id beyond the vocabulary, or that has
 * another token. */
enum status vocab_build_token(struct vocab_build *b, int64_t id, struct text name,
                              enum token_type type, struct err *e);

/* Makes the tokens there are now findable. STATUS_NO_MEMORY. */
enum status vocab_build_index(struct vocab_build *b, struct err *e);
/* The token of this name at the last index, the lowest if there are several; -1: none. Time
 * O(log n). */
int vocab_build_find(const struct vocab_build *b, struct text name);

void vocab_build_note(const struct vocab_build *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Fills the holes, makes sure that tokenizer_create takes it, and moves all to *out. */
enum status vocab_build_finish(struct vocab_build *b, struct vocabulary *out, struct err *e);

#endif
