/*
 * backprop_pass - one pass of a batch through a model and back, shared by the threads: its memory
 * and the steps that it is made of. Private to backprop.
 *
 * Rows are tokens: row = window * length + position. Letters: d = d_model, heads =
 * config_heads_dim, qkv = config_qkv_dim of the layer, kv = pass_kv_dim, ff = d_ff.
 *
 * Points of the residual stream are counted from 0, the embedding, on: 2 l + 1 is after block l's
 * attention, 2 l + 2 after its feed-forward part. Where norms stand after the residuals the stream
 * is saved before them.
 *
 * Threads own contiguous rows where a token is all that counts, windows and K/V heads in
 * attention, and rows of a gradient matrix where tokens are summed.
 */
#ifndef DECODE_TRAIN_BACKPROP_PASS_H
#define DECODE_TRAIN_BACKPROP_PASS_H

#include "base/mem.h"
#include "compute/grad_kernels.h"
#include "model/positions.h"
#include "train/backprop.h"

/* --- memory ---------------------------------------------------------------------------------- */

/* What the forward pass saves of a block for the backward pass. */
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

/* Elements of a row of all heads' keys, then all heads' values, made of what is latent. */
static inline int pass_kv_dim(const struct config *c)
{
    return c->n_heads * (c->head_dim + config_value_dim(c));
}

static inline float *pass_scratch(const struct backprop *b, int thread)
{
    return b->scratch + (size_t)thread * b->scratch_floats;
}

/* The residual stream [rows, d] at a point. */
static inline float *pass_stream(const struct backprop *b, int point)
{
    const int l = point / 2;
    if (point % 2)
        return b->blocks[l].mid;
    return l < b->config.n_layers ? b->blocks[l].x : b->out;
}

/* --- a pass ---------------------------------------------------------------------------------- */

struct pass {
    struct backprop *b;
    const struct param_view *w;
    const int32_t *inputs, *targets; /* [rows] */
    int n_sequences;
    struct dropout dropout, attn_dropout;
    float label_smoothing;
    const struct backprop *teacher; /* has passed the same batch, hidden only; NULL: none */
    float teacher_share;            /* of the loss */
    struct param_view *gradient;    /* NULL: loss only */
    bool hidden_only;               /* norm of the last block's output is all */
};

static inline int pass_rows(const struct pass *p)
{
    return p->n_sequences * p->b->length;
}

/* Whether this pass leaves something out. */
static inline bool pass_drops(const struct pass *p)
{
    return p->gradient && p->dropout.share > 0;
}

/* Rows [begin, end) of the batch. */
struct rows {
    int begin, end;
};

static inline int rows_n(struct rows r)
{
    return r.end - r.begin;
}

/* Their first in a buffer with rows of n floats. */
static inline float *rows_at(float *buffer, struct rows r, int n)
{
    return buffer + (size_t)r.begin * (size_t)n;
}

/* This thread's share of some rows. */
static inline struct rows rows_share(const struct pass *p, struct rows all, int thread)
{
    struct rows r;
    pool_share(rows_n(all), thread, p->b->n_threads, &r.begin, &r.end);
    return (struct rows){all.begin + r.begin, all.begin + r.end};
}

/* Rows that pass one matrix after the other while they are in the nearer caches. */
#define ROW_BLOCK 96

/* Runs a step over this thread's share of some rows, a block of at most ROW_BLOCK after the other;
 * `at` and `thread` are passed on. */
static inline void rows_each(const struct pass *p, struct rows all, int at, int thread,
                             void (*step)(const struct pass *p, int at, struct rows r, int thread))
{
    const struct rows share = rows_share(p, all, thread);
    for (struct rows r = {share.begin, share.begin}; r.begin < share.end; r.begin = r.end) {
        r.end = share.end - r.begin < ROW_BLOCK ? share.end : r.begin + ROW_BLOCK;
        step(p, at, r, thread);
    }
}

/* n_rows rows of n floats, `stride` of them apart. */
struct view {
    float *x;
    int n_rows, n;
    size_t stride;
};

/* All n columns of the rows r of a buffer [rows, n]; and n columns of a view from `first` on. */
static inline struct view view_of(float *buffer, struct rows r, int n)
{
    return (struct view){rows_at(buffer, r, n), rows_n(r), n, (size_t)n};
}

