/*
 * paths - the way of tokens through a layer's attention, with the numbers on it.
 *
 * X, queries, keys, values and weights are the engine's own numbers; the others are computed from
 * them in double precision. (Vaswani et al. 2017, sections 3.2.1 and 3.2.2.) Paths have all heads
 * and tokens of some layers, but only the largest numbers of the product with Wo, which would take
 * a matrix for each token. A trace has one token in one head, with all numbers.
 */
#pragma once

#include "engine/sampler.h"
#include "engine/session.h"

/* A layer's numbers of the tokens at the first positions, of all heads. Queries and keys are
 * rotated where positions are; keys and values are those that the cache holds. */
struct path_layer {
    int layer, n_tokens; /* given */
    float *x;            /* [n_tokens, d_model] what Q, K and V are products of */
    float *q;            /* [n_tokens, n_heads, head_dim] */
    float *keys;         /* [n_tokens, n_kv_heads, head_dim] */
    float *values;       /* [n_tokens, n_kv_heads, value_dim] */
    float *results;      /* [n_tokens, n_heads, value_dim] values, weighted and added up; or what
                            takes their place in a session without the head */
    struct path_written *written; /* [n_tokens, n_heads]; not of a trace */
    /* [n_tokens, n_heads, n_next] what each head adds to the logits of the tokens that may come
     * next by the direct path, without later layers: its columns of Wo times its result, scaled as
     * the last norm scales the token's whole stream, times the token's row of the output matrix.
     * (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits") Zeros where
     * there is no direct path: norms after the residuals scale it once more in every layer. */
    float *direct;
};

/* Numbers of each product with Wo that are kept. */
#define PATHS_LARGEST 8

/* What a head adds to the residual stream for one token: its columns of Wo, times its result. */
struct path_written {
    float length; /* its norm */
    struct {
        float place, number;
    } largest[PATHS_LARGEST]; /* by magnitude; place -1: no more */
};

struct attend_paths {
    int n_layers;              /* given, at least 1 */
    int n_next;                /* as in struct attend_spec */
    struct path_layer *layers; /* [n_layers] layer and n_tokens given, the numbers filled in */
    double *scales;            /* [n_tokens] what the last norm multiplies each stream by */
    /* Scratch memory: [heads_dim] of Wo or [d_model] of the output matrix; and [d_model, n_tokens,
     * n_next] what a number of the stream adds to the logit of each likely next token. */
    float *row, *counts;
};

/* Whether heads reach the logits directly: residual connections lead from them to the last norm,
 * and no other norm stands between. */
static inline bool paths_are_direct(const struct config *c)
{
    return c->placement != PLACEMENT_AFTER && config_adds(c) && !c->parts.added_norms;
}

struct attend_trace {
    int head, query;        /* given: of the layer of `path`, and the position of the token */
    struct path_layer path; /* its layer given; found: of the n = query + 1 tokens looked at */
    float *scores;          /* [n] scaled, with what the distance does to them */
    float *weights;         /* [n] their softmax */
    float *parts;  /* [n_heads, d_model] the output matrix's product with each head's result */
    float *out;    /* [d_model] the sum of the parts and the matrix's bias */
    float *sum;    /* [d_model] the residual stream with `out`, or its norm, added, or only this */
    float *normed; /* [d_model] what the feed-forward layer reads: the norm of `sum` or, in parallel
                      with attention, of the stream before */
    float *row;    /* [heads_dim] scratch: a row of the output matrix */
};

/* Takes or counts (see base/mem.h) what is found. */
void paths_take(struct attend_paths *p, struct arena *a, const struct config *c);
void trace_take(struct attend_trace *t, struct arena *a, const struct config *c);

/* Adds the rows of a block, which come in order from position 0 on, if its layer is wanted. */
void paths_add(struct attend_paths *p, const struct model *m, const struct attention_weights *w);
void trace_add(struct attend_trace *t, const struct model *m, const struct attention_weights *w);

/* Adds the residual streams [n_rows, d_model] after the last block, in the order of the rows. */
void paths_add_streams(struct attend_paths *p, const struct config *c, const struct batch_row *rows,
                       int n_rows, const float *streams);

/* Fills in what the heads write, when all has been added. next [n_tokens, n_next]: the tokens that
 * may come next; NULL if n_next is 0. */
void paths_finish(struct attend_paths *p, const struct model *m, const struct token_score *next);
