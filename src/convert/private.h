/*
 * private - what a conversion keeps between its stages, one block at a time, in double, and the
 * stages, file by file.
 *
 * Attention is two products. A head's scores are the product of its queries and keys (the QK
 * circuit of Elhage et al. 2021); what it adds to the residual stream is the product of its values
 * and its rows of the output matrix (the OV circuit). In each, one factor is cached, K or V, and
 * the other belongs to the head alone, Q or O. A conversion replaces the cached factors x_h of a
 * group's heads by one, sum_h map_cached_h x_h, and each head's own y_h by map_own_h y_h.
 *
 * Memory comes from one arena. Every function named _allocate is called twice, first to count the
 * bytes and then to get them; while it counts, all pointers are NULL.
 */
#pragma once

#include "compute/grad_kernels.h"
#include "compute/linalg.h"
#include "convert/convert.h"
#include "engine/session.h"
#include "model/pack.h"

/* --- the block in work ------------------------------------------------------------------------ */

/* The matrices of a block that a conversion changes. */
enum convert_weight { WEIGHT_Q, WEIGHT_K, WEIGHT_V, WEIGHT_O, CONVERT_WEIGHTS };

/* Row i of Q, K or V gives output i. O is stored transposed: its row h * value_dim + i is what
 * element i of head h adds to the residual stream. */
struct convert_matrix {
    double *w;           /* [rows, d] */
    double *bias;        /* [n_bias]; zeros if the file has none */
    size_t rows, n_bias; /* n_bias: d for O, rows for the others */
};

/* Until the first block begins, sizes are the largest that any block has. */
struct convert_block {
    int index, end; /* layers index to end - 1 use the block */
    size_t n_heads;
    size_t n_kv_heads; /* in the checkpoint */
    size_t n_groups;   /* K/V heads in the result */
    size_t group;      /* query heads of each K/V head of the result */
    struct convert_matrix from[CONVERT_WEIGHTS], to[CONVERT_WEIGHTS];
    int *order;          /* [n_heads] the old heads in their new order, group by group */
    int *group_of;       /* [n_heads] the new group of each old head */
    struct block loaded; /* the stored tensors of `to` as a model loads them */
};

enum { QK, OV, CIRCUITS };

/* One of the two products of attention: moments of the checkpoint, maps of the conversion. */
struct convert_circuit {
    enum convert_weight own;    /* the weight that each query head has for itself: Q or O */
    enum convert_weight cached; /* the weight whose product is in the cache: K or V */
    size_t dim;                 /* elements of a head's factors */
    size_t width;               /* n_heads * dim */
    size_t n_rotary; /* how many first elements of a head are pairs that positions rotate: a map may
                        only rotate and scale each pair; it may mix all other elements */
    bool centred;    /* whether moments leave out the cached factors' means, because these change no
                        score, or the output's bias makes up for them */
    const double *second; /* [d, d] the second moments of the input that the gram takes */
    double *mean;         /* [kv_heads * dim] means of the cached factors, biases included */
    double *gram;         /* [kv_heads * dim, kv_heads * dim] second moments of cached factors */
    double *metric;       /* [n_heads, dim, dim] second moments of the heads' own factors */
    double *root;         /* [n_heads, dim, dim] metric = root root^T, lower triangular */
    double *white;        /* [width, width] root_g^T gram[g, h] root_h; its eigenvalues are what a
                             shared head keeps of the scores or outputs */
    double *map_cached, *map_own; /* [n_heads, dim, dim] */
    double *new_mean;             /* [groups * dim] means of the shared factors */
};

/* --- the calibration text --------------------------------------------------------------------- */

