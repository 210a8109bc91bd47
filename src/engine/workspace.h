/*
 * workspace - the memory that rows are in on their way through the blocks.
 */
#ifndef DECODE_ENGINE_WORKSPACE_H
#define DECODE_ENGINE_WORKSPACE_H

#include <stdbool.h>

#include "base/mem.h"
#include "engine/batch.h"
#include "model/positions.h"

/* max_rows rows at once, on at most max_threads threads. */
struct workspace {
    int max_rows, max_threads;
    struct batch_span *spans;   /* [max_rows] */
    float *x;                   /* [max_rows, d_model] the residual stream */
    float *qkv;                 /* [max_rows, the largest config_qkv_dim] */
    struct positions positions; /* of a sequence */
    float *parts;               /* attention_parts(max_rows) */
    bool watches;               /* set before workspace_take: whether there are */
    float *weights;             /* [max_rows, n_heads, cap] of attention_watch */
    float *hidden;              /* [max_rows, d_ff] */
    /* What the next product reads, and the same quantised: rows of each thread's own, or of all. */
    float *input; /* [max_rows or threads times their own, input_dim] */
    int input_dim;
    unsigned char *quants; /* [as many, quants_bytes] */
    size_t quants_bytes;   /* of the longest row */
    /* With a latent cache: queries as they score with it, then averages of it [max_rows, n_heads *
     * the largest rank]; and each thread's quantised rows for products by head. */
    float *mapped;
    unsigned char *head_quants; /* [max_threads, max_rows, head_quants_bytes] */
    size_t head_quants_bytes;
    float *attend; /* [max_threads, attend_floats] attention's, of each thread */
    size_t attend_floats;
};

/*
 * Up to so many rows each thread makes what a product reads for itself, which takes less time than
 * waiting for another to; more they share. (A row takes a few hundred nanoseconds, a barrier that
 * and more with every thread.)
 */
#define WORKSPACE_OWN_ROWS 4

static inline bool workspace_shares(int n_rows)
{
    return n_rows > WORKSPACE_OWN_ROWS;
}

/* Takes the memory of a workspace whose max_rows and max_threads are set from an arena, or counts
 * it (see base/mem.h), for caches of up to `cap` positions a sequence; rope_factors as in
 * positions_take. */
void workspace_take(struct workspace *w, struct arena *a, const struct config *c,
                    const float *rope_factors, int cap);

/* The first of n_rows rows that a thread reads: of its own, or of all. */
static inline size_t workspace_first_row(int n_rows, int thread)
{
    return workspace_shares(n_rows) ? 0 : (size_t)thread * WORKSPACE_OWN_ROWS;
}

static inline float *workspace_input(const struct workspace *w, int n_rows, int thread)
{
    return w->input + workspace_first_row(n_rows, thread) * (size_t)w->input_dim;
}

static inline unsigned char *workspace_quants(const struct workspace *w, int n_rows, int thread)
{
    return w->quants + workspace_first_row(n_rows, thread) * w->quants_bytes;
}

static inline unsigned char *workspace_head_quants(const struct workspace *w, int thread)
{
    return w->head_quants + (size_t)thread * (size_t)w->max_rows * w->head_quants_bytes;
}

static inline float *workspace_attend(const struct workspace *w, int thread)
{
    return w->attend + (size_t)thread * w->attend_floats;
}

#endif
