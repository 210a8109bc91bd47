/*
 * state - what a conversion keeps between its stages, one block at a time, in double.
 *
 * Attention is two products: a head's scores are those of its queries and keys (the QK circuit of
 * Elhage et al. 2021), and what it adds to the residual stream is that of its values and its rows
 * of the output matrix (the OV circuit). In each, one factor is cached, K or V, and one is the
 * head's own, Q or O. A conversion replaces the cached factors x_h of a group's heads by one,
 * sum_h map_cached_h x_h, and each head's own y_h by map_own_h y_h.
 *
 * Memory comes from one arena. Every function named _allocate is called twice, first to count the
 * bytes and then to get them; while it counts, all pointers are NULL.
 */
#pragma once

#include "compute/grad_kernels.h"
#include "compute/linalg.h"
#include "convert/spec.h"
#include "engine/session.h"
#include "model/pack.h"

/* --- the block in work ------------------------------------------------------------------------ */

/* The matrices of a block that a conversion changes. */
enum convert_weight { WEIGHT_Q, WEIGHT_K, WEIGHT_V, WEIGHT_O, CONVERT_WEIGHTS };

/* Rows are outputs of a product with the block's input, but those of O, which is stored transposed,
 * its inputs: row h * value_dim + i of O is what element i of head h adds to the residual stream.
 */
struct convert_matrix {
    double *w;    /* [rows, d] */
    double *bias; /* [n_bias]; zero where there is none */
    size_t rows;
    size_t n_bias; /* d of O, else rows */
};

union convert_weights {
    struct {
        struct convert_matrix q, k, v, o;
    };
    struct convert_matrix at[CONVERT_WEIGHTS];
};

/* Before the first block its sizes are the largest of any. */
struct convert_block {
    int index, end; /* the layers from `index` on up to `end` use it */
    size_t n_heads;
    size_t n_kv_heads, n_groups; /* of the checkpoint and of the result */
    size_t group;                /* heads that share a K/V head in the result */
    union convert_weights from, to;
    int *order;          /* [n_heads] heads in their new order, group by group */
    int *group_of;       /* [n_heads] the new group of each old head */
    struct block loaded; /* as a model loads what is stored of `to` */
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

/* --- the calibration text --------------------------------------------------------------------- */

/* The text's windows, the residual streams there, and moments of what the block is given of them.
 */
struct convert_calibration {
    size_t window; /* tokens */
    int n_windows; /* the last one may have fewer */
    /* [n_tokens, d] the checkpoint's residual stream before the layer, behind it from
     * convert_calibrate on; the checkpoint's after attention; the converted model's before it. */
    float *original, *middle, *converted;
    struct session *probe, *probe_converted; /* which run a layer of either */
    /* By layer of the block in work: what attention adds, centred (squares; and [layers, d] its
     * sum), and how much of those squares the converted layer loses. */
    double *energy, *energy_sum, *lost;
    double n_fitted; /* rows that moments are over, in all layers of the block */
    /* Moments of the input of Q, K and V; assumed, where there is no text. */
    double *key_moments;   /* [d, d] second ones, centred window by window */
    double *value_moments; /* [d, d] the covariance */
    double *input_mean;    /* [d] */
};

/* How far a changed stream changes the checkpoint's predictions; divergence.c. */
#define DIVERGENCE_WINDOWS 8 /* at most over which predictions are compared */
struct convert_divergence {
    struct session *session; /* of the checkpoint */
    int windows[DIVERGENCE_WINDOWS], n_windows;
    size_t step;             /* every step-th token of a window predicts */
    float *logits, *changed; /* [window / step, n_vocab] */
    double *log_sums;        /* [window / step] of logits */
    struct batch_row *batch; /* [window] */
};

/* --- grouping and refit ----------------------------------------------------------------------- */

/* A thread's scratch for a group's eigenproblem or alignment. */
struct convert_eigen {
    double *matrix; /* [n, n], n = heads a group * dim */
    double *values; /* [n] */
    double *vectors;
    double *scratch;
    bool diverged;
};

/* The least cost of grouping the heads of a mask, and the set with its first head that has it. */
struct convert_placement {
    double cost;
    int set;
};

struct convert_groups {
    struct convert_eigen *eigen; /* [threads] */
    /* Of `cluster` only: */
    double *costs;                        /* of sets of heads */
    int *sets;                            /* [the same, heads] the sets that the costs are of */
    struct convert_placement *placements; /* [2^heads] of so few that all are tried, else NULL */
};

/* Sums over rows of windows, each of features f [m] and targets t [d]. */
struct convert_sums {
    double *features;      /* [m, m] sum f^T f */
    double *targets;       /* [m, d] sum f^T t */
    double *f_sum, *t_sum; /* [m], [d] */
    double n;              /* rows */
};

/* A regression of what attention adds on the heads' results; refit.c. */
struct convert_refitting {
    double *before, *before_bias; /* the output matrix [m, d] and its bias [d] before the refit */
    struct convert_sums sums[2];  /* of the windows fitted to, and of those held out */
    double *root;                 /* [m, m] scratch */
    double *w;                    /* [m, d] the solution */
    double *error, *trial_error;  /* [d] errors on the windows held out: the solution's, and those
                                     of a ridge that is tried */
    double distance;              /* of the layer on windows held out */
};

/* --- the whole -------------------------------------------------------------------------------- */

/* The block in work as a model loads it; tensors.c. */
struct convert_loading {
    struct convert_panels {
        void *panels;
        float *bias;
    } qkv, output;
    struct attend_bias *score_bias; /* [n_heads] */
    struct pack_scratch pack;
};

/* Memory that any stage may use, and whose contents none leaves to another but where its header
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
    struct model *model;     /* the checkpoint */
    struct config config;    /* of the checkpoint */
    struct config converted; /* of the result */
    size_t d;                /* d_model */
    size_t widest;           /* of d and the circuits' widths */
    struct arena arena;
    struct convert *out;             /* owns the new tensors */
    struct convert_tensors *tensors; /* [config_blocks] in out's arena; tensors.h */
    uint64_t done, all;              /* windows, for spec->callbacks */
    struct convert_block block;
    union convert_circuits circuits;
    struct convert_calibration calib;
    struct convert_divergence divergence;
    struct convert_groups groups;
    struct convert_refitting refitting;
    struct convert_loading loading;
    struct convert_scratch scratch;
};

/* Matrices from the arena, or their count. */
static inline double *convert_doubles(struct converter *c, size_t rows, size_t cols)
{
    return arena_take(&c->arena, rows, (uint64_t)cols * sizeof(double));
}

static inline float *convert_floats(struct converter *c, size_t rows, size_t cols)
{
    return arena_take(&c->arena, rows, (uint64_t)cols * sizeof(float));
}

static inline void convert_zero(double *x, size_t n)
{
    memset(x, 0, n * sizeof *x);
}

/* Whether the block in work has no more K/V heads than wanted, and keeps them as they are. */
static inline bool convert_keeps_heads(const struct converter *c)
{
    return c->block.n_groups == c->block.n_kv_heads;
}

/* The K/V head that a head of the checkpoint uses. */
static inline size_t convert_kv_head(const struct converter *c, size_t head)
{
    return head / (c->block.n_heads / c->block.n_kv_heads);
}

/* A head's [dim, dim] of a circuit's maps or moments. */
static inline double *convert_of_head(const struct convert_circuit *s, double *of_heads,
                                      size_t head)
{
    return of_heads + head * s->dim * s->dim;
}
