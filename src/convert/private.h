/*
 * private - what a conversion works with, one block at a time, in double.
 *
 * Attention is two products: a head's scores are those of its queries and keys (the QK circuit of
 * Elhage et al. 2021), and what it adds to the residual stream is that of its rows of the output
 * matrix and the values (the OV circuit). In each, one factor is cached, K or V, and one is the
 * head's own, Q or O. A conversion replaces the cached factors x_h of a group's heads by one,
 * sum_h in_h x_h, and each head's own y_h by out_h y_h.
 *
 * With text, the residual streams of all windows are stored, so that each layer runs once as it was
 * and then converted: for each of its refits, and for the layers behind it. Layers that share a
 * block run as they were each time, as the stream after attention is stored for one layer only.
 */
#pragma once

#include "compute/grad_kernels.h"
#include "compute/linalg.h"
#include "convert/convert.h"
#include "engine/session.h"
#include "model/pack.h"

/* --- the block in work ----------------------------------------------------------------------- */

enum convert_part {
    PART_Q,
    PART_K,
    PART_V,
    PART_O,
    PART_UP, /* the feed-forward part, as all from here on */
    PART_GATE,
    PART_DOWN,
    CONVERT_PARTS
};

/* Rows are outputs of a product with the block's input, but of O and down inputs: row
 * h * value_dim + i of O is what element i of head h adds to the residual stream. */
struct convert_matrix {
    double *w;    /* [rows, d]; NULL where there is none */
    double *bias; /* [n_bias]; zero where there is none */
    size_t rows;
    size_t n_bias; /* d of O and down, else rows */
};

static inline bool convert_is_turned(enum convert_part part)
{
    return part == PART_O || part == PART_DOWN;
}

union convert_weights {
    struct {
        struct convert_matrix q, k, v, o, up, gate, down;
    };
    struct convert_matrix at[CONVERT_PARTS];
};

