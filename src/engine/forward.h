/*
 * forward - the rows of a batch on their way through a model, shared by the threads of a pool.
 *
 * What every stage is made of: rows for a matrix product to read, of which each thread makes all
 * for itself or, if they are many, its share (workspace_shares), and the product, whose panels the
 * threads share. Rows that are shared are complete when forward_product has returned.
 */
#ifndef DECODE_ENGINE_FORWARD_H
#define DECODE_ENGINE_FORWARD_H

#include "compute/kernels.h"
#include "compute/pool.h"
#include "engine/batch.h"
#include "engine/heads.h"
#include "engine/workspace.h"
#include "model/kv_cache.h"
#include "model/model.h"

/* One pass, borrowed by the threads. config's sizes are those of the cache and the workspace. */
struct forward {
    const struct config *config;
    const struct kernels *kernels;
    struct pool *pool;
    struct kv_cache *kv;
    const struct workspace *work;
    const struct batch *batch;           /* at most work->max_rows rows */
    const struct block_taps *taps;       /* NULL: none (see engine/block.h) */
    const struct attention_watch *watch; /* NULL: none (see engine/heads.h), as of this: */
    const struct head_ablation *without;
};

/* Which of n_rows rows this thread makes. */
void forward_rows(const struct forward *f, int n_rows, int thread, int *begin, int *end);

/* What a product takes of row r of work->x, [d_model]: its norm, or, where norms stand after the
 * residuals, the row as it is. */
void forward_input_row(const struct forward *f, const struct norm *norm, int r, float *out);

/* The same of the thread's rows of the batch [n_rows, d_model]: work->x itself where norms stand
 * after the residuals. */
const float *forward_input(const struct forward *f, const struct norm *norm, int thread);

/* Ends a residual, which is complete on this thread: threads meet, and where norms stand after the
 * residuals work->x becomes its norm, complete on return. `sums` [n_rows, d_model] (NULL: not
 * wanted) gets the thread's rows of work->x before that. */
void forward_end_residual(const struct forward *f, const struct norm *norm, float *sums,
                          int thread);

/* y = epilogue(w x): n_rows rows of x [n_rows, w->n_in], of which this thread's are made, quantised
 * before if w is, ready for the kernel; no row is computed yet. Threads meet if rows are shared. */
struct matmul forward_product(const struct forward *f, const struct matrix *w, const float *x,
                              int n_rows, float *y, enum epilogue epilogue, int thread);

/* y = activation(gate x) * (up x), of this thread's share of the panels; both [n_out, n_in]. */
void forward_gate(const struct forward *f, const struct matrix *gate, const struct matrix *up,
                  const float *x, int n_rows, float *y, enum epilogue activation, int thread);

/* What becomes of a head's finished result [value_dim]: itself, or what stands for a head that is
 * left out. */
void forward_end_head(const struct forward *f, int layer, int head, float *result);

/* This thread's share of the panels of a product y [n_rows, w->n_out]. */
void forward_multiply(const struct forward *f, const struct matrix *w, const float *x, int n_rows,
                      float *y, enum epilogue epilogue, int thread);

#endif
