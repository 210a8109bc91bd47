/*
 * block - one layer of a transformer over the rows of a batch.
 *
 * Threads meet after attention, the output projection, the up projection and the down projection;
 * where norms stand after the residuals, once more after each; and where K/V heads cannot be
 * divided whole among them also after the QKV rows and (if batch->stores_first) the new keys and
 * values. Before each of these they meet over rows that they share (see engine/forward.h).
 */
#ifndef DECODE_ENGINE_BLOCK_H
#define DECODE_ENGINE_BLOCK_H

#include "engine/forward.h"
#include "model/model.h"

/* Where a block's numbers can be had on their way: for tools that take a model apart. */
enum block_tap {
    TAP_NORMED, /* [n_rows, d_model] what Q, K and V are products of */
    TAP_HEADS,  /* [n_rows, heads_dim] the heads' results, which the output matrix takes */
    /* [n_rows, d_model] the residual stream after attention, before a norm that follows it */
    TAP_MIDDLE,
    TAP_HIDDEN, /* [n_rows, d_ff] what the down matrix takes */
    TAP_OUT,    /* [n_rows, d_model] and after the block */
    BLOCK_TAPS,
};

/* Buffers of the caller, which get a copy each; NULL: not wanted. */
struct block_taps {
    float *at[BLOCK_TAPS];
};

/*
 * Every thread of f->pool calls these. work->x holds the residual stream [n_rows, d_model] and is
 * changed in place; `layer` is whose cache it is. Attention adds the batch's keys and values to the
 * cache.
 */
void block_attention(const struct forward *f, const struct block *b, int layer, int thread);
void block_feed_forward(const struct forward *f, const struct block *b, int thread);

#endif
