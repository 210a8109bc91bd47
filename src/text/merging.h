/*
 * merging - symbols that become one where they are neighbours: what both kinds of byte-pair
 * encoding, by ranks (GPT-2, bpe.h) and by scores (SentencePiece, spm.h), have in common.
 *
 * While some neighbours are a pair of the table, the pair of the lowest rank is merged, the
 * leftmost of equals. Symbols are numbers here; what text they stand for is the kind's.
 */
#pragma once

#include <stdint.h>

#include "base/status.h"

/* Two neighbours and the symbol that they become. */
struct symbol_pair {
    int32_t left, right; /* 0 <= symbol < n_symbols */
    int32_t rank;        /* below INT32_MAX; pairs may share one */
    int32_t result;
};

/* A table of pairs; it is immutable after creation. Pairs are sorted and searched, not hashed: a
 * hostile table has no collisions to arrange. */
struct merging {
    int32_t n_symbols;
    uint32_t *first;           /* [n_symbols + 1] the pairs with left symbol s start at first[s] */
    struct symbol_pair *pairs; /* [first[n_symbols]] by left, then right symbol, then rank */
};

/* Takes over n malloc'd pairs (NULL if there are none), fewer than 2^31 (asserted), also on
 * failure. Which of two pairs of the same symbols is meant cannot be told: the caller looks for
 * them in what is then sorted. STATUS_NO_MEMORY; m may be freed then too. */
enum status merging_init(struct merging *m, struct symbol_pair *pairs, size_t n, int32_t n_symbols,
                         struct err *e);
void merging_free(struct merging *m); /* legal on a zeroed struct and twice */

/* Longer runs, of a text of some megabytes without a cut, are merged in parts of so many symbols,
 * so that the memory for one does not depend on the text. (llama.cpp merges them whole.) */
#define MERGE_MOST ((size_t)1 << 22)

/* Working memory, which grows to 12 to 24 bytes a symbol of the longest run; zeroed at first. One
 * run at a time may use it. */
struct merge_scratch {
    int32_t *spans; /* [cap] */
    int32_t *tree;  /* [2 * cap] behind them: see merge_run */
    size_t cap;     /* symbols, a power of two */
};

/* Room for a run of n symbols, in place of the last one: the caller puts them in spans[0..n).
 * STATUS_NO_MEMORY, also for 2^31 symbols and more. */
enum status merge_reserve(struct merge_scratch *s, size_t n, struct err *e);
void merge_scratch_free(struct merge_scratch *s);

/* Merges the run of n > 0 symbols (asserted) in spans. Time O(n log n). */
void merge_run(const struct merging *m, struct merge_scratch *s, size_t n);

/* Where the symbol that starts at i < n of a run of n ends: its number is spans[i]. */
static inline size_t merge_end(const int32_t *spans, size_t n, size_t i)
{
    return i + 1 == n || spans[i + 1] >= 0 ? i + 1 : i + (size_t)-spans[i + 1];
}
