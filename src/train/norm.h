/*
 * norm - the norms of a training step, forwards and backwards.
 *
 * Each stands at a point of the residual stream (see train/activations.h): what a branch reads is
 * the norm of its point, or, at an embedding that has none, the stream itself. Where norms stand
 * after the residuals, that is also what the branch is added to.
 */
#ifndef DECODE_TRAIN_NORM_H
#define DECODE_TRAIN_NORM_H

#include "train/pass.h"

/* out [r, d] = norm of the stream's rows r. */
void backprop_norm(const struct pass *p, int point, struct rows r, float *out);

/* In the rows r, dx = around + the gradient of the stream that goes through the norm, from
 * b->dnorm; fills in b->stats. All are whole buffers [rows, d]; around may be NULL: zero. */
void backprop_norm_backward(const struct pass *p, int point, const float *around, float *dx,
                            struct rows r);

/* This thread's share of a norm's gradient from all rows of b->dnorm and b->stats. */
void backprop_norm_sums(const struct pass *p, int point, int thread);

#endif
