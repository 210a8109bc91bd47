/*
 * private - the rows of a batch on their way through a model's layers, shared by the threads of a
 * pool.
 *
 * A stage makes the rows that a matrix product reads, then the product. The threads share the
 * panels of every product. Of few rows each thread makes all for itself; many rows the threads
 * share, and then they meet before the product. In a block they also meet after attention and after
 * the output, up and down projections; where norms stand after the residuals, once more after each;
 * and, where K/V heads cannot be divided whole among the threads, after the QKV rows and (if
 * batch->stores_first) after the new keys and values.
 */
#pragma once

#include "engine/session.h"

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
    /* Whether a sequence has several rows, so that all keys and values must be in the cache before
     * attention reads any. */
    bool stores_first;
};

/* The memory of max_rows rows at once, on at most max_threads threads. */
struct workspace {
    int max_rows, max_threads;
    bool watches;               /* whether there is an attention_watch */
    const float *rope_factors;  /* as in positions_take, which alone reads them */
    struct batch_span *spans;   /* [max_rows] */
    float *x;                   /* [max_rows, d_model] the residual stream */
    float *qkv;                 /* [max_rows, the largest config_qkv_dim] */
    struct positions positions; /* those that a sequence can have */
    /* Results of one chunk's attention, to be merged: [K/V heads, the batch's rows, heads of a
     * group, kv_cache_chunks(cap)] of value_dim floats with the max and the sum behind them. */
    float *partials;
    float *weights; /* [max_rows, n_heads, cap] for the attention_watch; NULL: there is none */
    float *hidden;  /* [max_rows, d_ff] */
    /* What the next product reads, and `quants`, the same quantised. All threads share the rows,
     * or, if these are few, each thread has WORKSPACE_LOCAL_ROWS of its own. */
    float *input; /* [max(max_rows, max_threads * WORKSPACE_LOCAL_ROWS), input_dim] */
    int input_dim;
    float *parallel; /* [as many rows, d_model] what the feed-forward part of PLACEMENT_PARALLEL
                        reads */
    float *added;    /* [max_rows, d_model] what a part adds, where that is normed */
    unsigned char *quants; /* [as many rows, quants_bytes] */
    size_t quants_bytes;   /* the bytes of the longest row */
    float *attend;         /* [max_threads, attend_floats] scratch of each thread's attention */
    size_t attend_floats;
};

/* Of so many rows, or fewer, each thread makes what a product reads for itself, because a barrier
 * takes longer than a row. */
#define WORKSPACE_LOCAL_ROWS 4

/* Query heads, of one row or of several rows of a prompt, that read a chunk together: as many as a
 * kernel's largest tile has. */
#define JOINED_HEADS 12

/* --- stages ----------------------------------------------------------------------------------- */

/* What rows pass through: layers, their cache and their memory. The threads borrow it. */
struct forward {
    const struct kernels *kernels;
    struct pool *pool;
    struct kv_cache kv; /* kv.config is that of the layers */
    struct workspace work;
    const struct block *blocks; /* of the layers that are run: first_layer .. end_layer - 1 */
    int first_layer, end_layer;
    bool only_attention; /* the blocks' feed-forward parts are left out */
    struct block_taps taps;
    const struct attention_watch *watch; /* NULL: nobody watches */
    const struct head_ablation *without; /* NULL: no head is left out */
    const struct model *model; /* whose output matrix makes the logits; NULL: no row wants any */
    float *logits;             /* [n_logits, n_vocab] of the rows that want them, in order */
    struct batch batch;        /* the rows of this forward_run */
};

/* A thread and the number of rows that all threads make: the batch's, or those that want logits. */
struct worker {
    struct forward *f;
    int thread, n_threads, n_rows;
};

/* Waits for all threads of the batch. */
static inline void worker_meet(const struct worker *k)
{
    pool_barrier(k->f->pool, k->thread);
}

/* The thread's range of n items. */
static inline struct range worker_range(const struct worker *k, int n)
{
    return pool_range(n, k->thread, k->n_threads);
}

/* Whether the threads share the rows, so that each makes only some of them. */
static inline bool worker_shares(const struct worker *k)
{
    return k->n_rows > WORKSPACE_LOCAL_ROWS;
}

/* The rows that this thread makes. */
static inline struct range worker_rows(const struct worker *k)
{
    return worker_shares(k) ? worker_range(k, k->n_rows) : (struct range){0, k->n_rows};
}

