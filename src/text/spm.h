/*
 * spm - byte-pair encoding by scores, as SentencePiece and llama.cpp do it.
 *
 * A text starts as characters, its spaces written U+2581, and the neighbours that are together the
 * token of the highest score are merged, the leftmost of equals, as long as there are any. What is
 * no token then becomes the tokens of its bytes, <0x00> to <0xFF>. How many bytes a character has
 * is what its first byte says, whether or not the others fit, as in llama.cpp.
 *
 * Source: Kudo and Richardson, "SentencePiece: A simple and language independent subword tokenizer
 * and detokenizer for Neural Text Processing", 2018.
 */
#ifndef DECODE_TEXT_SPM_H
#define DECODE_TEXT_SPM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "gguf/gguf.h"
#include "text/id_list.h"
#include "text/merging.h"
#include "text/vocab.h"

struct spm_char;

/* Immutable after creation. Symbols are tokens; then the characters that tokens begin or end with
 * and that are none; then the one for all other characters. */
struct spm {
    int32_t n_tokens;
    int32_t byte_id[256];   /* -1: no token */
    struct spm_char *chars; /* by their bytes */
    uint32_t first[257];    /* those that start with byte b are chars[first[b]] to [first[b + 1]] */
    struct merging merging;
    bool cuts; /* no token has a space behind another character: no merge crosses there */
};

/*
 * From VOCAB_SPACES' tokens and tokenizer.ggml.scores (absent: all are equal). Merging makes
 * normal, undefined, user-defined and unused tokens, not those whose names are no text. Fails with
 * STATUS_BAD_FILE: scores of wrong type or length, one that is not finite, two tokens alike that
 * merging could make. Or STATUS_NO_MEMORY, also for 2^31 ways to make a token of two others. s may
 * be freed then too. Time and memory are linear in the bytes of the tokens but for a logarithm.
 */
enum status spm_init(struct spm *s, const struct vocab *v, const struct gguf *g, struct err *e);
void spm_free(struct spm *s); /* legal on a zeroed struct and twice */

/* Working memory; zeroed at first. One call at a time may use it. */
struct spm_scratch {
    struct bytes marked; /* up to 3 bytes a byte of text */
    struct merge_scratch merge;
};

void spm_scratch_free(struct spm_scratch *k);

/*
 * Appends the tokens of text[from..to), which is not empty (asserted), after a space if
 * `adds_space`. Time O(n log n). STATUS_USAGE names a character that is no token and whose bytes
 * are none; STATUS_NO_MEMORY.
 */
enum status spm_encode(const struct spm *s, struct spm_scratch *k, struct text text, size_t from,
                       size_t to, bool adds_space, struct id_list *out, struct err *e);

#endif
