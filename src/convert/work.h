/*
 * work - what a conversion works with, one layer at a time, in double.
 *
 * Attention is two products: a head's scores are those of its queries and keys (the QK circuit of
 * Elhage et al. 2021), and what it adds to the residual stream is that of its rows of the output
 * matrix and the values (the OV circuit). In each, one factor is cached, K or V, and may be shared,
 * and one is the head's own, Q or O. A conversion replaces the cached factors x_h of a group's
 * heads by one, sum_h in_h x_h, and each head's own y_h by out_h y_h.
 */
#ifndef DECODE_CONVERT_WORK_H
#define DECODE_CONVERT_WORK_H

#include "base/mem.h"
#include "convert/spec.h"
#include "model/model.h"

/* Rows are outputs of a product with the normed input, but those of `o` are its inputs: row
 * h * dim + i is what element i of head h adds to the residual stream. So both of a head's own
 * factors have dim rows [d]. */
struct convert_weights {
    double *q, *k, *v, *o;     /* [q_dim, d], [kv_dim, d] twice, [q_dim, d] */
    double *bq, *bk, *bv, *bo; /* [q_dim], [kv_dim] twice, [d]; zero where there is none */
};

/* Of the normed input x. */
struct convert_moments {
    double *second; /* [d, d] E x x^T; room for [q_dim, q_dim] */
    double *keys;   /* [d, d] the same, centred window by window; room for [q_dim, d] */
    double *values; /* [d, d] the covariance */
    double *mean;   /* [d] */
};

struct convert_circuit {
    /* Of the checkpoint. */
    double *gram;   /* [kv_dim, kv_dim] centred second moments of the cached factors */
    double *metric; /* [n_heads, dim, dim] second moments of the heads' own */
    double *root;   /* [n_heads, dim, dim] metric = root root^T, lower triangular */
    double *white;  /* [q_dim, q_dim] root_g^T gram[g, h] root_h */
    /* Of the conversion. */
    double *in, *out; /* [n_heads, dim, dim] */
};

#define CONVERT_BLOCKS 5

/* A thread's scratch for one eigenproblem of a group. */
struct convert_eigen {
    double *matrix; /* [n, n], n = heads a group * dim */
    double *values; /* [n] */
    double *vectors;
    double *scratch;
};

struct convert_calibration;
struct convert_tensors;

struct converter {
    const struct convert_spec *spec;
    struct config config;    /* of the checkpoint */
    struct config converted; /* of the result */
    int d, dim, n_heads, q_dim;
    int n_kv_heads; /* the checkpoint's, of the layer in work; before, the most of any layer */
    int n_groups;   /* the new K/V heads */
    int group;      /* heads a group */
    struct model *model;
    struct arena arena;
    struct convert_weights from, to;
    struct convert_moments moments;
    struct convert_circuit qk, ov;
    int *order;                  /* [n_heads] heads in their new order, group by group */
    int *group_of;               /* [n_heads] */
    double *square, *square2;    /* [q_dim, d] scratch */
    double *blocks;              /* [CONVERT_BLOCKS, dim, dim] scratch */
    struct convert_eigen *eigen; /* [threads] */
    bool *diverged;              /* [threads] */
    /* Grouping; NULL without. */
    double *costs;                           /* of sets of heads */
    int *sets;                               /* [the same, heads] the sets that the costs are of */
    struct convert_calibration *calibration; /* NULL without text */
    int windows_done, windows_all;
    struct convert_tensors *tensors; /* [n_layers] the result, in its own arena */
};

/* STATUS_USAGE or STATUS_BAD_FILE if the specification cannot be carried out. */
enum status convert_work_describe(struct converter *c, const struct convert_spec *spec,
                                  struct err *e);

/* Takes all that every conversion needs, or counts it. */
void convert_work_take(struct converter *c, struct arena *arena);

/* Whether an eigenproblem diverged, on any thread. */
bool convert_any_diverged(const struct converter *c);

#endif
