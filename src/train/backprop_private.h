/*
 * backprop_private - what the files of backprop share.
 *
 * Rows are tokens: row = window * length + position. Threads own contiguous rows where a token
 * is all that counts, windows and K/V heads in attention, and rows of a gradient matrix where
 * tokens are summed. Letters: d = d_model, qkv = d + 2 * kv_dim, ff = d_ff.
 */
#ifndef DECODE_TRAIN_BACKPROP_PRIVATE_H
#define DECODE_TRAIN_BACKPROP_PRIVATE_H

#include "base/mem.h"
#include "compute/grad_kernels.h"
#include "train/backprop.h"

/* Rows that pass one matrix after the other while they are in the nearer caches. */
#define ROW_BLOCK 96

/* Tokens summed at once for a weight's gradient: two operands' blocks stay in the cache. */
#define SUM_BLOCK 256

/* What the forward pass keeps of a layer. */
struct kept {
    float *x;       /* [rows, d] its input */
    float *qkv;     /* [rows, qkv] */
    float *heads;   /* [rows, d] outputs of the heads */
    float *mid;     /* [rows, d] after attention's residual */
    float *pre;     /* [rows, ff] before GELU */
    float *softmax; /* [windows, n_heads, 2, padded length] each query's max and 1 / sum */
};

/* A weight matrix in panels: forward [n_out / 16][n_in][16], backward [n_in / 16][n_out][16]. */
struct packed {
    float *qkv, *attn_out, *up, *down;
};

struct backprop {
    struct config config;
    int n_sequences, length;
    bool forward_only, taught, dropping;
    const struct kernels *kernels;
    const struct grad_kernels *grad;
    struct pool *pool;
    struct arena arena;

    struct kept *layers; /* [n_layers]; forward only: all share their memory */
    float *out;          /* [rows, d] output of the last layer */
    struct packed packed;
    float *output_forward, *output_backward; /* the output matrix in panels */

    /* One layer's at a time. */
    float *norm;  /* [rows, d] output of a norm */
    float *act;   /* [rows, ff] GELU's output */
    float *dx;    /* [rows, d] gradient of the layer's output, then of its input */
    float *dmid;  /* [rows, d] of mid */
    float *dnorm; /* [rows, d] of norm */
    /* dx and dmid as they reach the matrices: without what was dropped; else dx and dmid. */
    float *dx_kept, *dmid_kept;
    float *dpre;   /* [rows, ff] */
    float *dheads; /* [rows, d] */
    float *dqkv;   /* [rows, qkv] */
    float *stats;  /* [rows, 2] of a norm */

    float *logits; /* [head_rows, padded n_vocab], then their gradient */
    int head_rows;
    float *losses;         /* [rows] */
    float *teacher_logits; /* [head_rows, padded n_vocab]; NULL if not taught */

    float *scratch; /* [n_threads, scratch_floats]: of a row block or of an attention item */
    size_t scratch_floats;
};

/* One pass over a batch, shared by the threads. */
struct pass {
    struct backprop *b;
    const struct param_view *w;
    const struct backprop_batch *batch;
    const struct backprop_teacher *teacher; /* NULL: none */
    struct param_view *gradient;            /* NULL: loss only */
    bool hidden_only;                       /* the output of the last layer is all */
};

static inline int backprop_qkv(const struct backprop *b)
{
    return b->config.d_model + 2 * config_kv_dim(&b->config, 0);
}

static inline int backprop_rows(const struct pass *p)
{
    return p->batch->n_sequences * p->b->length;
}

static inline int backprop_padded_length(int length)
{
    return (length + CAUSAL_WIDTH - 1) / CAUSAL_WIDTH * CAUSAL_WIDTH;
}

static inline float *backprop_scratch(const struct backprop *b, int thread)
{
    return b->scratch + (size_t)thread * b->scratch_floats;
}

/* Rows [begin, end) of the batch: a block of a thread's share. Loops over the blocks of a range run
 *     for (struct rows r = rows_first(begin, end); rows_n(r) > 0; r = rows_next(r, end)) */
struct rows {
    int begin, end;
};

static inline int rows_n(struct rows r)
{
    return r.end - r.begin;
}

static inline struct rows rows_first(int begin, int end)
{
    return (struct rows){begin, begin + ROW_BLOCK < end ? begin + ROW_BLOCK : end};
}

static inline struct rows rows_next(struct rows r, int end)
{
    return rows_first(r.end, end);
}

/* The block's first row of a buffer with rows of n floats. */
static inline float *rows_at(float *buffer, struct rows r, int n)
{
    return buffer + (size_t)r.begin * (size_t)n;
}

/* This thread's share of all rows. */
static inline void rows_share(const struct pass *p, int thread, int *begin, int *end)
{
    pool_share(backprop_rows(p), thread, pool_n_threads(p->b->pool), begin, end);
}

/* Whether this pass leaves something out. */
static inline bool backprop_drops(const struct pass *p)
{
    return p->gradient && p->batch->dropout > 0;
}

/* out = start + x without what is dropped, over the rows r of [rows, d], of which out, start (NULL:
 * zero) and x are the first. out may be x. */
void backprop_drop(const struct pass *p, int site, float *out, const float *start, const float *x,
                   struct rows r);

/* Panels of W [n_out, n_in] for y = x W^T, and for dx = dy W; this thread's share. */
void backprop_pack_forward(float *panels, const float *w, int n_out, int n_in, int thread,
                           int n_threads);
void backprop_pack_backward(float *panels, const float *w, int n_out, int n_in, int thread,
                            int n_threads);

/* y [n_rows, n_out] = start + x [n_rows, n_in] * panels + bias; start and bias may be NULL. */
void backprop_multiply(const struct backprop *b, const float *panels, const float *bias,
                       const float *x, int n_rows, int n_in, const float *start, float *y,
                       int n_out);

/* out = norm(x) of n_rows rows. */
void backprop_norm(const struct backprop *b, const struct param_pair *norm, const float *x,
                   float *out, int n_rows);

/* In the rows r, dx = residual + the gradient by the norm's input x, from dnorm; fills in stats.
 * All are whole buffers; dx may be residual. */
void backprop_norm_backward(const struct backprop *b, const struct param_pair *norm, const float *x,
                            const float *residual, float *dx, struct rows r);

/* This thread's share of dW = dy^T x and, where there is a bias, db = the sum of dy, over n rows of
 * dy [n, n_out] and x [n, n_in]; `add` adds to what is there. */
struct weight_sums {
    const struct param_pair *gradient;
    const float *dy, *x;
    int n_rows, n_out, n_in;
    size_t dy_stride;
    bool add;
};
void backprop_weight_sums(const struct backprop *b, const struct weight_sums *s, int thread);

/* This thread's share of a norm's gradient from all rows of dnorm, its input x and stats. */
void backprop_norm_sums(const struct pass *p, const struct param_pair *gradient, const float *x,
                        int thread);

/* Floats of scratch that an attention item takes. */
size_t backprop_attention_scratch(const struct config *c, int length);
/* This thread's share of the windows and K/V heads of layer l: qkv -> heads, dheads -> dqkv. */
void backprop_attention(const struct pass *p, int l, int thread);
void backprop_attention_backward(const struct pass *p, int l, int thread);

/* Layer l: its input to the next one's (or to `out`), and dx back to dx. Every thread calls it;
 * they meet inside. */
void backprop_layer(const struct pass *p, int l, int thread);
void backprop_layer_backward(const struct pass *p, int l, int thread);

/* From the last layer's output to the losses and, if there is a gradient, to dx. */
void backprop_head(const struct pass *p, int thread);

#endif