struct convert_circuit {
    enum convert_part own, cached;
    size_t dim;      /* elements of a head's factors */
    size_t width;    /* of all heads' own */
    size_t n_turned; /* the first of a head: pairs turned by their position, which a map may only
                        turn and scale; it may mix the others */
    bool centred;    /* the cached factors' means are made good for, or do not matter */
    const double *second; /* [d, d] centred moments of the input that weigh cached factors */
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

/* A thread's scratch for a group's eigenproblem or alignment. */
struct convert_eigen {
    double *matrix; /* [n, n], n = heads a group * dim */
    double *values; /* [n] */
    double *vectors;
    double *scratch;
    bool diverged;
};

/* Least squares over rows that come window by window: of a row's features f [m], and of its targets
 * t [columns]. */
struct convert_sums {
    double *features;      /* [m, m] sum f^T f */
    double *targets;       /* [m, columns] sum f^T t */
    double *f_sum, *t_sum; /* [m], [columns] */
    double n;              /* rows */
};

struct convert_ridge {
    size_t m, columns;
    struct convert_sums sums[2]; /* of windows fitted to, in the memory of moments; of the others */
    double *root;                /* [m, m] scratch */
    double *w, *b, *error;       /* [m, columns], [columns] the solution, and its errors */
};

/* Windows at most over which predictions are compared. */
#define CONVERT_MEASURED 8

/* A new tensor, as bytes. */
struct convert_tensor {
    struct gguf_tensor tensor; /* its name points into `name` */
    struct tensor_name name;
    unsigned char *bytes; /* NULL: there is none of this name */
    bool changed;         /* once stored; else the checkpoint's own stays */
};

/* A block's, by role, weight and bias: Q, K and V are one or three, as in the checkpoint. */
struct convert_tensors {
    struct convert_tensor of[TENSOR_ROLES][2];
};

struct converter {
    const struct convert_spec *spec;
    struct pool *pool; /* spec's */
    int n_threads;
    const struct model *model;
    struct config config;    /* of the checkpoint */
    struct config converted; /* of the result */
    struct arena arena;
    struct convert *out;             /* owns the new tensors; NULL: none */
    struct convert_tensors *tensors; /* [config_blocks] of it */
    struct head_likeness *likeness;  /* [n_layers, n_heads, n_heads] to be filled in, or NULL */
    size_t d, n_heads;               /* the heads of the block in work; before the first the most */
    size_t widest;               /* of d, the circuits' widths and, where it is refitted, d_ff */
    int block, end;              /* in work; the layers from it on up to `end` use it */
    size_t n_kv_heads, n_groups; /* the old and the new; before the first block the most of any */
    size_t group;                /* heads a group, likewise */
    union convert_weights from, to; /* the feed-forward part is in `to`, if it is refitted */
    union convert_weights kept;     /* `to` before a refit; its sizes are those of `to` */
    union convert_weights shared;   /* attention before all of them, if the block is refitted */
    /* Moments of the input of Q, K and V; once heads are mapped, refits have this memory. */
    double *key_moments;   /* [d, d] second ones, centred window by window; room for [widest, d] */
    double *value_moments; /* [d, d] the covariance; room for [widest, widest] */
    double *input_mean;    /* [d] */
    union {
        struct {
            struct convert_circuit qk, ov;
        };
        struct convert_circuit circuits[2];
    };
    int *order;                  /* [n_heads] heads in their new order, group by group */
    int *group_of;               /* [n_heads] */
    double *square, *square2;    /* [widest, d] scratch */
    double *blocks;              /* [5, dim, dim] scratch */
    struct convert_eigen *eigen; /* [threads] */
    /* Grouping; NULL without. */
    double *costs;                    /* of sets of heads */
    int *sets;                        /* [the same, heads] the sets that the costs are of */
    struct convert_placing *placings; /* [2^heads] of so few that all are tried */
    struct convert_budget *budget;    /* whose losses are measured; NULL: none */
    struct convert_rebuild *rebuild;  /* if convert_refits_block */
    /* With text, as all from here on. The block as a model would load what was stored of it. */
    struct block used;
    struct convert_panels {
        void *panels;
        float *bias;
    } panels[TENSOR_ROLES]; /* of roles that may change; of Q, K and V all in ROLE_ATTN_QKV */
    struct attend_bias *score_bias; /* [n_heads] */
    struct pack_scratch pack;
    /* How far a changed residual stream takes the checkpoint's predictions: the Kullback-Leibler
     * divergence from its own, over some windows kept aside. */
    struct session *session; /* of the checkpoint */
    int measured[CONVERT_MEASURED], n_measured;
    size_t step;             /* every step-th token of a window predicts */
    float *logits, *changed; /* [window / step, n_vocab] */
    double *log_sums;        /* [window / step] of logits */
    struct batch_row *batch; /* [window] */
    const struct kernels *kernels;
    const struct grad_kernels *grad;
    struct probe *probe, *probe2; /* of the checkpoint, of the conversion */
    size_t window;                /* tokens */
    int n_windows;                /* the last one may have fewer */
    /* [n_tokens, d] the checkpoint's residual stream before the layer, behind it from
     * convert_calibrate on; the converted model's before it; the checkpoint's after attention. */
    float *stream, *stream2, *middle;
    float *rows, *rows2, *rows3; /* [window, widest], [window, d], the same */
    double *x;                   /* as rows */
    double *x_sum, *y_sum;       /* [widest], [d] */
    float *part;                 /* [widest, widest] scratch of convert_add_outer_floats */
    /* Of what attention adds, centred: by layer of the block. */
    double *energy;
    double *energy_sum;  /* [layers, d] */
    double *lost;        /* by layer of the block, after it was converted */
    struct convert_own { /* the same: sums of squares, errors before what they are errors of */
        double attention[2], first[2], stream[2];
    } * own;
    double n_fitted; /* rows that moments are over, in all layers of the block */
    struct convert_ridge ridge;
    double error[2];    /* squared, as refits judge it: after attention, and at the layer's end */
    uint64_t done, all; /* windows, for spec->progress */
};

/* STATUS_USAGE or STATUS_BAD_FILE if the specification cannot be carried out. */
enum status convert_describe(struct converter *c, const struct convert_spec *spec,
                             struct convert *out, struct err *e);

/* Runs `work` with memory, the checkpoint as a model (c->model, if that is not NULL) and the text's
 * windows, which are let go of; c->out stays. */
enum status convert_work(struct converter *c,
                         enum status (*work)(struct converter *c, struct err *e), struct err *e);

/* Begins the next block: its sizes, and its weights from the file. */
void convert_begin(struct converter *c, int block);

/* The shared heads of a block that is begun and calibrated, and in *lost (may be NULL) what they
 * lose; stored but for the output matrix. */
enum status convert_share(struct converter *c, struct convert_layer *lost, struct err *e);

/* Matrices from an arena, or their count. */
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
    return c->n_groups == c->n_kv_heads;
}