struct convert_calibration {
    size_t window; /* tokens of each window but the last, which may have fewer */
    int n_windows;
    float *original;     /* [n_tokens, d] the checkpoint's stream before the block in work; once
                            convert_calibrate has run, behind it */
    float *middle;       /* [n_tokens, d] the checkpoint's stream after the block's attention */
    float *converted;    /* [n_tokens, d] the converted model's stream before the block */
    struct probe *probe; /* runs a layer of the checkpoint */
    struct probe *probe_converted; /* runs a layer of the converted model */
    /* For each layer that uses the block: */
    double *energy;     /* the sum of squares of what attention adds, without its mean */
    double *energy_sum; /* [layers, d] the sum of what attention adds */
    double *lost;       /* how much of `energy` the converted layer loses */
    double n_fitted;    /* rows that moments are over, in all layers of the block */
    /* Moments of the input of Q, K and V; without a text they are assumed. */
    double *key_moments;   /* [d, d] second moments, centred window by window */
    double *value_moments; /* [d, d] the covariance */
    double *input_mean;    /* [d] */
};

/* Compares the predictions from a changed stream with the checkpoint's. */
#define DIVERGENCE_WINDOWS 8 /* at most so many windows are compared */
struct convert_divergence {
    struct session *session; /* of the checkpoint */
    int windows[DIVERGENCE_WINDOWS], n_windows;
    size_t step;             /* every step-th token of a window predicts */
    float *logits;           /* [window / step, n_vocab] the checkpoint's */
    float *changed;          /* [window / step, n_vocab] from the changed stream */
    double *log_sums;        /* [window / step] log-sum-exp of each row of `logits` */
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

struct convert_groups {
    struct convert_eigen *eigen; /* [threads] */
    /* Only with `cluster`: */
    int *sets;     /* [n sets, heads of a set] candidates for a group */
    double *costs; /* [n sets] the cost of each set */
};

/* Sums over rows. A row has features f [m] and targets t [d]. */
struct convert_sums {
    double *features;      /* [m, m] sum f^T f */
    double *targets;       /* [m, d] sum f^T t */
    double *f_sum, *t_sum; /* [m], [d] */
    double n;              /* rows */
};

/* The regression of what attention adds on the heads' results. */
struct convert_refitting {
    double *before, *before_bias; /* [m, d], [d] the output matrix and its bias before the refit */
    struct convert_sums sums[2];  /* over the windows fitted to, and over those held out */
    double *root;                 /* [m, m] scratch */
    double *w;                    /* [m, d] the solution */
    double *error, *trial_error;  /* [d] its errors on the windows held out; those of a trial */
    double distance;              /* of the layer from the checkpoint's, on windows held out */
};

/* --- the whole -------------------------------------------------------------------------------- */

/* Memory for the block in work as a model loads it. */
struct convert_loading {
    struct convert_panels {
        void *panels;
        float *bias;
    } qkv, output;
    struct attend_bias *score_bias; /* [n_heads] */
};

/* Memory that any stage may use; its contents end with the stage, unless a comment says who reads
 * them. */
struct convert_scratch {
    double *square, *square2; /* [widest, d] */
    double *blocks;           /* [5, dim, dim] */
    float *rows;              /* [window, widest]; like all that follows, only with a text */
    float *rows2, *rows3;     /* [window, d] each */
    double *x;                /* [window, widest + 1] */
    double *x_sum, *y_sum;    /* [widest], [d] */
    float *float_product;     /* [widest, widest] of convert_add_gram */
};

struct converter {
    const struct convert_spec *spec;
    int n_threads;
    const struct kernels *kernels;   /* NULL without a text */
    const struct grad_kernels *grad; /* NULL without a text */
    struct model *model;             /* the checkpoint */
    struct config config;            /* of the checkpoint */
    struct config converted;         /* of the result */
    size_t d;                        /* d_model */
    size_t widest;                   /* the largest of d and the circuits' widths */
    struct arena arena;
    struct convert *out;             /* owns the new tensors */
    struct convert_tensors *tensors; /* [config_blocks] in out's arena */
    uint64_t done, all;              /* windows, for spec->callbacks */
    struct convert_block block;
    struct convert_circuit circuits[CIRCUITS];
    struct convert_calibration calib;
    struct convert_divergence divergence;
    struct convert_groups groups;
    struct convert_refitting refitting;
    struct convert_loading loading;
    struct convert_scratch scratch;
};

/* Matrices from the arena; NULL while it counts. */
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

/* Whether the block in work keeps its K/V heads. */
static inline bool convert_keeps_heads(const struct converter *c)
{
    return c->block.n_groups == c->block.n_kv_heads;
}

/* Returns the K/V head that a head of the checkpoint uses. */
static inline size_t convert_kv_head(const struct converter *c, size_t head)
{
    return head / (c->block.n_heads / c->block.n_kv_heads);
}

/* Returns a head's [dim, dim] in a circuit's maps or moments. */
static inline double *convert_of_head(const struct convert_circuit *s, double *of_heads,
                                      size_t head)
{
    return of_heads + head * s->dim * s->dim;
}

/* Returns the [dim, dim] of the gram between the cached factors of heads g and h; its rows are
 * kv_heads
 * * dim apart. */
static inline const double *convert_gram(const struct converter *c, const struct convert_circuit *s,
                                         size_t g, size_t h)
{
    const size_t dim = s->dim, width = c->block.n_kv_heads * dim;
    return s->gram + convert_kv_head(c, g) * dim * width + convert_kv_head(c, h) * dim;
}

/* --- tensors.c: tensors to double and back, the new file, the block as a model loads it ------- */

/* A new tensor, as bytes. */
struct convert_tensor {
    struct gguf_tensor tensor; /* its name points into `name` */
    struct tensor_name name;
    unsigned char *bytes; /* NULL if the checkpoint has no tensor of this name */
    bool changed;         /* whether it was stored; if not, the checkpoint's tensor stays */
};

/* The new tensors of a block, by role: weight and bias. Q, K and V are one tensor or three, as in
 * the checkpoint. */
struct convert_tensors {
    struct convert_tensor of[TENSOR_ROLES][2];
};

static inline struct convert_tensor *convert_new(const struct converter *c, enum tensor_role role,
                                                 bool is_bias)
{
    return &c->tensors[c->block.index].of[role][is_bias];
}

void convert_tensors_allocate(struct converter *c);

/* Begins a block: sets its sizes and reads its weights. */
void convert_begin_block(struct converter *c, int block);

/* Rounds the weights first to end - 1 of `to` to their tensors' types; a bias without a tensor is
 * dropped. STATUS_FAILED if a number is not finite, or is too large for the type. */
enum status convert_store(struct converter *c, enum convert_weight first, enum convert_weight end,
                          struct err *e);
/* Puts the trained biases of scores into the heads' new order. */
void convert_store_order(struct converter *c);

/* Loads the stored tensors into c->block.loaded, as a model would. */
void convert_load_stored(struct converter *c);

/* Makes the writer of c->out, with the whole new file. STATUS_NO_MEMORY. */
enum status convert_write(struct converter *c, struct err *e);

/* --- products.c: matrix products and sums in double, on all threads --------------------------- */

/* Add the first `rows` rows of a product to p.c, or write them there. */
void convert_add_product(const struct converter *c, struct linalg_product p, size_t rows);
void convert_multiply(const struct converter *c, struct linalg_product p, size_t rows);

/* sum [a_columns, b_columns] += a^T b, of contiguous rows a [n, a_columns] and b [n, b_columns].
 * It is summed in floats in c->scratch.float_product first, which is many times faster. */
void convert_add_gram(const struct converter *c, double *sum, const float *a, size_t a_columns,
                      const float *b, size_t b_columns, size_t n);

/* Turns sums [m, columns] of a^T b over n rows into covariances, by the rows' sums a_sum [m] and
 * b_sum [columns]; with a_sum NULL, into second moments. */
void convert_sums_to_moments(double *sums, const double *a_sum, const double *b_sum, double n,
                             size_t m, size_t columns);

/* sum [d] += the rows of x [n, d]. */
void convert_add_rows(double *sum, const float *x, size_t n, size_t d);

/* --- calibrate.c: windows of the text through the layers of both models ----------------------- */

void convert_calibration_allocate(struct converter *c);
/* Makes the probes, which the owner of c frees, and sets both streams to the text's embeddings.
 * STATUS_NO_MEMORY; STATUS_INTERRUPTED. */
enum status convert_calibration_open(struct converter *c, struct err *e);

/* Window w of the text: n tokens, and the rows [n, d] of each stream there. */
struct convert_window {
    size_t n;
    bool held_out;    /* whether nothing is fitted to it */
    float *original;  /* the checkpoint's stream before the layer */
    float *middle;    /* the checkpoint's stream after the layer's attention */
    float *converted; /* the converted model's stream before the layer */
    float *from;      /* where the converted layer starts: at `converted`, but at `original` if
                         layers share a block */
};
struct convert_window convert_window_at(const struct converter *c, int w);

/* Runs the converted layer over a window, from win->from on. */
void convert_run_layer(const struct converter *c, int layer, const struct convert_window *win,
                       struct block_taps taps);

/* Reports that n more windows are done. STATUS_INTERRUPTED if spec->callbacks asks to stop. */
enum status convert_windows_done(struct converter *c, int n);

/* Calls `visit` for every layer of the block in work, over each of these windows. CONVERT_ORIGINAL
 * means all windows, each after the checkpoint's layer has run over it: c->scratch.rows holds its
 * input; `visit` must not write c->scratch.rows2, which holds its output. Where layers share a
 * block, the checkpoint's layer runs with the other two, too. STATUS_INTERRUPTED. */
enum convert_windows { CONVERT_ORIGINAL, CONVERT_ALL, CONVERT_HELD_OUT };
typedef void convert_visit(struct converter *c, int layer, const struct convert_window *win);
enum status convert_each_window(struct converter *c, enum convert_windows which,
                                convert_visit *visit);

/* Returns sum (x - y)^2 over floats [n]; leaves the differences in c->scratch.x. */
double convert_squared_distance(struct converter *c, const float *x, const float *y, size_t n);

/* Measures the moments of the block's inputs by running the checkpoint's layers that use it over
 * the text. Without a text it assumes that the norm before the block gives any direction with equal
 * probability. STATUS_INTERRUPTED. */
enum status convert_calibrate(struct converter *c);

/* Runs the converted layers over the text, if there is one, and fills in what c->out says of their
 * outputs. STATUS_INTERRUPTED; STATUS_FAILED if the outputs are not finite. */
enum status convert_advance(struct converter *c, struct err *e);

/* --- circuits.c: attention's two products, and the weights that maps make --------------------- */

/* Makes and stores the shared heads of a block that is begun and calibrated, and writes what its
 * layers lose to c->out. A block that has no more heads than wanted keeps them. The failures of
 * convert_group_heads and convert_store. */
enum status convert_share(struct converter *c, struct err *e);

/* --- groups.c: which heads share, and by which maps ------------------------------------------- */

void convert_groups_allocate(struct converter *c);

/* Fills in order, group_of, and the maps of both circuits, which are measured. STATUS_FAILED if an
 * eigenproblem diverged. */
enum status convert_group_heads(struct converter *c, struct err *e);

/* --- refit.c: the output matrix, fitted to what the checkpoint's attention adds --------------- */

void convert_refit_allocate(struct converter *c);

/* How many windows convert_refit visits in a layer; 0 without a refit. */
uint64_t convert_refit_windows(const struct converter *c);

/* Refits O of `to`, if the specification asks for it, and keeps the better matrix; O is stored
 * before and after. STATUS_INTERRUPTED; STATUS_FAILED as convert_store. */
enum status convert_refit(struct converter *c, struct err *e);

/* --- divergence.c: how far a changed stream takes the checkpoint's predictions ---------------- */

void convert_divergence_allocate(struct converter *c);
/* Opens the session that predicts, which the owner of c frees. */
enum status convert_divergence_open(struct converter *c, struct err *e);

/* Sets *sum to the sum, over the windows compared, of the mean Kullback-Leibler divergence in nats
 * a token from the checkpoint's predictions: with layer n_layers of the converted model's, else of
 * the checkpoint's with this layer alone converted, as it is stored. STATUS_FAILED if logits are
 * not finite; STATUS_INTERRUPTED. */
enum status convert_compare(struct converter *c, int layer, double *sum, struct err *e);
