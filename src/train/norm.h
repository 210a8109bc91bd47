/*
 * norm - the norms of a training step, forwards and backwards.
 */
#ifndef DECODE_TRAIN_NORM_H
#define DECODE_TRAIN_NORM_H

#include "train/pass.h"

/* out [n_rows, d] = norm(x [n_rows, d]). */
void backprop_norm(const struct backprop *b, const struct param_pair *norm, const float *x,
                   float *out, int n_rows);

/* In the rows r, dx = residual + the gradient by the norm's input x, from b->dnorm; fills in
 * b->stats. All are whole buffers [rows, d]; dx may be residual. */
void backprop_norm_backward(const struct backprop *b, const struct param_pair *norm, const float *x,
                            const float *residual, float *dx, struct rows r);

/* This thread's share of a norm's gradient from all rows of b->dnorm, its input x and b->stats. */
void backprop_norm_sums(const struct pass *p, const struct param_pair *gradient, const float *x,
                        int thread);

#endif
