/*
 * ngrams - where a text has stood before: the earlier copies of its end.
 *
 * Positions are chained by the pair of tokens before them, as deflate's are by three bytes (RFC
 * 1951, section 4); of the last copies the longest counts. The text is the caller's.
 */
#ifndef DECODE_ENGINE_NGRAMS_H
#define DECODE_ENGINE_NGRAMS_H

#include <stdint.h>

#include "base/mem.h"

/* Tokens of a copy at least; longer than the most they are not told apart. */
#define NGRAMS_LEAST 2
#define NGRAMS_MOST  32

struct ngrams {
    int cap;         /* tokens of a text at most */
    int32_t *heads;  /* [2^bits] the last position after a pair of this hash; 0: none */
    int32_t *before; /* [cap] by position: the one before it in its chain */
    int bits;
};

/* Takes the memory of one text of up to cap tokens from an arena, or counts it (see base/mem.h). */
void ngrams_take(struct ngrams *g, struct arena *a, int cap);

void ngrams_reset(struct ngrams *g);

/* Position 0 <= at < cap of the text (asserted) has its token: what stands before it was added. */
void ngrams_add(struct ngrams *g, const int32_t *text, int at);

/* The position after the longest earlier copy of the end of text [n <= cap], of equal ones the
 * latest, and its length, NGRAMS_LEAST to NGRAMS_MOST; 0: there is none. Copies may reach into the
 * end itself. All n tokens have been added. */
int ngrams_find(const struct ngrams *g, const int32_t *text, int n, int *length);

#endif