/* Whether more than the output matrix is refitted: of layers with a block of their own. */
static inline bool convert_refits_block(const struct converter *c)
{
    return c->spec->refit >= CONVERT_REFIT_ALL && !c->config.shared;
}

/* Whose K/V head a head of the checkpoint uses. */
static inline size_t convert_kv_head(const struct converter *c, size_t head)
{
    return head / (c->n_heads / c->n_kv_heads);
}

/* A head's [dim, dim] of a circuit's maps or moments. */
static inline double *convert_of_head(const struct convert_circuit *s, double *of_heads,
                                      size_t head)
{
    return of_heads + head * s->dim * s->dim;
}

/* STATUS_FAILED if an eigenproblem diverged on any thread; `advice` ends the message. */
enum status convert_check_eigen(const struct converter *c, const char *advice, struct err *e);

/* --- tensors.c: from the file and back ------------------------------------------------------- */

/* Takes c->tensors, or counts them. */
void convert_tensors_take(struct converter *c);

static inline struct convert_tensor *convert_new(const struct converter *c, enum tensor_role role,
                                                 bool is_bias)
{
    return &c->tensors[c->block].of[role][is_bias];
}

/* `from`, the feed-forward part of `to` if it is refitted, and whether values can be centred. */
void convert_load(struct converter *c);

/* The parts from `first` up to `end` of one set of weights to another. */
void convert_copy(const struct converter *c, const union convert_weights *to,
                  const union convert_weights *from, enum convert_part first,
                  enum convert_part end);

/* Rounds these parts of `to` to the tensors' types; a bias without a tensor is dropped.
 * STATUS_FAILED if a number is not finite, or is not any more. */
enum status convert_store(struct converter *c, enum convert_part first, enum convert_part end,
                          struct err *e);
/* What else follows the heads' order. */
void convert_store_order(struct converter *c);

/* The memory of c->used, taken or counted; and what is stored, loaded into it. */
void convert_used_take(struct converter *c);
void convert_use(struct converter *c);

/* c->out's writer, and its counts of elements. */
enum status convert_write(struct converter *c, struct err *e);

/* --- circuits.c: what a block's products are, and what is lost of them ------------------------ */

/* Both circuits, from weights and moments. */
void convert_measure(struct converter *c);

/* Of heads g and h: [dim, dim], rows kv_heads * dim apart. */
const double *convert_gram(const struct converter *c, const struct convert_circuit *s, size_t g,
                           size_t h);

/* `to` from the maps, heads in their new order. */
void convert_apply(struct converter *c);

/* The same of a block that keeps its K/V heads. */
void convert_keep(struct converter *c);

/* The share of the squared scores or outputs that is lost; before a refit. */
double convert_loss(struct converter *c, struct convert_circuit *s);

/* --- groups.c: which heads share, and by which maps ------------------------------------------- */

void convert_group_take(struct converter *c);

/* Fills in order, group_of, and in and out of both circuits, after convert_measure. STATUS_FAILED
 * if an eigenproblem diverged. */
