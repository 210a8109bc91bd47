/*
 * bpe - byte-pair encoding: symbols that become one where they are neighbours.
 *
 * What its two kinds, by ranks (GPT-2) and by scores (SentencePiece), have in common: while some
 * neighbours are a pair of the table, the pair of the lowest rank is merged, the leftmost of
 * equals. Symbols are numbers here; what text they stand for is the kind's.
 */
#pragma once

#include "base/mem.h"
#include "base/status.h"
#include "base/text.h"
#include "formats/gguf.h"
#include "text/vocab.h"

/* --- merging --------------------------------------------------------------------------------- */

struct symbol_pair {
    int32_t left, right; /* 0 <= symbol < n_symbols */
    int32_t rank;        /* below INT32_MAX; pairs may share one */
    int32_t result;
};

/* Immutable after creation. Sorted and searched, not hashed: a hostile table has no collisions to
 * arrange. */
struct merging {
    int32_t n_symbols;
    uint32_t *first;           /* [n_symbols + 1] those with left symbol s start at first[s] */
    struct symbol_pair *pairs; /* [first[n_symbols]] by left, then right symbol, then rank */
};

/* Takes over n malloc'd pairs (NULL if there are none), fewer than 2^31 (asserted), also on
 * failure. Which of two pairs of the same symbols is meant cannot be told: the caller looks for
 * them in what is then sorted. STATUS_NO_MEMORY; m may be freed then too. */
enum status merging_init(struct merging *m, struct symbol_pair *pairs, size_t n, int32_t n_symbols,
                         struct err *e);
void merging_free(struct merging *m); /* legal on a zeroed struct and twice */

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

/* A text on its way to tokens. Zeroed but for the text; free(list.ids) apart. */
struct encoding {
    struct text text;
    struct id_list list; /* of what has been encoded */
    struct merge_scratch merge;
    struct bytes marked; /* the part with its spaces marked: up to 3 bytes a byte of text */
};

/* --- by ranks -------------------------------------------------------------------------------- */

/*
 * A piece of text starts as its bytes' tokens. (GPT-2's first program merged all pairs of the
 * lowest rank before it looked again; the two differ only for tables in which a merge's result
 * takes part in an earlier merge, which training does not make.) Immutable after creation.
 */
struct bpe {
    int32_t byte_id[256]; /* -1: no token */
    bool lacks_bytes;     /* some byte_id is -1 */
    struct merging merging;
    size_t n_merges; /* that make a token of two others */
};

/*
 * Finds the bytes' tokens in v and reads tokenizer.ggml.merges; absent or empty means that every
 * byte stays a token. A merge is passed over if one of its parts is no token, for then it never
 * happens, or its result is none. Fails with STATUS_BAD_FILE: an element that is not two parts in
 * the byte alphabet with a space between, a byte, part or result that is two normal tokens, a pair
 * listed twice (its rank would be the first in some programs, the last in others). Or
 * STATUS_NO_MEMORY. merging_free of b->merging is due in every case.
 */
enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e);

/*
 * Appends the tokens of one piece of c's text, which is not empty (asserted). Time O(n log n) in
 * its length. STATUS_USAGE names a character that has a byte without a token; STATUS_NO_MEMORY,
 * also for pieces of 2 GiB and more.
 */
enum status bpe_encode(const struct bpe *b, struct encoding *c, struct text piece, struct err *e);
