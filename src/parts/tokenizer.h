/*
 * tokenizer - GPT-2's byte-level BPE, from a checkpoint's tokens and merges (layer 1).
 *
 * Text is bytes: any bytes in, the same bytes out. Special (control and user-defined) tokens
 * are found first, the text between them is cut by GPT-2's pre-tokenization, and each piece is
 * merged by rank. A tokenizer is immutable: any threads may use one at once.
 *
 * Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, and the
 * pattern 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+.
 */
#ifndef DECODE_PARTS_TOKENIZER_H
#define DECODE_PARTS_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "parts/gguf.h"

struct tokenizer;

/*
 * Builds a tokenizer from tokenizer.ggml.{model,pre,tokens,token_type,merges,bos_token_id,
 * eos_token_id,add_bos_token}; copies what it keeps, so g may be freed after. Only model "gpt2"
 * with pre "gpt-2" (or none, or "default") and, for starcoder checkpoints, "starcoder"-family
 * names; another is STATUS_BAD_FILE naming it. Also STATUS_BAD_FILE: a byte without its token,
 * an empty or duplicate token, a merge without a space or of unknown parts, special ids out of
 * range, arrays of the wrong type or length. Or STATUS_NO_MEMORY.
 */
enum status tokenizer_create(const struct gguf *g, struct tokenizer **out, struct err *e);
void tokenizer_free(struct tokenizer *t); /* NULL is legal */

int tokenizer_n_tokens(const struct tokenizer *t);
int tokenizer_bos(const struct tokenizer *t);                 /* -1: none */
int tokenizer_eos(const struct tokenizer *t);                 /* -1: none */
bool tokenizer_adds_bos(const struct tokenizer *t);           /* add_bos_token; false when absent */
bool tokenizer_is_special(const struct tokenizer *t, int id); /* control token: not text */

/*
 * The ids of `text`, without BOS or EOS. *ids is malloc'd (the caller frees it, also when *n is
 * 0). Time O(n log n). Special tokens written out in the text become their ids. Fails only with
 * STATUS_NO_MEMORY.
 */
enum status tokenizer_encode(const struct tokenizer *t, struct text text, int32_t **ids, size_t *n,
                             struct err *e);

/* The bytes that token id (0 <= id < n_tokens) stands for; of a control token, its name.
 * Borrowed from t. */
struct text tokenizer_bytes(const struct tokenizer *t, int id);

#endif
