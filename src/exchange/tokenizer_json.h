/*
 * tokenizer_json - the vocabulary of a tokenizer.json, as the library `tokenizers` writes it.
 */
#ifndef DECODE_EXCHANGE_TOKENIZER_JSON_H
#define DECODE_EXCHANGE_TOKENIZER_JSON_H

#include "exchange/vocab_build.h"
#include "json/read.h"

/* Fills in the tokens of its model and the added ones, merges or scores, the unknown token and how
 * texts are cut. The index has the model's tokens then. */
enum status tokenizer_json_read(const struct json_node *root, struct vocab_build *b, struct err *e);

/* The tokens of an object of names and ids, all normal, also in the index. */
enum status vocab_json_read(const struct json_node *vocab, struct vocab_build *b, struct err *e);

/*
 * The merge `rank` of a byte-level vocabulary that is in the index: the parts and what they make
 * must be tokens. `n` is the count that vocab_build_take_merges got.
 */
enum status merge_add(struct vocab_build *b, struct text left, struct text right, struct err *e);

/* A merge written as its parts with a space between. */
enum status merge_split(struct text line, uint64_t rank, struct text *left, struct text *right,
                        struct err *e);

#endif
