/*
 * tokenizer - GPT-2's byte-level BPE, from a checkpoint's tokens and merges.
 *
 * Text is bytes: any bytes in, the same bytes out, UTF-8 or not. Special (control and
 * user-defined) tokens are found first, the text between them is cut by GPT-2's
 * pre-tokenization (see pretokenize.h), and each piece is merged by rank (see bpe.h). A tokenizer
 * is immutable: any threads may use one at once.
 *
 * Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, and the
 * pattern 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+.
 */
#ifndef DECODE_TEXT_TOKENIZER_H
#define DECODE_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "gguf/gguf.h"

struct tokenizer;

/*
 * Builds a tokenizer from tokenizer.ggml.{model,pre,tokens,token_type,merges,bos_token_id,
 * eos_token_id,add_bos_token}; copies what it needs, so g may be freed after. The messages name
 * the key. STATUS_BAD_FILE:
 *
 * - a model other than "gpt2"; a pre other than "gpt-2" or "default" (or none), which are GPT-2's
 *   pattern, and "starcoder", "refact", "command-r", "codeshell", "smollm", which cut digits one
 *   by one first;
 * - arrays of the wrong type or length, a token type above 6, an empty token that is not unused;
 * - no token for a byte; but bytes that no assigned character's UTF-8 has may lack one, as in
 *   StarCoder's vocabulary;
 * - a merge without a space, listed twice, or with a part or result that is no token;
 * - two normal tokens of one string, if a byte or merge needs that string: other duplicates are
 *   padding, which real models have;
 * - special ids outside the vocabulary, add_bos_token true without bos_token_id.
 *
 * Or STATUS_NO_MEMORY. Normal tokens (no token_type: all) that use characters outside GPT-2's
 * byte alphabet stand for their raw UTF-8: no merge leads to one, so that they matter only when
 * a model predicts them. Unknown and unused tokens are not found in text either. Of control or
 * user-defined tokens with equal strings, text gets the lowest id.
 */
enum status tokenizer_create(const struct gguf *g, struct tokenizer **out, struct err *e);
void tokenizer_free(struct tokenizer *t); /* NULL is legal */

int tokenizer_n_tokens(const struct tokenizer *t);
int tokenizer_bos(const struct tokenizer *t);       /* -1: none */
int tokenizer_eos(const struct tokenizer *t);       /* -1: none */
bool tokenizer_adds_bos(const struct tokenizer *t); /* add_bos_token; false when absent */
/* Control and unknown tokens: not text. 0 <= id < n_tokens (asserted). */
bool tokenizer_is_special(const struct tokenizer *t, int id);

/*
 * The ids of `text`, without BOS or EOS. *ids is malloc'd (the caller frees it, also when *n is
 * 0); NULL on failure. Control and user-defined tokens written out in the text become their ids:
 * at each place the longest, from left to right. Time O(n log n), whatever the vocabulary; memory
 * 4 bytes a token, and 8.3 bytes a byte of the longest piece between cuts.
 *
 * Fails with STATUS_NO_MEMORY; and with STATUS_USAGE, naming byte and offset, where the text has
 * a byte that the vocabulary has no token for. No well-formed text of assigned characters has.
 */
enum status tokenizer_encode(const struct tokenizer *t, struct text text, int32_t **ids, size_t *n,
                             struct err *e);

/* The bytes that token id (0 <= id < n_tokens, asserted) stands for; of a control token, its name.
 * Borrowed from t. */
struct text tokenizer_bytes(const struct tokenizer *t, int id);

/* Bytes of the longest token. Time by the vocabulary. */
size_t tokenizer_longest(const struct tokenizer *t);

#endif
