/*
 * private - the rows of a batch on their way through a model's layers, shared by the threads of a
 * pool.
 *
 * Every stage is rows for a matrix product to read, of which each thread makes all for itself or,
 * if they are many, its share, and the product, whose panels the threads share. In a block threads
 * meet after attention, the output, up and down projections; where norms stand after the residuals,
 * once more after each; and where K/V heads cannot be divided whole among them also after the QKV
 * rows and (if batch->stores_first) the new keys and values. Before each product they meet over
 * rows that they share.
 */
#pragma once

#include "engine/taps.h"
#include "model/kv_cache.h"
#include "model/model.h"

/* --- a batch ---------------------------------------------------------------------------------- */

/* Rows of one sequence at consecutive positions. */
struct batch_span {
    int first_row, n_rows;
    int sequence;
    int first_position;
};

/* Rows cut into spans; the rows are borrowed. */
struct batch {
    const struct batch_row *rows;
    int n_rows;
    struct batch_span *spans;
    int n_spans;
    int n_logits; /* rows that want logits */
    /* Whether its keys and values must be in the cache before attention reads any, because a
     * sequence has several rows. */
    bool stores_first;
};

/* --- memory ----------------------------------------------------------------------------------- */

/* The memory of max_rows rows at once, on at most max_threads threads. */
struct workspace {
    int max_rows, max_threads;
    struct batch_span *spans;   /* [max_rows] */
    float *x;                   /* [max_rows, d_model] the residual stream */
    float *qkv;                 /* [max_rows, the largest config_qkv_dim] */
    struct positions positions; /* those that a sequence can have */
    /* What attention of one chunk gives, to be merged: [max_rows, n_heads, kv_cache_chunks(cap)]
     * partial results of a head, each of value_dim floats with its max and sum behind them. */
    float *partials;
    bool watches;   /* whether attention_watch is wanted; set before workspace_take */
    float *weights; /* [max_rows, n_heads, cap] for attention_watch; NULL if it is not wanted */
    float *hidden;  /* [max_rows, d_ff] */
    /* What the next product reads, and the same quantised. The rows are shared by all threads, or,
     * of few rows, each thread has WORKSPACE_LOCAL_ROWS of its own. */
    float *input; /* [max(max_rows, max_threads * WORKSPACE_LOCAL_ROWS), input_dim] */
    int input_dim;
    float *parallel;       /* the same of PLACEMENT_PARALLEL's feed-forward part [rows, d_model] */
    float *added;          /* [max_rows, d_model] what a part adds, where that is normed */
    unsigned char *quants; /* [as many rows, quants_bytes] */
    size_t quants_bytes;   /* the bytes of the longest row */
    float *attend;         /* [max_threads, attend_floats] scratch of each thread's attention */
    size_t attend_floats;
};

/* Up to so many rows each thread makes what a product reads for itself; more they share. (A row
 * takes a few hundred nanoseconds, a barrier that and more with every thread.) */
#define WORKSPACE_LOCAL_ROWS 4

/* Rows of a prompt that are read to together where heads share no keys and values: as many heads as
 * a kernel's largest tile has. */
#define JOINED_ROWS 12

/* --- stages ----------------------------------------------------------------------------------- */

/* What rows pass through, which the threads borrow: layers, their cache and their memory. */
struct forward {
    const struct kernels *kernels;
    struct pool *pool;
    struct kv_cache kv; /* its config is that of the layers */
    struct workspace work;
    const struct block *blocks; /* of layers first_layer .. end_layer - 1, which are run */
    int first_layer, end_layer;
    bool only_attention; /* the blocks' feed-forward parts are left out */
    struct block_taps taps;
    const struct attention_watch *watch; /* NULL: nobody watches */
    const struct head_ablation *without; /* NULL: no head is left out */
    const struct model *model;  /* its output matrix makes the logits; NULL: no row wants any */
    float *logits;              /* [n_logits, n_vocab] of the rows that want them, in order */
    struct batch batch;         /* the rows of the forward_run on its way */
    int streams[STORAGE_COUNT]; /* of struct matmul, for weights stored so */
};

/* A thread, and the rows that it helps to make: those of the batch, or those that want logits. */
struct worker {
    struct forward *f;
    int thread, n_threads, n_rows;
};

/* Waits for all threads of the batch. */
static inline void worker_meet(const struct worker *k)
{
    pool_barrier(k->f->pool, k->thread);
}

/* Items [begin, end). */
struct item_range {
    int begin, end;
};

/* The thread's range of n items. */
static inline struct item_range range_of(const struct worker *k, int n)
{
    struct item_range s;
    pool_range(n, k->thread, k->n_threads, &s.begin, &s.end);
    return s;
}

/* Whether the threads share the rows, so that each makes only some of them. */
static inline bool worker_shares(const struct worker *k)
{
    return k->n_rows > WORKSPACE_LOCAL_ROWS;
}

/* The rows that this thread makes. */
static inline struct item_range worker_rows(const struct worker *k)
{
    return worker_shares(k) ? range_of(k, k->n_rows) : (struct item_range){0, k->n_rows};
}

/* The row of work.input and work.quants at which the rows that it reads begin. */
static inline size_t worker_first(const struct worker *k)
{
    return worker_shares(k) ? 0 : (size_t)k->thread * WORKSPACE_LOCAL_ROWS;
}
