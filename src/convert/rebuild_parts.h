/*
 * rebuild_parts - what the parts of rebuild share.
 *
 * Variables are the rows of Q, K and V, then those of the output matrix (which are its inputs),
 * and last its bias. A row has d numbers and, but for the output matrix, its bias.
 */
#ifndef DECODE_CONVERT_REBUILD_PARTS_H
#define DECODE_CONVERT_REBUILD_PARTS_H

#include "convert/calibrate.h"

/* A head's rows of Q, K and V together, scaled by root^-T. */
struct rebuilt_head {
    int first, dim;
    double *root; /* [dim, dim] lower triangular */
};

struct convert_rebuild {
    struct converter *c;
    int qkv_dim, heads_dim, d;
    int n_windows, n_batch; /* that are used; in a batch, at most */
    bool has_biases, has_out_bias;
    bool patterns;              /* vary, too */
    float *x, *y;               /* [rows, d] white inputs and targets */
    double *mean, *root;        /* input = root x + mean: [d], [d, d] */
    struct rebuilt_head *heads; /* [n_heads + 2 groups] */
    double *out_root;           /* [heads_dim, heads_dim] of the output matrix */
    /* The weights, in floats: W^T [d, qkv_dim], bias, O [heads_dim, d], O^T, bias. */
    float *wt, *bias, *o, *ot, *bo;
    /* A batch's: [rows, qkv_dim], the same, [rows, heads_dim], the same, [rows, d]. */
    float *qkv, *dqkv, *results, *dresults, *rest;
    float *softmax;   /* [windows, n_heads, 2, padded length] */
    double *row_loss; /* [rows] */
    float *part;      /* [the larger of qkv_dim and heads_dim, d] */
    float *part_bias; /* the same [..] */
    float *scratch;   /* [threads, scratch_floats] */
    size_t scratch_floats;
    /* Variables, where they start, and their gradient: all of them. */
    double *theta, *start, *gradient, *lbfgs;
    /* Of an evaluation. */
    size_t first; /* of the variables that are varied */
    double loss, energy;
    int first_window, batch_windows;
    bool stopped;
};

static inline size_t rebuild_variables(const struct convert_rebuild *r)
{
    return (size_t)r->qkv_dim * ((size_t)r->d + 1) + ((size_t)r->heads_dim + 1) * (size_t)r->d;
}

/* Heads of Q, K and V together. */
static inline int rebuild_heads(const struct converter *c)
{
    return c->n_heads + 2 * c->n_groups;
}

/* y [n, columns] = x [n, inner] b [inner, columns] + bias, rows close together. */
void rebuild_multiply(const struct convert_rebuild *r, float *y, const float *x, const float *b,
                      const float *bias, int n, int inner, int columns);

/* The loss and the gradient by the weights in floats, over all windows; false if that was stopped.
 */
bool rebuild_pass(struct convert_rebuild *r);

/* rows [qkv_dim, d + 1] of each head = root^-T rows, or, of a gradient, root^-1 rows. */
void rebuild_scale(const struct convert_rebuild *r, double *rows, bool gradient);

/* The windows' inputs and targets; white inputs, metrics and variables from `to`. False if
 * attention adds nothing. */
bool rebuild_begin(struct convert_rebuild *r);
/* `to` from the variables. */
void rebuild_end(struct convert_rebuild *r);
/* Whether a window is looked at. */
bool rebuild_uses(const struct converter *c, int w, bool patterns);
/* Every one of so many windows is, where there are many. */
int rebuild_sparse(bool patterns);

#endif