enum status convert_group(struct converter *c, struct err *e);

/* The share of these heads' energy in a circuit that fit keeps with one head in their place. */
double convert_kept(const struct convert_circuit *s, const int *heads, size_t n,
                    struct convert_eigen *scratch);

/* --- budget.c: K/V heads by layer for so many bytes ------------------------------------------- */

struct convert_budget {
    struct config config;          /* of the checkpoint */
    struct convert_spec spec;      /* of the conversions that are measured, to `chosen` */
    int equal[CONFIG_MAX_LAYERS];  /* K/V heads, the same in every layer that can have so many, as
                                      many as the bytes allow */
    int chosen[CONFIG_MAX_LAYERS]; /* those that are measured; in the end those that may do better
                                    */
    int all, most;                 /* K/V heads of all layers together, of one, at most */
    double *lost; /* [n_layers, most + 1] divergences by K/V heads; HUGE_VAL: not possible */
};

/* All but what is chosen. STATUS_USAGE if the bytes allow none, or all K/V heads that there are. */
enum status convert_budget_plan(struct convert_budget *b, const struct convert_spec *spec,
                                struct err *e);
/* Fills in `chosen`. STATUS_NO_MEMORY and the failures of convert_work. */
enum status convert_budget_choose(struct convert_budget *b, struct err *e);

/* --- calibrate.c: windows of text ------------------------------------------------------------- */

void convert_calibration_take(struct converter *c);
enum status convert_calibration_start(struct converter *c, struct err *e);

/* Window w of the text, n tokens (fewer in the last), and the rows [n, d] of the streams there. */
struct convert_window {
    int w;
    size_t n;
    bool judged;     /* kept aside */
    float *original; /* the checkpoint's, before the layer; and after attention */
    float *middle;
    float *converted; /* the converted model's */
    float *from;      /* where the converted layer starts: the converted model's, or the
                         checkpoint's where layers share a block */
};
struct convert_window convert_window_at(const struct converter *c, int w);

/* The converted layer over a window, from `from`. */
void convert_run_layer(const struct converter *c, int layer, const struct convert_window *win,
                       struct block_taps taps);

/* So many windows are done; STATUS_INTERRUPTED if that is wanted. */
enum status convert_windows_done(struct converter *c, int n);

/* Runs `visit` for every layer of the block in work over each of these windows. With
 * CONVERT_ORIGINAL, over all, and where layers share a block, the layer runs as it was before: then
 * `visit` leaves c->rows2 alone, from which the stream goes on. STATUS_INTERRUPTED. */
enum convert_windows { CONVERT_ORIGINAL, CONVERT_ALL, CONVERT_KEPT_ASIDE };
typedef void convert_visit(struct converter *c, int layer, const struct convert_window *win);
enum status convert_each_window(struct converter *c, enum convert_windows which,
                                convert_visit *visit);

/* Of floats [n]; the differences stay in c->x. */
double convert_squared_distance(struct converter *c, const float *x, const float *y, size_t n);

/* out [n, d] = x through the norm of this role, if models have one. */
void convert_norm_rows(const struct converter *c, enum tensor_role role, float *out, const float *x,
                       size_t n);

/* Moments of the inputs of the block in work, in all layers that use it: of the text, which goes
 * through the checkpoint's layers here, or, without one, what the norm before it allows. */
enum status convert_calibrate(struct converter *c);

/* Runs the converted layers; c->lost becomes the shares of the output's energy that are lost after
 * attention. STATUS_INTERRUPTED; STATUS_FAILED if these are not finite. */
enum status convert_advance(struct converter *c, struct err *e);

/* Adds to *sum the divergence, in nats a token, of the predictions from a stream [n, d] before
 * `layer` (n_layers: behind all) from those of the stream before, given with `sum` NULL.
 * STATUS_FAILED if logits are not finite. */
enum status convert_distance_add(struct converter *c, int layer, size_t n, const float *stream,
                                 double *sum, struct err *e);

