/*
 * backprop_pass - a pass of a batch through a model and back, for the files that backpropagation is
 * made of: its memory, and how threads divide its rows.
 *
 * Rows are tokens of a part of the batch: row = window * length + position. Letters: d = d_model,
 * heads = config_heads_dim, qkv = config_qkv_dim of the layer, kv = pass_kv_dim, ff = d_ff.
 *
 * Points of the residual stream: 0 is the embedding, 2 l + 1 after block l's attention, 2 l + 2
 * after its feed-forward part. Where norms stand after the residuals it is saved before them.
 *
 * Threads own contiguous rows where a token is all that counts, windows and K/V heads in
 * attention, and rows or columns of a gradient matrix where tokens are summed.
 */
#pragma once

#include "compute/grad_kernels.h"
#include "model/model.h"
#include "train/backprop.h"

static inline int rows_n(struct range r)
{
    return r.end - r.begin;
}

/* n_rows rows of n floats, `stride` floats apart; x is NULL where there is no such buffer. */
struct matrix_view {
    float *x;
    int n_rows, n;
    size_t stride;
};

/* The rows r of a view, or its n columns from `first` on; of no buffer there are none. */
static inline struct matrix_view rows_view(struct matrix_view v, struct range r)
{
    return (struct matrix_view){v.x ? v.x + r.begin * v.stride : NULL, rows_n(r), v.n, v.stride};
}

static inline struct matrix_view view_columns(struct matrix_view v, int first, int n)
{
    return (struct matrix_view){v.x ? v.x + first : NULL, v.n_rows, n, v.stride};
}

/* What the forward pass saves of a block for the backward pass. */
struct saved {
    struct matrix_view x;     /* [rows, d] the residual stream before it */
    struct matrix_view heads; /* [rows, heads] outputs of the heads */
    struct matrix_view mid;   /* [rows, d] the residual stream after attention */
    /* On the way back the gradients of qkv and gate take their place, and what the down matrix
     * takes that of up. */
    struct matrix_view qkv;  /* [rows, qkv] queries and keys not yet rotated */
    struct matrix_view up;   /* [rows, ff] before what makes it not linear */
    struct matrix_view gate; /* [rows, ff] the same; none where there is no gate */
    /* [rows, d] what attention and the feed-forward part add before it is normed; none where it is
     * not. */
    struct matrix_view added[2];
    float *softmax; /* [windows, n_heads, 2, padded length] each query's max and 1 / sum */
    /* By role, its matrices in panels [n_out / 16][n_in][16]. Where the batch passes at once all
     * blocks share their memory; forward only there are none, because the weights themselves lie
     * so. */
    float *panels[TENSOR_ROLES];
};

/* The memory of backpropagation on batches of one size, and what its passes share. */
struct backprop {
    /* As in struct backprop_spec. */
    struct config config;
    const struct param_list *list;
    int n_sequences, length;
    bool forward_only, dropping, taught, keeps_streams;
    const struct kernels *kernels;
    struct pool *threads; /* its pool */

    int n_halves;  /* of a batch, each summed by itself: 1 or 2 */
    int n_at_once; /* windows whose activations exist at once: a part of a half */
    /* Passes the second half on thread 1, while this one passes the first on thread 0. NULL: all
     * threads pass one half after the other, or this is a twin. */
    struct backprop *twin;
    struct pool *pool;            /* of the threads that make a pass together */
    struct param_view of_half[2]; /* the halves' gradients */
    /* [n_trained] with a twin: of the first half's gradient what thread 1 adds up, of the second
     * half's what thread 0 does. NULL: all is in of_half. */
    float *published;

    const struct grad_kernels *grad;
    int n_threads;
    int head_rows;         /* rows whose logits exist at once */
    size_t scratch_floats; /* of a thread: whole cache lines */
    struct arena arena;

    struct positions positions;  /* below length */
    struct saved *blocks;        /* [n_layers]; forward only: all share their memory */
    struct matrix_view out;      /* [rows, d] the residual stream after the last block */
    struct matrix_view embedded; /* [rows, d] the embedding before its norm; none without one */
    float *output_panels;        /* of the output's matrix, as struct saved has a block's */

