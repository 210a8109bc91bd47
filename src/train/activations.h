/*
 * activations - the memory of a backprop: what the forward pass saves for the backward pass, and
 * the buffers that the layers share.
 *
 * Rows are tokens: row = window * length + position. Letters: d = d_model, heads =
 * config_heads_dim, qkv = config_qkv_dim of the layer, kv = activations_kv_dim, ff = d_ff.
 *
 * Points of the residual stream are counted from 0, the embedding, on: 2 l + 1 is after block l's
 * attention, 2 l + 2 after its feed-forward part. Where norms stand after the residuals the stream
 * is saved before them.
 */
#ifndef DECODE_TRAIN_ACTIVATIONS_H
#define DECODE_TRAIN_ACTIVATIONS_H

#include "base/mem.h"
#include "compute/grad_kernels.h"
#include "compute/pool.h"
#include "model/layout.h"
#include "model/positions.h"

/* Rows that pass one matrix after the other while they are in the nearer caches. */
#define ROW_BLOCK 96

/* What the forward pass saves of a block. */
struct saved {
    float *x;       /* [rows, d] the residual stream before it */
    float *qkv;     /* [rows, qkv] queries and keys not yet turned */
    float *kv;      /* [rows, kv] all heads' keys and values of what is latent; else NULL */
    float *heads;   /* [rows, heads] outputs of the heads */
    float *mid;     /* [rows, d] the residual stream after attention */
    float *up;      /* [rows, ff] before what makes it not linear */
    float *gate;    /* [rows, ff] the same; NULL where there is no gate */
    float *softmax; /* [windows, n_heads, 2, padded length] each query's max and 1 / sum */
};

struct backprop {
    /* Filled in by whoever takes the rest. */
    struct config config;
    int n_sequences, length;
    bool forward_only, taught, dropping;
    const float *rope_factors; /* see backprop_params */
    const struct kernels *kernels;
    const struct grad_kernels *grad;
    struct pool *pool;
    int n_threads;
    int head_rows;         /* rows whose logits exist at once */
    size_t scratch_floats; /* of a thread: whole cache lines */
    struct arena arena;

    struct positions positions; /* below length */
    struct saved *blocks;       /* [n_layers]; forward only: all share their memory */
    float *out;                 /* [rows, d] the residual stream after the last block */
    /* By role, matrices in panels: forward [n_out / 16][n_in][16], backward [n_in / 16][n_out][16].
     * Those of the blocks are of one block, in one direction, at a time. */
    float *panels[TENSOR_ROLES];
    float *output_backward; /* panels[ROLE_OUTPUT] is its forward form */

    /* One block's at a time. */
    float *norm;  /* [rows, d] output of a norm */
    float *act;   /* [rows, ff] what the down matrix takes */
    float *dx;    /* [rows, d] gradient of the block's output, then of its input */
    float *dmid;  /* [rows, d] of mid */
    float *dnorm; /* [rows, d] of norm */
    /* dx and dmid as they reach the matrices: without what was dropped; else dx and dmid. */
    float *dx_dropped, *dmid_dropped;
    float *dup, *dgate; /* [rows, ff]; dgate NULL where there is no gate */
    float *dheads;      /* [rows, heads] */
    float *dqkv;        /* [rows, qkv] */
    float *dkv;         /* [rows, kv]; NULL where saved.kv is */
    float *stats;       /* [rows, 2] of a norm */
    double *drel;       /* [windows, n_heads, 2] of quadratic positions; NULL of others */

    float *logits;         /* [head_rows, n_vocab], then their gradient */
    float *losses;         /* [rows] */
    float *teacher_logits; /* [head_rows, n_vocab]; NULL if not taught */
    float *scratch;        /* [n_threads, scratch_floats]: of a row block or of an attention item */
};

/* Takes all buffers, or counts them (see base/mem.h): sizes are bounded by the config, and rows by
 * an int. */
void activations_take(struct backprop *b, struct arena *arena);

/* Elements of a row of all heads' keys, then all heads' values, made of what is latent. */
static inline int activations_kv_dim(const struct config *c)
{
    return c->n_heads * (c->head_dim + config_value_dim(c));
}

/* The K/V heads of a layer as attention has them in training: what is latent is made into those of
 * each head (see train/latent.h). */
static inline int activations_kv_heads(const struct config *c, int layer)
{
    return config_is_latent(c) ? c->n_heads : config_kv_heads(c, layer);
}

/* [rows, d] of a point. */
static inline float *activations_stream(const struct backprop *b, int point)
{
    const int l = point / 2;
    if (point % 2)
        return b->blocks[l].mid;
    return l < b->config.n_layers ? b->blocks[l].x : b->out;
}

static inline float *activations_scratch(const struct backprop *b, int thread)
{
    return b->scratch + (size_t)thread * b->scratch_floats;
}

#endif