/* --- refit.c --------------------------------------------------------------------------------- */

/* Windows that all of it visits in a layer, at most. */
uint64_t convert_refit_windows(const struct converter *c);

/* `to` is stored; so is it after. */
enum status convert_refit(struct converter *c, struct err *e);

/* rebuild.c: attention of the block in work, fitted to what the checkpoint's added. Its memory; the
 * windows that a run visits, at most; the run, which replaces `to`: values and output matrix, with
 * `patterns` queries and keys, too. STATUS_INTERRUPTED. */
void convert_rebuild_take(struct converter *c);
uint64_t convert_rebuild_windows(const struct converter *c, bool patterns);
enum status convert_rebuild_run(struct converter *c, bool patterns);

/* --- products.c: matrix products and sums in double, on all threads --------------------------- */

/* So many rows of a product: added to p.c, or in its place; or of a p.b [columns, inner] that is
 * transposed, to c->square2. */
void convert_add_product(const struct converter *c, struct linalg_product p, size_t rows);
void convert_multiply(const struct converter *c, struct linalg_product p, size_t rows);
void convert_multiply_transposed(const struct converter *c, struct linalg_product p, size_t rows);

/* sum [m, n] += a [k, m]^T b [k, n] of floats, added up as floats in p.c first, which is many times
 * faster; and a thread's share of its rows, so far apart. */
void convert_add_outer_floats(const struct converter *c, double *sum, struct product p);
void convert_add_turned(const struct converter *c, double *sum, size_t stride, struct product p,
                        int thread);

/* out [m, n] = a [m, k] b [k, n] of floats, rows close together. */
static inline struct product convert_product(float *out, const float *a, const float *b, size_t m,
                                             size_t k, size_t n)
{
    return (struct product){.m = m,
                            .n = n,
                            .k = k,
                            .a = a,
                            .a_row = k,
                            .a_col = 1,
                            .b = b,
                            .b_row = n,
                            .b_panel = KERNEL_LANES,
                            .c = out,
                            .c_row = n};
}

/* out [m, n] = a [k, m]^T b [k, n] likewise. */
static inline struct product convert_product_turned(float *out, const float *a, const float *b,
                                                    size_t m, size_t k, size_t n)
{
    struct product p = convert_product(out, a, b, m, k, n);
    p.a_row = 1;
    p.a_col = m;
    return p;
}

/* m [dim, dim] += scale * a b^T for some rows [dim, n] of each, as dot products. */
struct convert_rows {
    size_t dim, n, stride; /* from row to row */
};
void convert_add_dots(double *m, const double *a, const double *b, struct convert_rows r,
                      double scale);

/* From sums [m, columns] of a^T b over n rows, and the rows' sums a_sum [m] and b_sum [columns], to
 * covariances; where a_sum is NULL, to second moments. */
void convert_finish_sums(double *sums, const double *a_sum, const double *b_sum, double n, size_t m,
                         size_t columns);

/* linalg_cholesky with a ridge relative to the mean of the diagonal, if that is not negative (by
 * rounding). l may be a. */
void convert_root(double *l, const double *a, size_t n, double ridge);

/* sum [d] += the rows of x [n, d]. */
void convert_add_rows(double *sum, const float *x, size_t n, size_t d);

/* out [n] = x - y. */
void convert_subtract(float *out, const float *x, const float *y, size_t n);

/* Begins c->ridge; adds a window's rows f [n, m] and t [n, columns], which are weighed. */
void convert_ridge_begin(struct converter *c, size_t m, size_t columns);
void convert_ridge_add(struct converter *c, float *f, float *t, const struct convert_window *win);

/* Solves t = f w + b (b is 0 if not centred); w is pulled towards `prior` [m, columns] (NULL: the
 * identity), as much as does best on the windows kept aside. Destroys the sums. False, with nothing
 * solved, if the features are constant. */
bool convert_ridge_solve(struct converter *c, const double *prior, bool centred);
