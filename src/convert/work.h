/*
 * work - what a conversion works with, one block at a time, in double.
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

/* Rows are outputs of a product with the block's input, but those of `o` are its inputs: row
 * h * value_dim + i is what element i of head h adds to the residual stream. So both of a head's
 * own factors have rows [d]. */
struct convert_weights {
    double *q, *k, *v, *o;     /* [q_dim, d], [k_dim, d], [v_dim, d], [heads_dim, d] */
    double *bq, *bk, *bv, *bo; /* [q_dim], [k_dim], [v_dim], [d]; zero where there is none */
};

/* The feed-forward part, of the same form: rows of `down` are its inputs. */
struct convert_ffn {
    double *up, *gate, *down;    /* [d_ff, d] each; gate NULL where there is none */
    double *bup, *bgate, *bdown; /* [d_ff], [d_ff], [d]; zero where there is none */
};

/* Of the input x of Q, K and V. */
struct convert_moments {
    double *keys;   /* [d, d] second moments, centred window by window; room for [widest, d] */
    double *values; /* [d, d] the covariance; room for [widest, widest] */
    double *mean;   /* [d] */
};

struct convert_circuit {
    int dim;      /* elements of a head's factors */
    int width;    /* of all heads' own */
    int n_turned; /* of a head, the first ones: neighbouring pairs, each turned by its position, so
                     that a map may only turn and scale it; the others may be mixed at will */
    bool centred; /* the cached factors' means are made good for, or do not matter */
    const double *second; /* [d, d] moments of the input, centred, that cached factors are weighed
                             by */
    /* Of the checkpoint. */
    double *mean;   /* [kv_heads * dim] of the cached factors, biases included; if not centred */
    double *gram;   /* [kv_heads * dim, the same] second moments of the cached factors */
    double *metric; /* [n_heads, dim, dim] second moments of the heads' own */
    double *root;   /* [n_heads, dim, dim] metric = root root^T, lower triangular */
    double *white;  /* [width, width] root_g^T gram[g, h] root_h */
    /* Of the conversion. */
    double *in, *out; /* [n_heads, dim, dim] */
    double *new_mean; /* [groups * dim] */
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
struct convert_distance;
struct convert_latent;
struct convert_rebuild;
struct convert_tensors;

struct converter {
    const struct convert_spec *spec;
    struct config config;    /* of the checkpoint */
    struct config converted; /* of the result */
    int d, n_heads;
    int widest; /* of d, the circuits' widths and, where it is refitted, d_ff */
    /* The block in work, and the layers that use it. */
    int block, first, end;
    int n_kv_heads; /* the checkpoint's; before the first block the most of any */
    int n_groups;   /* the new K/V heads, likewise */
    int group;      /* heads a group */
    const struct model *model;
    struct arena arena;
    struct convert_weights from, to;
    struct convert_weights kept;      /* of `to`, before a refit; without refits NULL */
    struct convert_ffn ffn, kept_ffn; /* refitted; see convert_refits_block */
    struct convert_moments moments;
    struct convert_circuit qk, ov;
    int *order;                  /* [n_heads] heads in their new order, group by group */
    int *group_of;               /* [n_heads] */
    double *square, *square2;    /* [widest, d] scratch */
    double *blocks;              /* [CONVERT_BLOCKS, dim, dim] scratch */
    struct convert_eigen *eigen; /* [threads] */
    bool *diverged;              /* [threads] */
    /* Grouping; NULL without. */
    double *costs;                           /* of sets of heads */
    int *sets;                               /* [the same, heads] the sets that the costs are of */
    struct convert_placing *placings;        /* [2^heads] of so few that all are tried */
    struct convert_calibration *calibration; /* NULL without text */
    struct convert_rebuild *rebuild;         /* NULL unless convert_refits_block */
    /* NULL unless convert_is_latent: */
    struct convert_latent *latent;
    struct convert_distance *distance;
    double *lost; /* [layers] of the block's, after it was calibrated and converted */
    uint64_t windows_done, windows_all;
    struct convert_tensors *tensors; /* [config_blocks] the result, in its own arena */
};

/* STATUS_USAGE or STATUS_BAD_FILE if the specification cannot be carried out. */
enum status convert_work_describe(struct converter *c, const struct convert_spec *spec,
                                  struct err *e);

/* Matrices from an arena, or their count. */
static inline double *convert_take_doubles(struct arena *arena, int rows, int cols)
{
    return arena_take(arena, (uint64_t)rows, (uint64_t)cols * sizeof(double));
}

static inline float *convert_take_floats(struct arena *arena, uint64_t rows, int cols)
{
    return arena_take(arena, rows, (uint64_t)cols * sizeof(float));
}

/* Takes all that every conversion needs, or counts it. */
void convert_work_take(struct converter *c, struct arena *arena);

/* All numbers of the block's queries, new K/V heads and output. */
void convert_copy_weights(const struct converter *c, const struct convert_weights *to,
                          const struct convert_weights *from);

/* n numbers; nothing where there are none (NULL). */
void convert_copy_numbers(double *to, const double *from, int rows, int cols);

/* The next block to be worked on. */
void convert_work_begin(struct converter *c, int block);

/* Whether the result has latent caches, in which no K/V heads are shared. */
static inline bool convert_is_latent(const struct converter *c)
{
    return config_is_latent(&c->converted);
}

/* Whether the block in work has no more K/V heads than wanted, and keeps them as they are. */
static inline bool convert_keeps_heads(const struct converter *c)
{
    return c->n_groups == c->n_kv_heads && !config_is_latent(&c->converted);
}

/* Whether more than the output matrix is refitted: of layers with a block of their own. */
static inline bool convert_refits_block(const struct converter *c)
{
    return c->spec->refit >= CONVERT_REFIT_ALL && !c->config.shared;
}

/* Whether windows kept aside also go through a conversion to plain means, to compare with. */
static inline bool convert_has_plain(const struct converter *c)
{
    const struct convert_spec *s = c->spec;
    return s->n_tokens && !s->measures_only && !convert_is_latent(c) &&
           (s->method != CONVERT_MEAN || s->refit || s->cluster);
}

/* Whose K/V head a head of the checkpoint uses. */
static inline int convert_kv_head(const struct converter *c, int head)
{
    return head / (c->n_heads / c->n_kv_heads);
}

/* A head's [dim, dim] of a circuit's maps or moments. */
static inline double *convert_of_head(const struct convert_circuit *s, double *of_heads, int head)
{
    return of_heads + (size_t)head * (size_t)s->dim * (size_t)s->dim;
}

/* Whether an eigenproblem diverged, on any thread. */
bool convert_any_diverged(const struct converter *c);

/* STATUS_FAILED that says so of the block in work; `advice` ends the message. */
enum status convert_diverged(const struct converter *c, const char *advice, struct err *e);

#endif