    /* One block's at a time. */
    struct matrix_view norm;  /* [rows, d] of what a branch, or the output's matrix, reads */
    struct matrix_view dx;    /* [rows, d] gradient of the block's output, then of its input */
    struct matrix_view dmid;  /* [rows, d] of mid */
    struct matrix_view dnorm; /* [rows, d] of norm */
    /* dx and dmid without what was dropped, as the matrices take them; without dropout the same
     * buffers as dx and dmid. */
    struct matrix_view dx_dropped, dmid_dropped;
    struct matrix_view dup;    /* [rows, ff] */
    struct matrix_view dheads; /* [rows, heads] */
    /* [rows of a half, d] of the embedding: it is added up behind the last part, because the same
     * matrix may be the output's, whose rows come first. */
    struct matrix_view dembedded;
    struct matrix_view stats;                     /* [rows, 2] of a norm */
    struct matrix_view dadded[2], added_stats[2]; /* of saved.added, and its norm's */
    enum tensor_role table; /* of heads, in a block, that training moves: quadratic positions' or
                               additive scores' */
    int table_cols;
    double *dtable; /* [windows, n_heads, table_cols]; NULL: there is no such table */
    double *dnorms; /* [windows, K/V heads, 4, head_dim] see struct causal_window; NULL: queries and
                       keys are not normed */

    struct matrix_view logits;         /* [head_rows, n_vocab], then their gradient */
    struct matrix_view losses;         /* [rows, 1] */
    struct matrix_view teacher_logits; /* [head_rows, n_vocab]; none if not taught */
    float *scratch; /* [n_threads, scratch_floats]: of a row block or of an attention
                       item */
};

static inline float *pass_scratch(const struct backprop *b, int thread)
{
    return b->scratch + thread * b->scratch_floats;
}

/* The residual stream [rows, d] at a point. */
static inline struct matrix_view pass_stream(const struct backprop *b, int point)
{
    const int l = point / 2;
    if (point % 2)
        return b->blocks[l].mid;
    return l < b->config.n_layers ? b->blocks[l].x : b->out;
}

/* One pass of a part of a batch through the model and, with a gradient, back; all threads share it.
 */
struct pass {
    struct backprop *b;
    const struct param_view *w;
    const struct backprop_batch *batch;
    struct range half;           /* windows of the batch: one half, or all */
    struct range windows;        /* a part of them; rows are counted from the first of these on */
    struct param_view *gradient; /* of the half; NULL: loss only, and nothing is left out */
    bool is_first;               /* it packs the weights, for the later passes too */
    bool hidden_only;            /* norm of the last block's output is all */
};

/* Whether the batch passes in parts: then the matrices of all blocks are in panels, packed by the
 * first pass. */
static inline bool backprop_in_parts(const struct backprop *b)
{
    return b->n_at_once < b->n_sequences;
}

/* Where a role's matrix of block l is in panels. */
static inline float *packed_panels(const struct backprop *b, enum tensor_role role, int l)
{
    return role_in_block(role) ? b->blocks[l].panels[role] : b->output_panels;
}

/* The panels that products read of a role's matrix of block l: forward only, the weights
 * themselves.
 */
static inline const float *pass_panels(const struct backprop *b, const struct param_view *w,
                                       enum tensor_role role, int l)
{
    if (!b->forward_only)
        return packed_panels(b, role, l);
    return (role_in_block(role) ? w->blocks[l].w : w->w)[role].weight;
}

static inline int pass_rows(const struct pass *p)
{
    return rows_n(p->windows) * p->b->length;
}

/* The row of the whole batch that the pass begins with, and the rows of the whole batch. */
static inline int pass_first_row(const struct pass *p)
{
    return p->windows.begin * p->b->length;
}

static inline int pass_batch_rows(const struct pass *p)
{
    return p->batch->n_sequences * p->b->length;
}

/* Whether this pass leaves something out. */
static inline bool pass_drops(const struct pass *p)
{
    return p->gradient && p->batch->dropout.share > 0;
}

static inline struct range all_rows(const struct pass *p)
{
    return (struct range){0, pass_rows(p)};
}

/* This thread's rows of some. */
static inline struct range rows_of_thread(const struct pass *p, struct range all, int thread)
{
    const struct range r = pool_range(rows_n(all), thread, p->b->n_threads);
    return (struct range){all.begin + r.begin, all.begin + r.end};
}

/* Rows that pass one matrix after the other while they are in the nearer caches. */
#define ROW_BLOCK 128

