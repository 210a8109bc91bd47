/*
 * causal - attention over a whole window, forwards and backwards, of one K/V head and the query
 * heads that share it: for training.
 */
#pragma once

#include "compute/grad_kernels.h"
#include "model/model.h"

/* One window of one K/V head. All memory is the caller's. Rows are positions 0 to length - 1. */
struct causal_window {
    const struct grad_kernels *grad;
    struct head_turn q_turn, k_turn; /* with at least `length` positions */
    int halves; /* the first elements of a head in q, k and their norms, whose pairs lie in halves
                   (layout_half); 0: pairs are neighbours */
    int window; /* as config's layer_window */
    int length, n_heads, key_dim, value_dim;
    float scale;           /* of scores */
    const float *additive; /* [n_heads, key_dim] w of additive scores; NULL for dot products */
    float *q, *k, *v; /* [length, n_heads * key_dim], [length, key_dim], [length, value_dim], not
                         yet rotated; read, and backwards replaced by their gradients */
    size_t stride;    /* floats from row to row of q, k and v */
    float *heads;     /* [length, n_heads * value_dim], rows heads_stride apart; written forwards */
    size_t heads_stride;
    float *softmax; /* [n_heads, 2, causal_padded_length]: each query's max and 1 / sum; written
                       forwards, read backwards */
    float *dheads;  /* backwards, read: the gradient of heads, in rows as far apart */
    /* The gradient of `additive` [n_heads, key_dim], or of quadratic positions' alpha and centre
     * [n_heads, 2]; NULL: not wanted. */
    double *dtable;
    /* [4, key_dim] the gradient of gain and bias of the queries' norm, then of the keys'; NULL: not
     * wanted. */
    double *dnorms;
    /* Fills in what distances do to a head's scores; false if nothing. May be NULL. */
    bool (*bias)(const void *arg, int head, struct attend_bias *out);
    /* Dropout: sets some probabilities, or their gradients, to 0 in columns [n_keys, CAUSAL_WIDTH]
     * of a head. The first column is the query at `first`, the first row the key at `first_key`.
     * May be NULL. */
    void (*drop)(const void *arg, int head, int first, int first_key, int n_keys, float *columns);
    const void *arg; /* of `bias` and `drop` */
    float *scratch;  /* [causal_scratch], on a cache line */
};

/* Returns the length rounded up to whole blocks of queries. */
static inline int causal_padded_length(int length)
{
    return (length + CAUSAL_WIDTH - 1) / CAUSAL_WIDTH * CAUSAL_WIDTH;
}

/* The floats of scratch that causal_forward and causal_backward need for a window of this length.
 */
size_t causal_scratch(const struct config *c, int length);

/* Writes heads and softmax. Windows may run in parallel, if their outputs and scratch are apart. */
void causal_forward(const struct causal_window *w);

/* Turns q, k and v into their gradients and writes, where they are wanted, dtable and dnorms, from
 * dheads and what causal_forward wrote. */
void causal_backward(const struct causal_window *w);
