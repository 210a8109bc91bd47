/*
 * taps - the rows that go through a model, and where tools may read or change what becomes of them
 * on the way.
 */
#pragma once

#include "compute/kernels.h"
#include "model/kv_cache.h"
#include "model/positions.h"

/* A token of one of the sequences, at its position. */
struct batch_row {
    int32_t token;
    int sequence;
    int position;
    bool wants_logits;
};

/* Heads that are left out: their results are replaced before the output matrix takes them. Both
 * arrays are borrowed. */
struct head_ablation {
    const unsigned char *off; /* [n_layers, n_heads] not 0 for a head that is left out */
    const float *mean;        /* [n_layers, n_heads * value_dim] what replaces it; NULL: zeros */
};

/* Replaces the result [value_dim] of a head if `a` leaves it out; `a` may be NULL. */
static inline void head_ablation_end(const struct head_ablation *a, const struct config *c,
                                     int layer, int head, float *result)
{
    const size_t at = (size_t)layer * c->n_heads + head, dim = config_value_dim(c);
    for (size_t i = 0; a && a->off[at] && i < dim; i++)
        result[i] = a->mean ? a->mean[at * dim + i] : 0;
}

/* A layer's attention weights: the softmax that the values were averaged with. Of row r and head h
 * those of positions 0 to the row's are weights[(r * n_heads + h) * stride] on, their sum 1 up to
 * rounding; what follows them means nothing. Who watches may change them. Beside them what they are
 * made of: of row r what enters the layer's attention is input[r * d_model] on, and its queries,
 * neither normed nor rotated by their positions, begin at r * qkv_stride; its keys and values are
 * in the cache. */
struct attention_weights {
    int layer;
    const struct batch_row *rows; /* [n_rows] */
    int n_rows;
    size_t n_heads, stride;
    float *weights;
    const float *input;
    const float *stream; /* [n_rows, d_model] the residual stream before the layer's attention */
    size_t qkv_stride;
    const float *queries;
    struct head_turn q_turn; /* and what becomes of them, positions filled up to the rows' */
    const struct kv_cache *kv;
    const struct kernels *kernels;
    const struct head_ablation *without; /* NULL: no head is left out */
};

/* Gets every layer's in order, and then the residual streams [n_rows, d_model] after the last block
 * (`end` may be NULL), from the thread that steps; they are valid until it returns. */
struct attention_watch {
    void (*take)(void *arg, const struct attention_weights *w);
    void *arg;
    void (*end)(void *arg, const struct batch_row *rows, int n_rows, const float *streams);
};

/* Where a block's numbers can be had on their way. */
enum block_tap {
    TAP_NORMED, /* [n_rows, d_model] what Q, K and V are products of */
    TAP_HEADS,  /* [n_rows, heads_dim] the heads' results, which the output matrix takes */
    /* [n_rows, d_model] the residual stream after attention, before a norm that follows it */
    TAP_MIDDLE,
    TAP_HIDDEN, /* [n_rows, d_ff] what the down matrix takes */
    TAP_OUT,    /* [n_rows, d_model] the residual stream after the block */
    BLOCK_TAPS,
};

/* The caller's buffers, to which the numbers of each tap are copied; NULL where they are not
 * wanted. */
struct block_taps {
    float *at[BLOCK_TAPS];
};