static inline struct view view_columns(struct view v, int first, int n)
{
    return (struct view){v.x + first, v.n_rows, n, v.stride};
}

/* --- layers.c -------------------------------------------------------------------------------- */

/* This thread's share of a role's weight [n_out, n_in], of block l, as panels for y = x W^T, or
 * `backward` for dx = dy W. The keys' heads of a latent cache (ROLE_ATTN_K_B) are one matrix after
 * the other, each [rank, head_dim], and keys products with its transpose. */
void backprop_pack(const struct pass *p, enum tensor_role role, int l, bool backward, int thread);

/* y = start + x * panels + bias, over the rows of x. */
struct affine {
    const float *panels;       /* as backprop_pack makes them */
    const float *bias, *start; /* [y.n], and rows as y's; NULL: zero. start may be y */
};
void backprop_multiply(const struct backprop *b, struct affine map, struct view x, struct view y);

/* dW [dy.n, x.n] = dy^T x and, where there is a bias, db = the sum of dy; `add` adds to what is
 * there. */
struct weight_sums {
    struct param_pair gradient;
    struct view dy, x;
    bool add;
};

/* This thread's share: some rows of dW. */
void backprop_weight_sums(const struct backprop *b, const struct weight_sums *s, int thread);

/*
 * Norms. Each stands at a point of the residual stream: what a branch reads is the norm of its
 * point, or, at an embedding that has none, the stream itself. Where norms stand after the
 * residuals, that is also what the branch is added to.
 */

/* out [r, d] = norm of the stream's rows r. */
void backprop_norm(const struct pass *p, int point, struct rows r, float *out);

/* In the rows r, dx = around + the gradient of the stream that goes through the norm, from
 * b->dnorm; fills in b->stats. All are whole buffers [rows, d]; around may be NULL: zero. */
void backprop_norm_backward(const struct pass *p, int point, const float *around, float *dx,
                            struct rows r);

/* This thread's share of a norm's gradient from all rows of b->dnorm and b->stats. */
void backprop_norm_sums(const struct pass *p, int point, int thread);

/* out = start + x without what is left out, over n elements from element `first` of the site on;
 * out, start (NULL: zero) and x begin there. out may be x. Sites are the points of the residual
 * stream for what is added there, then one a layer for the probabilities of its attention. */
void dropout_apply(const struct dropout *d, int site, float *out, const float *start,
                   const float *x, uint64_t first, uint64_t n);

/* The same with the rows r of the site's [rows, d], of which out, start and x are the first. */
void backprop_drop(const struct pass *p, int site, float *out, const float *start, const float *x,
                   struct rows r);

/* --- attention.c ----------------------------------------------------------------------------- */

/* This thread's share of the windows and K/V heads of block l: qkv -> heads, dheads -> dqkv and,
 * of quadratic positions, drel. Of a latent cache keys and values are in kv, their gradient in dkv.
 */
void backprop_attention(const struct pass *p, int l, int thread);
void backprop_attention_backward(const struct pass *p, int l, int thread);

/* This thread's share of the gradient of block l's quadratic positions, if there are such, from
 * drel. */
void backprop_attention_sums(const struct pass *p, int l, int thread);

/*
 * The keys and values of every head that a latent cache stands for. What inference multiplies into
 * queries and results, k_b and v_b, is multiplied into the cached vectors here: over whole windows
 * heads of their own size attend with fewer operations than heads of the rank's. To attention a
 * block is then one with a K/V head for each query head.
 */

/* kv of the rows r from what is latent in qkv; and dqkv's from dkv. The panels are those of the
 * direction. */
void backprop_expand(const struct pass *p, int l, struct rows r);
void backprop_expand_backward(const struct pass *p, int l, struct rows r);

/* This thread's share of the gradients of k_b and v_b of block l. */
void backprop_expand_sums(const struct pass *p, int l, bool add, int thread);

/* --- block.c --------------------------------------------------------------------------------- */

/* Block l, its input to the next one's (or to b->out); and b->dx of its output to that of its
 * input, and the gradients of its tensors. Every thread calls these; they meet inside. */
void backprop_block(const struct pass *p, int l, int thread);
void backprop_block_backward(const struct pass *p, int l, int thread);

#endif
