/*
 * spm - merging by scores.
 */
#pragma once

#include "text/encoding.h"
#include "text/merging.h"
#include "text/vocab.h"

/*
 * As SentencePiece and llama.cpp do it: a text starts as characters, its spaces written U+2581, and
 * the neighbours that are together the token of the highest score are merged, the leftmost of
 * equals, as long as there are any. What is no token then becomes the tokens of its bytes, <0x00>
 * to <0xFF>.
 *
 * Symbols are tokens; then the characters that tokens begin or end with and that are none; then the
 * one for all other characters. Immutable after creation.
 *
 * Source: Kudo and Richardson, "SentencePiece: A simple and language independent subword tokenizer
 * and detokenizer for Neural Text Processing", 2018.
 */
struct spm {
    int32_t n_tokens;
    int32_t byte_id[256];   /* -1: no token */
    int32_t one_byte[256];  /* the symbols of characters of one byte */
    struct spm_char *chars; /* [n_chars] the longer ones, by their bytes */
    size_t n_chars;
    struct merging merging;
    bool cuts;         /* no token has a space behind another character: no merge crosses there */
    bool drops_spaces; /* those at both ends of a text, and behind another one */
};

/*
 * From VOCAB_SPACES' tokens, tokenizer.ggml.scores (absent: all are equal) and
 * remove_extra_whitespaces. Merging makes
 * normal, undefined, user-defined and unused tokens, not those whose names are no text. Fails with
 * STATUS_BAD_FILE: scores of wrong type or length, one that is not finite, two tokens alike that
 * merging could make. Or STATUS_NO_MEMORY, also for 2^31 ways to make a token of two others. s may
 * be freed then too. Memory is linear in the bytes of the tokens, time in comparisons of tokens but
 * for a logarithm.
 */
enum status spm_init(struct spm *s, const struct vocab *v, const struct gguf *g, struct err *e);
void spm_free(struct spm *s); /* legal on a zeroed struct and twice */

/*
 * Appends the tokens of `part` of c's text, which is not empty (asserted), after a space if
 * `adds_space`; none of a text of spaces that are dropped. Time O(n log n). STATUS_USAGE names a
 * character that is no token and whose bytes are none; STATUS_NO_MEMORY.
 */
enum status spm_encode(const struct spm *s, struct encoding *c, struct text part, bool adds_space,
                       struct err *e);
