/*
 * merge_scores - scores with which SentencePiece merges what a list of merges does.
 *
 * A list merges pairs in its order. Scores belong to tokens: whatever two neighbours are together a
 * token may merge, the token of the highest score first. A token's score is here minus the number
 * of tokens that the list makes before it. The two are the same if each token's merges follow one
 * another in the list and if the list makes each token of its characters alone. So it is for lists
 * that were learned or made of scores; for others it is noted how many tokens are concerned.
 */
#ifndef DECODE_EXCHANGE_MERGE_SCORES_H
#define DECODE_EXCHANGE_MERGE_SCORES_H

#include <stddef.h>

#include "exchange/vocab_build.h"
#include "text/merging.h"

/* Fills b->scores, which are taken and zero. Takes over n malloc'd pairs of token ids, ranks in
 * their order. STATUS_BAD_FILE: a pair listed twice. STATUS_NO_MEMORY. */
enum status merge_scores(struct vocab_build *b, struct symbol_pair *pairs, size_t n, struct err *e);

#endif
