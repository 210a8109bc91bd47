/*
 * private - what the converter's files share.
 *
 * One layer is in work at a time, in double. K with its queries and V with its rows of the output
 * matrix are mirror images: a *side* is a shared thing of which each head has a copy (K or V), and
 * a partner that meets it (Q or O). A conversion of a side replaces the copies x_h of a group by
 * one, sum_h in_h x_h, and each head's partner y_h by out_h y_h.
 */
#ifndef DECODE_CONVERT_PRIVATE_H
#define DECODE_CONVERT_PRIVATE_H

#include "convert/convert.h"
#include "model/model.h"

struct probe;

/* Rows are outputs of a product with the normed input, but those of `o` are its inputs: row
 * h * dim + i is what element i of head h adds to the residual stream. So both partners have
 * dim rows [d] a head. */
struct convert_weights {
    double *q, *k, *v, *o;     /* [d, d], [kv_heads * dim, d] twice, [d, d] */
    double *bq, *bk, *bv, *bo; /* zero where the checkpoint has none */
};

/* Of the normed input x. */
struct convert_moments {
    double *second; /* [d, d] E x x^T */
    double *keys;   /* [d, d] the same, centred window by window: constants of a row */
    double *values; /* [d, d] the covariance */
    double *mean;   /* [d] */
};

struct convert_side {
    /* Of the checkpoint. */
    double *gram;   /* [kv_dim, kv_dim] centred second moments of the copies */
    double *metric; /* [n_heads, dim, dim] second moments of the partners */
    double *root;   /* [n_heads, dim, dim] metric = root root^T, lower triangular */
    double *white;  /* [d, d] root_g^T gram[g, h] root_h */
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

struct converter {
    const struct convert_spec *spec;
    struct config config; /* of the checkpoint */
    int d, dim, n_heads;
    int n_units;  /* the checkpoint's K/V heads */
    int n_groups; /* the new K/V heads */
    int group;    /* heads a group */
    struct model *model;
    struct arena arena;
    struct convert_weights from, to;
    struct convert_moments moments;
    struct convert_side keys, values;
    int *order;                  /* [n_heads] heads in their new order, group by group */
    int *group_of;               /* [n_heads] */
    double *square, *square2;    /* [d, d] scratch */
    double *blocks;              /* [CONVERT_BLOCKS, dim, dim] scratch */
    struct convert_eigen *eigen; /* [threads] */
    bool *diverged;              /* [threads] */
    /* Grouping. */
    double *costs; /* [convert_group_costs] */
    int *sets;     /* [convert_group_costs, group] the sets of heads that the costs are of */
    struct convert_calibration *calibration; /* NULL without text */
    int windows_done, windows_all;
};

/* Two passes over all that is allocated: the first, with arena.base NULL, adds to the plan. */
struct convert_carver {
    struct mem_plan plan;
    struct arena *arena;
};
void *convert_carve(struct convert_carver *c, uint64_t count, uint64_t size);

/* c [m, n] = a [m, k] b [k, n], and = a [m, k] b [n, k]^T through `scratch` [k, n], on all
 * threads. */
void convert_multiply(struct pool *pool, double *c, const double *a, const double *b, int m, int k,
                      int n);
void convert_multiply_transposed(struct pool *pool, double *c, const double *a, const double *b,
                                 int m, int k, int n, double *scratch);
/* c [d, d] += a^T b for a and b [n, d]. */
void convert_add_outer(struct pool *pool, double *c, const double *a, const double *b, int n,
                       int d);

/* --- convert_file.c: tensors of the checkpoint to double and back ---------------------------- */

void convert_load(struct converter *c, int layer);

/* The new tensors of all layers, as bytes. */
struct convert_tensor {
    struct gguf_tensor tensor; /* its name points into `name` */
    char name[64];
    unsigned char *bytes;
};
struct convert_tensors {
    struct convert_tensor qkv, qkv_bias, out, out_bias;
};
void convert_carve_tensors(struct converter *c, struct convert_carver *carver,
                           struct convert_tensors *tensors);
/* Rounds `to`, whose heads are in their new order, to the tensors' types. */
enum status convert_store_qkv(struct converter *c, int layer, struct convert_tensors *t,
                              struct err *e);
enum status convert_store_out(struct converter *c, int layer, struct convert_tensors *t,
                              struct err *e);
enum status convert_write(const struct converter *c, const struct convert_tensors *tensors,
                          struct gguf_writer **out, struct err *e);

/* --- convert_fit.c: the conversion of one side ----------------------------------------------- */

/* gram, metric, root and white of both sides, from weights and moments. */
void convert_measure(struct converter *c);
/* in and out of both sides; the heads' groups are known. False if an eigenproblem diverged. */
bool convert_map(struct converter *c);
/* `to` from the maps, heads still in their old order. */
void convert_apply(struct converter *c, int layer);
/* Share of the squared error of score or output that remains; before a refit. */
double convert_score_loss(struct converter *c);
double convert_output_loss(struct converter *c);
/* `to`'s heads into their new order. */
void convert_permute(struct converter *c);
/* What fit cannot keep of the group's squared error, both sides as shares of the layer's, added. */
double convert_group_cost(const struct converter *c, const int *heads, int n,
                          struct convert_eigen *scratch, bool *diverged);

/* --- convert_group.c ------------------------------------------------------------------------- */

/* Sets of heads whose costs are compared. */
size_t convert_group_costs(int n_heads, int group);
/* Fills in order and group_of. False if an eigenproblem diverged. */
bool convert_group(struct converter *c);

/* --- convert_calibrate.c --------------------------------------------------------------------- */

struct convert_calibration {
    struct block block; /* the layer in work, converted */
    void *qkv_panels, *out_panels;
    float *qkv_bias, *out_bias;
    struct probe *probe, *probe2; /* of the checkpoint, of the conversion */
    int window;                   /* tokens */
    float *stream;                /* [n_tokens, d] the residual stream before the layer */
    float *stream2;               /* the converted model's */
    float *middle;                /* the checkpoint's, after attention */
    float *rows, *rows2;          /* [window, d] */
    double *x, *y;                /* [window, d] */
    double *x_sum, *y_sum;        /* [d] */
    double *energy_sum;           /* [d] */
    double energy;                /* of what attention adds, centred */
};
void convert_carve_calibration(struct converter *c, struct convert_carver *carver);
enum status convert_calibration_start(struct converter *c, struct err *e);
void convert_calibration_end(struct converter *c);
/* Runs the checkpoint's layer and gathers the moments. */
enum status convert_calibrate(struct converter *c, int layer);
/* Refits to.o and to.bo to the converted K, Q and V. */
enum status convert_refit(struct converter *c, int layer, const struct convert_tensors *t);
/* Runs the converted layer; the share of the output's energy that is lost after attention. */
enum status convert_advance(struct converter *c, int layer, const struct convert_tensors *t,
                            double *lost);
/* Moments that layer norm alone allows. */
void convert_assume(struct converter *c, int layer);

#endif
