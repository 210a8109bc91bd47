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
    int n_chunks;   /* of the cache, up to the last row's position */
    int first_item; /* work items of attention in the spans before, for one K/V head */
};

/* A batch cut into spans; the rows are borrowed. */
struct batch {
    const struct batch_row *rows;
    int n_rows;
    struct batch_span *spans;
    int n_spans;
    int items_per_head; /* work items of attention for one K/V head: chunk times row, span by span
                         */
    int n_logits;       /* rows that want logits */
    /* Its keys and values must be in the cache before attention reads any: a sequence has several
     * rows, or the row of sequence 0 is in a panel that others read for the prefix they share. */
    bool stores_first;
};

/* Cuts n >= 1 rows of sequences that share n_shared positions; `spans` has room for n of them. */
void batch_cut(struct batch *b, const struct batch_row *rows, int n, int n_shared,
               struct batch_span *spans);

/* The span that has a work item 0 <= item < items_per_head. */
const struct batch_span *batch_span_of_item(const struct batch *b, int item);

#endif
