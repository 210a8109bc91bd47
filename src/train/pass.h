/*
 * pass - one pass over a batch, shared by the threads.
 *
 * Threads own contiguous rows where a token is all that counts, windows and K/V heads in
 * attention, and rows of a gradient matrix where tokens are summed.
 */
#ifndef DECODE_TRAIN_PASS_H
#define DECODE_TRAIN_PASS_H

#include "model/params.h"
#include "train/activations.h"
#include "train/dropout.h"

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
static inline struct rows rows_share(const struct pass *p, int thread)
{
    struct rows r;
    pool_share(pass_rows(p), thread, p->b->n_threads, &r.begin, &r.end);
    return r;
}

/* The rows r of the site's [rows, d_model], of which out, start (NULL: zero) and x are the first:
 * out = start + x without what is dropped. out may be x. */
static inline void pass_drop(const struct pass *p, int site, float *out, const float *start,
                             const float *x, struct rows r)
{
    const uint64_t d = (uint64_t)p->b->config.d_model;
    dropout_apply(&p->dropout, site, out, start, x, (uint64_t)r.begin * d, (uint64_t)rows_n(r) * d);
}

#endif
