/*
 * workspace - the memory that rows are in on their way through the blocks.
 */
#ifndef DECODE_ENGINE_WORKSPACE_H
#define DECODE_ENGINE_WORKSPACE_H

#include "base/mem.h"
#include "engine/batch.h"
#include "model/config.h"

/* max_rows rows at once, on at most max_threads threads. */
struct workspace {
    int max_rows, max_threads;
    struct batch_span *spans; /* [max_rows] */
    float *x;                 /* [max_rows, d_model] the residual stream */
    float *qkv;               /* [max_rows, the largest config_qkv_dim] */
    float *parts;             /* attention_parts(max_rows) */
    float *hidden;            /* [max_rows, d_ff] */
    /* Of each thread: what its next product reads, the same quantised, and attention's. */
    float *input; /* [max_threads, max_rows, input_dim] */
    int input_dim;
    unsigned char *quants; /* [max_threads, max_rows, quants_bytes] */
    size_t quants_bytes;   /* of the longest row */
    float *attend;         /* [max_threads, attend_floats] */
    size_t attend_floats;
};

/* Takes the memory of a workspace whose max_rows and max_threads are set from an arena, or counts
 * it (see base/mem.h), for caches of up to `cap` positions a sequence. */
void workspace_take(struct workspace *w, struct arena *a, const struct config *c, int cap);

/* A thread's own rows. */
static inline float *workspace_input(const struct workspace *w, int thread)
{
    return w->input + (size_t)thread * (size_t)w->max_rows * (size_t)w->input_dim;
}

static inline void *workspace_quants(const struct workspace *w, int thread)
{
    return w->quants + (size_t)thread * (size_t)w->max_rows * w->quants_bytes;
}

static inline float *workspace_attend(const struct workspace *w, int thread)
{
    return w->attend + (size_t)thread * w->attend_floats;
}

#endif