/* The row of work.input and work.quants at which the rows that it reads begin. */
static inline size_t worker_first(const struct worker *k)
{
    return worker_shares(k) ? 0 : (size_t)k->thread * WORKSPACE_LOCAL_ROWS;
}

/* --- stages.c: rows for a product to read, the product, and the end of a residual ------------- */

/* All threads of a batch call each function, with a worker of their own. None allocates or fails.
 */

/* out [d_model] = norm of x [d_model]; out may be x. */
void stage_norm(const struct forward *f, const struct norm *norm, const float *x, float *out);

/* Returns the rows [n_rows, d_model] that a product reads: norms of work.x or, where norms stand
 * after the residuals, work.x itself. This thread makes its own norms in a buffer of the workspace,
 * which has `stride` floats for each of WORKSPACE_LOCAL_ROWS. */
const float *stage_input(const struct worker *k, const struct norm *norm, float *buffer,
                         int stride);

/* Adds the product of rows x to work.x, or, where what is added is normed first, leaves it in
 * work.added for stage_end_residual. */
void stage_add(const struct worker *k, const struct matrix *w, const float *x);

/* Ends a residual: threads meet; the norm `added` of work.added is added to work.x; and where norms
 * stand after the residuals, work.x becomes its norm `after`. work.x is complete on return. `sums`
 * [n_rows, d_model] (NULL: not wanted) gets the thread's rows before the norm `after`. */
void stage_end_residual(const struct worker *k, const struct norm *added, const struct norm *after,
                        float *sums);

/* Returns the product y = epilogue(w x) of rows x [n_rows, w->n_in] as the kernel takes it. This
 * thread's rows of x are made, and are quantised here if w is; threads meet if rows are shared. The
 * matmul borrows all of its pointers. */
struct matmul stage_product(const struct worker *k, const struct matrix *w, const float *x,
                            float *y, enum epilogue epilogue);

/* A product by w as the threads share it out: panels of w or, of many rows, for each thread rows of
 * its own, by all panels. A thread then writes the rows that it reads next: where processors have
 * no cache in common, a prompt takes 3 to 12% less time than where each writes columns of all rows.
 */
struct product_share {
    const struct worker *k;
    struct pool_items items; /* panels, or the groups for each thread's rows */
    int n_panels, n_groups;  /* 0 groups: items are panels, of all rows */
};

/* Rows of a product, and the panels that they are multiplied by at once. */
struct product_part {
    struct range rows, panels;
};

/* Returns the thread's share, which it takes a part at a time where w is so large, or the rows are
 * so many, that one thread would wait for another. Every thread of the batch calls it. */
struct product_share stage_share(const struct worker *k, const struct matrix *w);

/* Fills in the thread's next part of the product; false if none is left. */
bool stage_next(struct product_share *s, struct product_part *out);

/* Computes a part of the product m, by the matrix of stage_share or by one with as many rows. Parts
 * may be computed in parallel. */
void stage_part(const struct worker *k, const struct matmul *m, struct product_part part);

/* Computes parts of the product y [n_rows, w->n_out], until none is left. y is complete once the
 * threads have met. */
void stage_multiply(const struct worker *k, const struct matrix *w, const float *x, float *y,
                    enum epilogue epilogue);

/* Copies the rows of n floats to the buffer of a tap, if there is one. No thread may write the rows
 * meanwhile. */
void stage_tap(const struct worker *k, enum block_tap tap, const float *rows, int n);

/* --- attention.c: a layer's attention of a batch to what its sequences have in the cache ------ */

/* Cuts n >= 1 rows into spans. `rows` and `spans`, which has room for n, are borrowed. */
void batch_cut(struct batch *b, const struct batch_row *rows, int n, struct batch_span *spans);

/* Computes the attention of a layer, from its norm to the end of its residual, and stores the rows'
 * keys and values in the cache. All threads of the batch call it, with a worker of their own. */
void block_attention(const struct worker *k, const struct block *b, int layer);

/* --- forward.c: a batch of rows through the layers of a model --------------------------------- */

/* Takes or counts (see base/mem.h) the memory of a workspace, whose first four members are set, for
 * caches of up to `cap` positions a sequence. */
void workspace_take(struct workspace *w, struct arena *a, const struct config *c, int cap);

/* Runs n <= work.max_rows rows through the layers: changes work.x, the residual stream [n,
 * d_model], and the cache. Returns how many rows wanted logits. */
int forward_run(struct forward *f, const struct batch_row *rows, int n);
