/*
 * trace - the way of one token through a layer's attention, with every number on it.
 *
 * X, queries, keys, values and weights are the engine's own numbers; the others are computed from
 * them in double precision. (Vaswani et al. 2017, sections 3.2.1 and 3.2.2, for one row of Q.)
 */
#pragma once

#include "engine/session.h"

struct attend_trace {
    int layer, head, query; /* given: a head, and the position of the token */
    /* Found, of the n = query + 1 positions that it looks at: */
    float *x;       /* [n, d_model] what enters the layer's attention, normed or not */
    float *q;       /* [head_dim] the head's query, and */
    float *keys;    /* [n, head_dim] keys, turned where positions are rotary */
    float *values;  /* [n, config_v_dim] of all K/V heads */
    float *scores;  /* [n] scaled, with what the distance does to them */
    float *weights; /* [n] their softmax */
    float *heads;   /* [config_heads_dim] results of all heads, side by side */
    float *parts;  /* [config_heads, d_model] the output matrix's product with each head's result */
    float *out;    /* [d_model] and with all of them, with its bias: the sum of the parts */
    float *sum;    /* [d_model] the residual stream with that added */
    float *normed; /* [d_model] its norm, which the feed-forward layer reads */
    float *row;    /* [config_heads_dim] of that matrix */
};

/* Takes or counts (see base/mem.h) what is found. */
void trace_take(struct attend_trace *t, struct arena *a, const struct config *c);

/* Adds the rows of a block of its layer, which come in order from position 0 on. */
void trace_add(struct attend_trace *t, const struct model *m, const struct attention_weights *w);

/* A query or key x [head_dim] of a block as scores read it: rotated by its position where the model
 * rotates them, else as it is, to out [head_dim]. */
void trace_rotate(const struct attention_weights *w, const struct config *c, int position,
                  const float *x, float *out);
