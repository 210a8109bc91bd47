/*
 * causal - attention over a whole window, forwards and backwards, of one K/V head and the query
 * heads that share it: for training, and for tools that fit a block to what it should compute.
 */
#pragma once

#include "compute/grad_kernels.h"
#include "model/model.h"

/* One window of one K/V head. All memory is the caller's. Rows are positions 0 to length - 1. */
struct causal_window {
    const struct grad_kernels *grad;
    struct head_turn q_turn, k_turn; /* with at least `length` positions */
    int halves; /* of the elements of a head in q and k, and in the norms, the first that are as
                   halves (layout_half); 0: none are */
    int window; /* as config's layer_window */
    int length, n_heads, key_dim, value_dim;
    float scale;            /* of scores */
    const float *additive;  /* [n_heads, key_dim] w of additive scores; NULL for dot products */
    const float *q, *k, *v; /* [length, n_heads * key_dim], [length, key_dim], [length, value_dim],
                               not yet rotated */
    size_t stride;          /* floats from row to row of q, k and v, and of dq, dk and dv */
    float *heads; /* [length, n_heads * value_dim], rows heads_stride apart; written forwards */
    size_t heads_stride;
    float *softmax; /* [n_heads, 2, causal_padded_length]: each query's max and 1 / sum; written
                       forwards, read backwards */
    /* Backwards: the gradient of heads, and those of q, k, v, which are written. */
    const float *dheads;
    float *dq, *dk, *dv;
    /* [n_heads, key_dim] of `additive`, or [n_heads, 2] of quadratic positions' alpha and centre;
     * NULL: not wanted. */
    double *dtable;
    /* [4, key_dim] of the gain and bias of queries' norm, then of keys'; NULL: not wanted. */
    double *dnorms;
    /* Fills in what distances do to a head's scores; false if nothing. May be NULL. */
    bool (*bias)(const void *arg, int head, struct attend_bias *out);
    /* Dropout: sets probabilities, or their gradient, to 0 in columns [n_keys, CAUSAL_WIDTH] of a
     * head, the first of which is the query at `first`, and the first row the key at `first_key`.
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

/* Writes dq, dk, dv and, where it is wanted, dtable, from dheads and what causal_forward wrote. */
void causal_backward(const struct causal_window *w);
