/*
 * paths - what every token's path through attention is made of, for all heads of some layers.
 *
 * Where trace has one token in one head with all that follows from it, paths keep what any of them
 * can be computed from: what enters attention, queries, keys and values, all as the engine has
 * them; and of the one thing that would take a matrix, the product with Wo, its largest numbers.
 */
#pragma once

#include "measure/trace.h"

/* Numbers of each product with Wo that are kept. */
#define PATHS_LARGEST 8

/* What a head adds to the residual stream for one token: its columns of Wo, times its result. */
struct path_written {
    float length; /* its norm */
    struct {
        float place, number;
    } largest[PATHS_LARGEST]; /* by magnitude; place -1: no more */
};

/* A layer's numbers of n tokens. Queries and keys are rotated where positions are. */
struct path_layer {
    int layer;                    /* given */
    float *x;                     /* [n, d_model] what Q, K and V are products of */
    float *q;                     /* [n, n_heads, head_dim] */
    float *keys;                  /* [n, n_kv_heads, head_dim] */
    float *values;                /* [n, n_kv_heads, value_dim] */
    struct path_written *written; /* [n, n_heads] */
};

struct attend_paths {
    int n_tokens, n_layers;    /* given */
    struct path_layer *layers; /* [n_layers] with their numbers given; the rest is found */
    float *parts;              /* scratch: [heads_dim, d_model] of a token */
    float *row;                /* scratch: [heads_dim] of Wo */
};

/* Takes or counts (see base/mem.h) what is found. */
void paths_take(struct attend_paths *p, struct arena *a, const struct config *c);

/* Adds the rows of a block, which come in order from position 0 on, if its layer is one of these.
 */
void paths_add(struct attend_paths *p, const struct model *m, const struct attention_weights *w);
