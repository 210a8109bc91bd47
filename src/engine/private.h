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

#include "engine/session.h"

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

/* All threads of a batch call each of these, with a worker of their own. None allocates or fails.
 */

/* out [d_model] = norm of x [d_model]; out may be x. */
void stage_norm(const struct forward *f, const struct norm *norm, const float *x, float *out);

/* Makes this thread's rows of what a product reads [n_rows, d_model] in a buffer of the workspace
 * that has room for such rows, `stride` floats for each of a thread's own, and returns where all
 * begin: the norm of work.x, or, where norms stand after the residuals, work.x itself. */
const float *stage_input(const struct worker *k, const struct norm *norm, float *buffer,
                         int stride);

/* Adds the product of rows x to work.x, or, where what is added is normed first, leaves it in
 * work.added for stage_end_residual. */
void stage_add(const struct worker *k, const struct matrix *w, const float *x);

/* Ends a residual: threads meet; what is in work.added is added to work.x with its norm `added`;
 * and where norms stand after the residuals work.x becomes its norm `after`. It is complete on
 * return. `sums` [n_rows, d_model] (NULL: not wanted) gets the thread's rows before that last norm.
 */
void stage_end_residual(const struct worker *k, const struct norm *added, const struct norm *after,
                        float *sums);

/* The product y = epilogue(w x) of rows x [n_rows, w->n_in] as the kernel takes it; this thread's
 * rows of x are made, and are quantised here if w is. Threads meet if rows are shared. The matmul
 * borrows all of its pointers. */
struct matmul stage_product(const struct worker *k, const struct matrix *w, const float *x,
                            float *y, enum epilogue epilogue);

/* The panels of w for this thread to multiply by, a few at a time where w is so large that the
 * threads wait for memory. All of a batch's threads ask. */
struct pool_items stage_panels(const struct worker *k, const struct matrix *w);

/* Computes panels of that product, columns of y [n_rows, w->n_out], until none is left. Other
 * threads may still be at work on theirs; y is complete once the threads have met. */
void stage_multiply(const struct worker *k, const struct matrix *w, const float *x, float *y,
                    enum epilogue epilogue);

/* Copies the rows of n floats to the buffer of a tap, if there is one. No thread may write the rows
 * meanwhile. */
void stage_tap(const struct worker *k, enum block_tap tap, const float *rows, int n);

/* --- attention.c: a layer's attention of a batch to what its sequences have in the cache ------ */

/* Sets *b to n >= 1 rows, which are borrowed, cut into spans; `spans` has room for n of them and is
 * borrowed, too. */
void batch_cut(struct batch *b, const struct batch_row *rows, int n, struct batch_span *spans);

/* Computes the attention of a layer, from its norm to the end of its residual, and stores the rows'
 * keys and values in the cache. All threads of the batch call it, with a worker of their own. */
void block_attention(const struct worker *k, const struct block *b, int layer);

/* --- streams.c: how many panels of a matrix one token reads side by side ---------------------- */

/* Memory serves some processors best when a thread reads one panel after the other, and others when
 * it reads four side by side; sums are the same bits either way (struct matmul). */

/* Times one token's products with the feed-forward matrices of f's layers, which the numbers of
 * panels share out in turns, for some milliseconds, and sets f->streams. Where these matrices are
 * quantised, whose products wait for instructions, or fit a processor's caches, and of other
 * storages it is the usual number. f's workspace is used, whose contents are lost; no step may be
 * under way. */
void streams_choose(struct forward *f);

/* --- forward.c: a batch of rows through the layers of a model --------------------------------- */

/* Takes or counts (see base/mem.h) the memory of a workspace whose max_rows and max_threads are
 * set, for caches of up to `cap` positions a sequence; rope_factors as in positions_take. */
void workspace_take(struct workspace *w, struct arena *a, const struct config *c,
                    const float *rope_factors, int cap);

/* Runs n <= work.max_rows rows through the layers, which changes work.x, the residual stream
 * [n, d_model], and the cache; returns how many rows wanted logits. */
int forward_run(struct forward *f, const struct batch_row *rows, int n);