/* Runs a step over this thread's rows of some, by blocks of at most ROW_BLOCK. */
static inline void rows_each(const struct pass *p, struct range all, int at, int thread,
                             void (*step)(const struct pass *p, int at, struct range r, int thread))
{
    const struct range rows = rows_of_thread(p, all, thread);
    for (struct range r = {rows.begin, rows.begin}; r.begin < rows.end; r.begin = r.end) {
        r.end = MIN(rows.end, r.begin + ROW_BLOCK);
        step(p, at, r, thread);
    }
}

/* --- layers.c: affine maps, norms and dropout, forwards and backwards ------------------------- */

/* Functions that take a thread's number do that thread's share; all threads of the pool call them,
 * and the caller places the barriers. The others work on the rows that they are given; each thread
 * gives its own. None allocates or fails. */

/* Packs this thread's share of a role's weight [n_out, n_in], of block l, into panels; or of all
 * that the block has. */
void backprop_pack(const struct pass *p, enum tensor_role role, int l, int thread);
void backprop_pack_block(const struct pass *p, int l, int thread);

/* y = start + x W^T + bias with the panels of W or, backwards, y = start + x W with W as it is,
 * over the rows of x. */
struct affine {
    const float *panels; /* as backprop_pack makes them; NULL: `matrix` is given */
    const float *matrix; /* [x.n, y.n] */
    const float *bias;   /* [y.n]; NULL: zero */
    const float *start;  /* rows as y's, and may be y; NULL: zero */
};
void backprop_multiply(const struct backprop *b, struct affine map, struct matrix_view x,
                       struct matrix_view y);

/* Adds to this thread's share, rows or columns of dW: dW [dy.n, x.n] += dy^T x and, where there is
 * a bias, db [dy.n] += the sum of dy's rows. Nothing where there is no dW: it is not trained. */
void backprop_weight_sums(const struct backprop *b, struct param_pair gradient,
                          struct matrix_view dy, struct matrix_view x, int thread);

/* A norm of rows x [rows, d], its parameters and their gradients; each of these may be NULL. */
struct norm_use {
    struct matrix_view x;
    bool is_norm; /* else x is read as it is */
    const struct param_pair *w;
    const struct param_pair *gradient; /* NULL: no gradient is asked for */
};

/* The norm that a role is of block l, or (l -1) outside of the blocks, where it reads x. A model
 * without such a norm reads x as it is. */
struct norm_use backprop_norm_of(const struct pass *p, enum tensor_role role, int l,
                                 struct matrix_view x);

/* What the output matrix reads: the norm of the stream behind the last block. */
struct norm_use backprop_last_norm(const struct pass *p);

/* out [r, d] = the norm of the rows r. */
void backprop_norm(const struct pass *p, const struct norm_use *n, struct range r, float *out);

/* In the rows r, dx = around (without x: zero) + the gradient through the norm, from dy; fills in
 * stats [rows, 2]. */
void backprop_norm_backward(const struct pass *p, const struct norm_use *n, struct matrix_view dy,
                            struct matrix_view stats, struct matrix_view around,
                            struct matrix_view dx, struct range r);

/* Adds this thread's share of a norm's gradient from all rows of dy and stats. */
void backprop_norm_sums(const struct pass *p, const struct norm_use *n, struct matrix_view dy,
                        struct matrix_view stats, int thread);

/* x [n] = start [n] (NULL: zero) + x without what is left out. The n elements are the site's from
 * number `first` on, and x and start point to the first of them. */
void dropout_apply(const struct dropout *d, int site, float *x, const float *start, uint64_t first,
                   uint64_t n);

/* The same for the rows r of the site's [rows, d], with the batch's dropout; x and start point to
 * the first of these rows. */
void backprop_drop(const struct pass *p, int site, float *x, const float *start, struct range r);

/* --- block.c: one block over a whole batch, forwards and backwards ---------------------------- */

/* Every thread of the pool calls these with its number; they meet inside at barriers. Neither
 * allocates or fails. */

/* Runs block l: from the residual stream before it, b->blocks[l].x, to the one behind it. Fills in
 * what the backward pass needs, b->blocks[l]. */
void backprop_block(const struct pass *p, int l, int thread);

/* Turns b->dx, the gradient of block l's output, into that of its input, and adds to its tensors'
 * gradients. */
void backprop_block_backward(const struct pass *p, int l, int thread);
