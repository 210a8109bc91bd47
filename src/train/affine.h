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

/* The same of any matrix w [n_out, n_in]. */
void backprop_pack_matrix(const struct pass *p, const float *w, int n_out, int n_in, bool backward,
                          float *panels, int thread);

/* y [n_rows, n_out] = start + x [n_rows, n_in] * panels + bias. */
struct rows_product {
    int n_rows, n_in, n_out;
    const float *panels;       /* as backprop_pack makes them */
    const float *bias, *start; /* [n_out], and as y; NULL: zero. start may be y */
    const float *x;
    float *y;
    size_t x_stride, y_stride; /* floats between rows; 0: n_in, n_out */
};
void backprop_multiply(const struct backprop *b, const struct rows_product *m);

/* out[i] = the sum over n_rows rows, `stride` floats apart, of dy[i] or, with stats, of a norm's
 * dy[i] * (x[i] - stats[0]) * stats[1] (see grad_kernels); `add` adds to what is there. */
struct row_sums {
    float *out;
    const float *dy, *x, *stats;
    size_t stride;
    int n_rows, n;
    bool add;
};
void backprop_row_sums(const struct backprop *b, const struct row_sums *s);

/* dW = dy^T x and, where there is a bias, db = the sum of dy, over n_rows rows of dy [n_rows,
 * n_out] and x [n_rows, n_in]; `add` adds to what is there. */
struct weight_sums {
    const struct param_pair *gradient;
    const float *dy, *x;
    size_t dy_stride, x_stride; /* floats between rows; 0: n_out, n_in */
    int n_rows, n_out, n_in;
    bool add;
};

/* This thread's share: some rows of dW. */
void backprop_weight_sums(const struct backprop *b, const struct weight_sums *s, int thread);

#endif
