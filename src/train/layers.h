/*
 * layers - what a block is made of but for attention, forwards and backwards: affine maps, norms
 * and dropout.
 *
 * Functions that take a thread's number do that thread's share; all threads of the pool call them,
 * and the caller places the barriers. The others work on the rows that they are given; each thread
 * gives its own. None allocates or fails.
 */
#pragma once

#include "train/backprop_pass.h"

/* Packs this thread's share of a role's weight [n_out, n_in], of block l, into panels for
 * y = x W^T, or, if `backward`, for dx = dy W. */
void backprop_pack(const struct pass *p, enum tensor_role role, int l, bool backward, int thread);

/* y = start + x * panels + bias, over the rows of x. */
struct affine {
    const float *panels; /* as backprop_pack makes them */
    const float *bias;   /* [y.n]; NULL: zero */
    const float *start;  /* rows as y's, and may be y; NULL: zero */
};
void backprop_multiply(const struct backprop *b, struct affine map, struct matrix_view x,
                       struct matrix_view y);

/* Adds to this thread's share, some rows of dW: dW [dy.n, x.n] += dy^T x and, where there is a
 * bias, db [dy.n] += the sum of dy's rows. Nothing where there is no dW: it is not trained. */
void backprop_weight_sums(const struct backprop *b, struct param_pair gradient,
                          struct matrix_view dy, struct matrix_view x, int thread);

/* A norm of rows: x [rows, d], its parameters, of which each may be NULL, and their gradients,
 * where there are such. */
struct norm_use {
    struct matrix_view x;
    bool is_norm; /* else x is read as it is */
    const struct param_pair *w;
    struct param_pair *gradient; /* NULL: no gradient is asked for */
};

/* The norm that a role is of block l, or (l -1) outside of the blocks, where it reads x. A model
 * without such a norm reads x as it is. */
struct norm_use backprop_norm_of(const struct pass *p, enum tensor_role role, int l,
                                 struct matrix_view x);

/* What the output matrix reads: the norm of the stream behind the last block. */
struct norm_use backprop_last_norm(const struct pass *p);

/* out [r, d] = the norm of the rows r. */
void backprop_norm(const struct pass *p, const struct norm_use *n, struct row_range r, float *out);

/* In the rows r, dx = around (without x: zero) + the gradient through the norm, from dy; fills in
 * stats [rows, 2]. */
void backprop_norm_backward(const struct pass *p, const struct norm_use *n, struct matrix_view dy,
                            struct matrix_view stats, struct matrix_view around,
                            struct matrix_view dx, struct row_range r);

/* Adds this thread's share of a norm's gradient from all rows of dy and stats. */
void backprop_norm_sums(const struct pass *p, const struct norm_use *n, struct matrix_view dy,
                        struct matrix_view stats, int thread);

/* x [n] = start [n] (NULL: zero) + x without what is left out. The n elements are the site's from
 * number `first` on, and x and start point to the first of them. */
void dropout_apply(const struct dropout *d, int site, float *x, const float *start, uint64_t first,
                   uint64_t n);

/* The same for the rows r of the site's [rows, d], with the batch's dropout; x and start point to
 * the first of these rows. */
void backprop_drop(const struct pass *p, int site, float *x, const float *start,
                   struct row_range r);
