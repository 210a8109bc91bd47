/*
 * private - what a conversion works with, one block at a time, in double.
 *
 * Attention is two products: a head's scores are those of its queries and keys (the QK circuit of
 * Elhage et al. 2021), and what it adds to the residual stream is that of its values and its rows
 * of the output matrix (the OV circuit). In each, one factor is cached, K or V, and one is the
 * head's own, Q or O. A conversion replaces the cached factors x_h of a group's heads by one,
 * sum_h map_cached_h x_h, and each head's own y_h by map_own_h y_h.
 *
 * Memory comes from one arena: every X_take is called twice, first to count and then to take. While
 * it counts there is not even the struct that is to hold the pointers: then they go to a local one
 * called `counted`.
 */
#pragma once

#include "compute/grad_kernels.h"
#include "compute/linalg.h"
#include "convert/spec.h"
#include "engine/session.h"
#include "model/pack.h"

/* The matrices of a block that a conversion may change. */
enum convert_weight {
    WEIGHT_Q,
    WEIGHT_K,
    WEIGHT_V,
    WEIGHT_O,
    WEIGHT_UP, /* the feed-forward part, as all from here on */
    WEIGHT_GATE,
    WEIGHT_DOWN,
    CONVERT_WEIGHTS
};

/* Rows are outputs of a product with the block's input, but of O and down, which are stored
 * transposed, its inputs: row h * value_dim + i of O is what element i of head h adds to the
 * residual stream. */
struct convert_matrix {
    double *w;    /* [rows, d]; NULL where there is none */
    double *bias; /* [n_bias]; zero where there is none */
    size_t rows;
    size_t n_bias; /* d of O and down, else rows */
};

union convert_weights {
    struct {
        struct convert_matrix q, k, v, o, up, gate, down;
    };
    struct convert_matrix at[CONVERT_WEIGHTS];
};

/* The block in work. Before the first one its sizes are the largest of any block. */
struct convert_block {
    int index, end; /* the layers from `index` on up to `end` use it */
    size_t n_heads;
    size_t n_kv_heads, n_groups;    /* of the checkpoint and of the result */
    size_t group;                   /* heads that share a K/V head in the result */
    union convert_weights from, to; /* the feed-forward part is in `to`, if it is refitted */
    int *order;                     /* [n_heads] heads in their new order, group by group */
    int *group_of;                  /* [n_heads] the new group of each old head */
    struct block loaded;            /* as a model loads what is stored of `to` */
};

/* One of the two products of attention. Moments are of the checkpoint, maps of the conversion. */
struct convert_circuit {
    /* Of the two weights that it multiplies the one that each query head has for itself, Q or O,
     * and the one whose product is in the cache, K or V. */
    enum convert_weight own, cached;
    size_t dim;           /* elements of a head's factors */
    size_t width;         /* of all heads' own: n_heads * dim */
    size_t n_rotary;      /* the first elements of a head: pairs that their position rotates, which
                             a map may only rotate and scale; it may mix the others */
    bool centred;         /* the cached factors' means are made good for, or do not matter */
    const double *second; /* [d, d] moments of the input that weigh cached factors */
    double *mean;         /* [kv_heads * dim] of the cached factors, biases included */
    double *gram;         /* [kv_heads * dim, the same] second moments of the cached factors */
    double *metric;       /* [n_heads, dim, dim] second moments of the heads' own */
    double *root;         /* [n_heads, dim, dim] metric = root root^T, lower triangular */
    double *white;        /* [width, width] root_g^T gram[g, h] root_h: eigenvalues of this are
                             what a shared head keeps of the scores or outputs */
    double *map_cached, *map_own; /* [n_heads, dim, dim] */
    double *new_mean;             /* [groups * dim] of the shared factors */
};

union convert_circuits {
    struct {
        struct convert_circuit qk, ov;
    };
    struct convert_circuit at[2];
};

/* The text's windows, the residual streams there, and moments of what the block takes of them. */
struct convert_calibration {
    size_t window; /* tokens */
    int n_windows; /* the last one may have fewer */
    /* [n_tokens, d] the checkpoint's residual stream before the layer, behind it from
     * convert_calibrate on; the checkpoint's after attention; the converted model's before it. */
    float *original, *middle, *converted;
    struct probe *probe, *probe_converted; /* which run a layer of either */
    struct convert_moments *sums;          /* of calibrate.c */
    /* Moments of the input of Q, K and V; assumed, where there is no text. */
    double *key_moments;   /* [d, d] second ones, centred window by window */
    double *value_moments; /* [d, d] the covariance */
    double *input_mean;    /* [d] */
};

/* Memory that any step may use, and whose contents no step leaves to another but where its header
 * says so. */
struct convert_scratch {
    double *square, *square2;    /* [widest, d] */
    double *blocks;              /* [5, dim, dim] */
    float *rows, *rows2, *rows3; /* [window, widest], [window, d], the same: with text only */
    double *x;                   /* [window, widest + 1] */
    double *x_sum, *y_sum;       /* [widest], [d] */
    float *float_product;        /* [widest, widest] of convert_add_gram */
};

struct converter {
    const struct convert_spec *spec;
    struct pool *pool; /* spec's */
    int n_threads;
    const struct kernels *kernels; /* with text, as grad */
    const struct grad_kernels *grad;
    const struct model *model;
    struct config config;    /* of the checkpoint */
    struct config converted; /* of the result */
    size_t d;                /* d_model */
    size_t widest;           /* of d, the circuits' widths and, where it is refitted, d_ff */
    struct arena arena;
    struct convert *out; /* owns the new tensors; NULL: none */
    void *arg;           /* of what convert_work runs */
    uint64_t done, all;  /* windows, for spec->progress */
    struct convert_block block;
    union convert_circuits circuits;
    struct convert_calibration calib;
    struct convert_scratch scratch;
    /* What one file keeps to itself; NULL where it has nothing to do. */
    struct convert_tensors *tensors;
    struct convert_loading *loading;
    struct convert_groups *groups;
    struct convert_divergence *divergence;
    struct convert_refitting *refitting;
    struct convert_rebuild *rebuild;
};
