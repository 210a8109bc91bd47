/*
 * added_tokens - tokens that are found in a text before it is cut and merged: special ones become
 * TOKEN_CONTROL, others TOKEN_USER_DEFINED.
 *
 * One may be in the vocabulary, under the same id; those that are not are added. Searched is the
 * index as it is: it does not have what is added here. STATUS_BAD_FILE names token and id.
 */
#ifndef DECODE_EXCHANGE_ADDED_TOKENS_H
#define DECODE_EXCHANGE_ADDED_TOKENS_H

#include "exchange/vocab_build.h"
#include "json/read.h"

/* "added_tokens" of a tokenizer.json, an array. Of ones that are sought in what its normalizer
 * makes of a text, if it does (`normalizes`), a note is made. */
enum status added_tokens_read_list(const struct json_node *list, bool normalizes,
                                   struct vocab_build *b, struct err *e);

/* "added_tokens_decoder" of a tokenizer_config.json: an object whose keys are ids. */
enum status added_tokens_read_decoder(const struct json_node *object, struct vocab_build *b,
                                      struct err *e);

/* An added_tokens.json: names and their ids, none of them special. */
enum status added_tokens_read_ids(const struct json_node *object, struct vocab_build *b,
                                  struct err *e);

/* Makes a normal or user-defined token a special one. */
void added_token_mark(struct vocab_build *b, int id);

#endif
