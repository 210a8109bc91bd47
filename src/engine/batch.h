/*
 * batch - the rows of one step: tokens of any sequences, each at its own position.
 *
 * Prefill is many rows of one sequence, decoding one row of each; a step may have both. Rows of
 * one sequence stand together, at the positions that follow those in its cache, so a row sees its
 * own sequence's cache and there is no padding.
 */
#ifndef DECODE_ENGINE_BATCH_H
#define DECODE_ENGINE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

struct batch_row {
    int32_t token;
    int sequence;
    int position;
    bool wants_logits;
};

/* Rows of one sequence at consecutive positions. */
struct batch_span {
    int first_row, n_rows;
    int sequence;
    int first_position;
    int n_chunks; /* of the cache, up to the last row's position */
    int64_t cost; /* of attention of this and the spans before, for one K/V head */
};

/* A batch cut into spans; the rows are borrowed. */
struct batch {
    const struct batch_row *rows;
    int n_rows;
    struct batch_span *spans;
    int n_spans;
    int64_t cost_per_head; /* of attention, for one K/V head: all spans */
    int n_logits;          /* rows that want logits */
    /* Its keys and values must be in the cache before attention reads any: a sequence has several
     * rows, or the row of sequence 0 is in a panel that others read for the prefix they share. */
    bool stores_first;
};

/* Cuts n >= 1 rows of sequences that share n_shared positions; `spans` has room for n of them. */
void batch_cut(struct batch *b, const struct batch_row *rows, int n, int n_shared,
               struct batch_span *spans);

/*
 * What attention of one K/V head costs for row 0 <= row < n_rows of a span against a chunk of its
 * sequence: the positions that it reads and a constant for the call. 0 if the row stands before the
 * chunk: then there is nothing to do.
 */
int batch_item_cost(const struct batch_span *span, int chunk, int row);

#endif
