/*
 * affine - y = x W^T + b over the rows of a batch, and the gradients of W and b.
 */
#ifndef DECODE_TRAIN_AFFINE_H
#define DECODE_TRAIN_AFFINE_H

#include "train/pass.h"

/* This thread's share of a role's weight [n_out, n_in], of block l, as panels for y = x W^T, or
 * `backward` for dx = dy W. */
void backprop_pack(const struct pass *p, enum tensor_role role, int l, bool backward, float *panels,
                   int thread);

/* y [n_rows, n_out] = start + x [n_rows, n_in] * panels + bias; start and bias may be NULL. */
void backprop_multiply(const struct backprop *b, const float *panels, const float *bias,
                       const float *x, int n_rows, int n_in, const float *start, float *y,
                       int n_out);

/* dW = dy^T x and, where there is a bias, db = the sum of dy, over n_rows rows of dy [n_rows,
 * n_out] and x [n_rows, n_in]; `add` adds to what is there. */
struct weight_sums {
    const struct param_pair *gradient;
    const float *dy, *x;
    int n_rows, n_out, n_in;
    bool add;
};

/* This thread's share: some rows of dW. */
void backprop_weight_sums(const struct backprop *b, const struct weight_sums *s, int thread);

#endif
