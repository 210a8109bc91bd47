#include "convert/fit.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "compute/linalg.h"
#include "convert/products.h"

/* Added to the metric's diagonal, relative to its mean: it only has to make it invertible. */
#define METRIC_RIDGE 1e-6
/* Rounds of alignment to the mean of the aligned heads. */
#define ALIGN_ROUNDS 20

static int kv_head_of(const struct converter *c, int head)
{
    return head / (c->n_heads / c->n_kv_heads);
}

static double *head_map(const struct converter *c, double *of_heads, int head)
{
    return of_heads + (size_t)head * (size_t)c->dim * (size_t)c->dim;
}

/* Row i of the gram between the cached factors of heads g and h. */
static const double *gram_row(const struct converter *c, const struct convert_circuit *s, int g,
                              int i, int h)
{
    const size_t width = (size_t)c->n_kv_heads * (size_t)c->dim;
    return s->gram + ((size_t)kv_head_of(c, g) * (size_t)c->dim + (size_t)i) * width +
           (size_t)kv_head_of(c, h) * (size_t)c->dim;
}

static void copy_gram(const struct converter *c, const struct convert_circuit *s, int g, int h,
                      double *out)
{
    for (int i = 0; i < c->dim; i++)
        memcpy(out + i * c->dim, gram_row(c, s, g, i, h), (size_t)c->dim * sizeof *out);
}

/* --- measuring ------------------------------------------------------------------------------- */

/* x second x^T of the cached factor x. */
static void measure_gram(struct converter *c, struct convert_circuit *s, const double *x,
                         const double *second)
{
    const int n = c->n_kv_heads * c->dim;
    convert_multiply(c->spec->pool, c->square, x, second, n, c->d, c->d);
    convert_multiply_transposed(c->spec->pool, s->gram, c->square, x, n, c->d, n, c->square2);
}

/* E q q^T of every head, biases included. */
static void measure_queries(struct converter *c)
{
    const struct convert_weights *w = &c->from;
    const size_t d = (size_t)c->d;
    convert_multiply(c->spec->pool, c->square, w->q, c->moments.second, c->q_dim, c->d, c->d);
    double *mean = c->square2; /* of q without its bias */
    for (int i = 0; i < c->q_dim; i++)
        mean[i] = linalg_dot(w->q + (size_t)i * d, c->moments.mean, d);
    for (int h = 0; h < c->n_heads; h++)
        for (int i = 0; i < c->dim; i++)
            for (int j = 0; j < c->dim; j++) {
                const size_t a = (size_t)(h * c->dim + i), b = (size_t)(h * c->dim + j);
                head_map(c, c->qk.metric, h)[i * c->dim + j] =
                    linalg_dot(c->square + a * d, w->q + b * d, d) + mean[a] * w->bq[b] +
                    w->bq[a] * mean[b] + w->bq[a] * w->bq[b];
            }
}

static void measure_outputs(struct converter *c)
{
    const size_t d = (size_t)c->d;
    for (int h = 0; h < c->n_heads; h++)
        for (int i = 0; i < c->dim; i++)
            for (int j = 0; j < c->dim; j++)
                head_map(c, c->ov.metric, h)[i * c->dim + j] =
                    linalg_dot(c->from.o + (size_t)(h * c->dim + i) * d,
                               c->from.o + (size_t)(h * c->dim + j) * d, d);
}

/* out = root_g^T gram[g, h] root_h into `white`. */
static void whiten_pair(struct converter *c, struct convert_circuit *s, int g, int h)
{
    const int dim = c->dim, size = dim * dim;
    double *copy = c->blocks, *product = copy + size, *transposed = product + size;
    double *result = transposed + size;
    copy_gram(c, s, g, h, copy);
    linalg_multiply(product, copy, head_map(c, s->root, h), dim, dim, dim);
    linalg_transpose(transposed, head_map(c, s->root, g), dim, dim);
    linalg_multiply(result, transposed, product, dim, dim, dim);
    for (int i = 0; i < dim; i++)
        memcpy(s->white + (size_t)(g * dim + i) * (size_t)c->q_dim + (size_t)(h * dim),
               result + i * dim, (size_t)dim * sizeof *result);
}

static void whiten(struct converter *c, struct convert_circuit *s)
{
    for (int h = 0; h < c->n_heads; h++) {
        const double *metric = head_map(c, s->metric, h);
        linalg_cholesky(head_map(c, s->root, h), metric, c->dim,
                        METRIC_RIDGE * linalg_trace(metric, c->dim) / c->dim);
    }
    for (int g = 0; g < c->n_heads; g++)
        for (int h = 0; h < c->n_heads; h++)
            whiten_pair(c, s, g, h);
}

void convert_measure(struct converter *c)
{
    measure_gram(c, &c->qk, c->from.k, c->moments.keys);
    measure_gram(c, &c->ov, c->from.v, c->moments.values);
    measure_queries(c);
    measure_outputs(c);
    whiten(c, &c->qk);
    whiten(c, &c->ov);
}

/* --- fit ------------------------------------------------------------------------------------- */

/* The part of `white` between the given heads, to scratch->matrix; returns its size. */
static int copy_white(const struct converter *c, const struct convert_circuit *s, const int *heads,
                      int n, struct convert_eigen *scratch)
{
    const size_t dim = (size_t)c->dim, width = (size_t)n * dim;
    for (size_t g = 0; g < (size_t)n; g++)
        for (size_t i = 0; i < dim; i++)
            for (size_t h = 0; h < (size_t)n; h++)
                memcpy(scratch->matrix + (g * dim + i) * width + h * dim,
                       s->white + ((size_t)heads[g] * dim + i) * (size_t)c->q_dim +
                           (size_t)heads[h] * dim,
                       dim * sizeof(double));
    return (int)width;
}

/* The share of the layer's squared error that one shared head leaves: the eigenvalues beyond
 * the first dim. */
static double share_beyond(const struct converter *c, const struct convert_circuit *s,
                           const int *heads, int n, struct convert_eigen *scratch, bool *diverged)
{
    const int width = copy_white(c, s, heads, n, scratch);
    if (!linalg_eigen(scratch->matrix, width, scratch->values, NULL, 0, scratch->scratch))
        *diverged = true;
    double sum = 0;
    for (int i = width - 1; i >= c->dim; i--)
        sum += fmax(scratch->values[i], 0);
    const double all = linalg_trace(s->white, c->q_dim);
    return all > 0 ? sum / all : 0;
}

double convert_group_cost(const struct converter *c, const int *heads, int n,
                          struct convert_eigen *scratch, bool *diverged)
{
    return share_beyond(c, &c->qk, heads, n, scratch, diverged) +
           share_beyond(c, &c->ov, heads, n, scratch, diverged);
}

/*
 * With E_h head h's columns of the leading eigenvectors (rows of `vectors`): in_h = E_h^T root_h^T,
 * out_h = E_h^T root_h^-1. Of an eigenvalue w the shared element has the variance w and the
 * heads' own have 1; a factor w^-1/4 here and w^1/4 there makes them equal.
 */
static bool fit_group(const struct converter *c, const struct convert_circuit *s, const int *heads,
                      struct convert_eigen *scratch)
{
    const int dim = c->dim, width = copy_white(c, s, heads, c->group, scratch);
    if (!linalg_eigen(scratch->matrix, width, scratch->values, scratch->vectors, dim,
                      scratch->scratch))
        return false;
    double *e = scratch->scratch; /* E_h */
    const double least = 1e-12 * scratch->values[0];
    for (int g = 0; g < c->group; g++) {
        double *in = head_map(c, s->in, heads[g]), *out = head_map(c, s->out, heads[g]);
        const double *root = head_map(c, s->root, heads[g]);
        for (int i = 0; i < dim; i++)
            for (int k = 0; k < dim; k++)
                e[i * dim + k] = scratch->vectors[k * width + g * dim + i];
        /* Transposed: root E, and root^-T E. */
        linalg_multiply(scratch->matrix, root, e, dim, dim, dim);
        linalg_solve_lower_transposed(root, dim, e, dim);
        for (int k = 0; k < dim; k++) {
            const double w = fmax(scratch->values[k], least);
            const double factor = w > 0 ? sqrt(sqrt(w)) : 1;
            for (int i = 0; i < dim; i++) {
                in[k * dim + i] = scratch->matrix[i * dim + k] / factor;
                out[k * dim + i] = e[i * dim + k] * factor;
            }
        }
    }
    return true;
}

/* --- pooling --------------------------------------------------------------------------------- */

static void set_diagonal(const struct converter *c, double *of_heads, int head, double x)
{
    double *m = head_map(c, of_heads, head);
    memset(m, 0, (size_t)c->dim * (size_t)c->dim * sizeof *m);
    for (int i = 0; i < c->dim; i++)
        m[i * c->dim + i] = x;
}

static void pool_group(const struct converter *c, const struct convert_circuit *s, const int *heads)
{
    const bool mean = c->spec->method == CONVERT_MEAN;
    for (int g = 0; g < c->group; g++) {
        set_diagonal(c, s->in, heads[g], mean ? 1.0 / c->group : g == 0);
        set_diagonal(c, s->out, heads[g], 1);
    }
}

/* Turns each cached factor so that it comes nearest to the mean of the turned ones, again and again
 * (generalized Procrustes, Gower 1975), starting from the first. */
static void align_group(const struct converter *c, const struct convert_circuit *s,
                        const int *heads, struct convert_eigen *scratch)
{
    const int dim = c->dim, size = dim * dim;
    double *gram = scratch->matrix, *turned = gram + size, *sum = turned + size;
    double *work = scratch->scratch;
    for (int g = 0; g < c->group; g++)
        set_diagonal(c, s->out, heads[g], 1);
    for (int round = 0; round <= ALIGN_ROUNDS; round++)
        for (int g = 0; g < c->group; g++) {
            /* E (sum_o turn_o x_o) x_g^T; in the first round of the first head only. */
            memset(sum, 0, (size_t)size * sizeof *sum);
            for (int o = 0; o < (round ? c->group : 1); o++) {
                copy_gram(c, s, heads[o], heads[g], gram);
                linalg_multiply(turned, head_map(c, s->out, heads[o]), gram, dim, dim, dim);
                for (int i = 0; i < size; i++)
                    sum[i] += turned[i];
            }
            if (round || g > 0)
                linalg_nearest_orthogonal(head_map(c, s->out, heads[g]), sum, dim, work);
        }
    for (int g = 0; g < c->group; g++)
        for (int i = 0; i < size; i++)
            head_map(c, s->in, heads[g])[i] = head_map(c, s->out, heads[g])[i] / c->group;
}

/* --- all groups ------------------------------------------------------------------------------ */

static void map_group(struct converter *c, int item, int thread)
{
    const struct convert_circuit *s = item % 2 ? &c->ov : &c->qk;
    const int *heads = c->order + item / 2 * c->group;
    switch (c->spec->method) {
    case CONVERT_FIT:
        if (!fit_group(c, s, heads, &c->eigen[thread]))
            c->diverged[thread] = true;
        break;
    case CONVERT_PROCRUSTES:
        align_group(c, s, heads, &c->eigen[thread]);
        break;
    default:
        pool_group(c, s, heads);
    }
}

static void map_groups(void *arg, int thread)
{
    struct converter *c = arg;
    int begin, end;
    pool_share(2 * c->n_groups, thread, pool_n_threads(c->spec->pool), &begin, &end);
    for (int item = begin; item < end; item++)
        map_group(c, item, thread);
}

bool convert_map(struct converter *c)
{
    pool_run(c->spec->pool, map_groups, c);
    return !convert_any_diverged(c);
}

/* --- applying -------------------------------------------------------------------------------- */

/* to [dim, n] (+)= map [dim, dim] from [dim, n] */
static void add_mapped(double *to, const double *map, const double *from, int dim, int n)
{
    const struct linalg_product p = {.c = to,
                                     .c_stride = (size_t)n,
                                     .a = map,
                                     .a_row = (size_t)dim,
                                     .a_inner = 1,
                                     .b = from,
                                     .b_stride = (size_t)n,
                                     .inner = dim,
                                     .columns = n};
    linalg_add_product(&p, 0, dim);
}

/* Cached factors [kv_head, dim, n] to those of groups, and heads' own [head, dim, n] to such. */
static void apply_in(const struct converter *c, const double *maps, double *to, const double *from,
                     int n)
{
    const size_t rows = (size_t)c->dim * (size_t)n;
    memset(to, 0, (size_t)c->n_groups * rows * sizeof *to);
    for (int h = 0; h < c->n_heads; h++)
        add_mapped(to + (size_t)c->group_of[h] * rows, maps + h * c->dim * c->dim,
                   from + (size_t)kv_head_of(c, h) * rows, c->dim, n);
}

static void apply_out(const struct converter *c, const double *maps, double *to, const double *from,
                      int n)
{
    const size_t rows = (size_t)c->dim * (size_t)n;
    memset(to, 0, (size_t)c->n_heads * rows * sizeof *to);
    for (int h = 0; h < c->n_heads; h++)
        add_mapped(to + (size_t)h * rows, maps + h * c->dim * c->dim, from + (size_t)h * rows,
                   c->dim, n);
}

/* The bias that takes the mean from x's rows times the input. */
static void centre(const struct converter *c, double *bias, const double *x)
{
    for (int i = 0; i < c->n_groups * c->dim; i++)
        bias[i] = -linalg_dot(x + (size_t)i * (size_t)c->d, c->moments.mean, (size_t)c->d);
}

/*
 * fit reproduces the centred keys and values. The keys' means do not matter: they add the same to
 * all scores of a query. The values' means pass unchanged through any attention pattern, whose
 * rows sum to 1, into the output's bias.
 */
static void move_means(struct converter *c)
{
    const struct convert_weights *w = &c->from;
    const size_t d = (size_t)c->d;
    centre(c, c->to.bk, c->to.k);
    centre(c, c->to.bv, c->to.v);
    for (int h = 0; h < c->n_heads; h++)
        for (int i = 0; i < c->dim; i++) {
            const size_t row = (size_t)(kv_head_of(c, h) * c->dim + i);
            const double mean = linalg_dot(w->v + row * d, c->moments.mean, d) + w->bv[row];
            for (size_t j = 0; j < d; j++)
                c->to.bo[j] += mean * w->o[(size_t)(h * c->dim + i) * d + j];
        }
}

/* Numbers as large as those they replace. */
static void randomize(const struct converter *c, double *to, const double *from, struct rng *r)
{
    const size_t n_from = (size_t)(c->n_kv_heads * c->dim * c->d);
    const size_t n_to = (size_t)(c->n_groups * c->dim * c->d);
    const double spread = sqrt(3 * linalg_dot(from, from, n_from) / (double)n_from);
    for (size_t i = 0; i < n_to; i++)
        to[i] = spread * (2 * rng_unit(r) - 1);
}

void convert_apply(struct converter *c, int layer)
{
    const struct convert_weights *from = &c->from, *to = &c->to;
    apply_out(c, c->qk.out, to->q, from->q, c->d);
    apply_out(c, c->qk.out, to->bq, from->bq, 1);
    apply_out(c, c->ov.out, to->o, from->o, c->d);
    memcpy(to->bo, from->bo, (size_t)c->d * sizeof *to->bo);
    apply_in(c, c->qk.in, to->k, from->k, c->d);
    apply_in(c, c->ov.in, to->v, from->v, c->d);
    apply_in(c, c->qk.in, to->bk, from->bk, 1);
    apply_in(c, c->ov.in, to->bv, from->bv, 1);
    if (c->spec->method == CONVERT_FIT)
        move_means(c);
    if (c->spec->method == CONVERT_RANDOM) {
        struct rng r;
        rng_seed(&r, c->spec->seed, (uint64_t)layer);
        randomize(c, to->k, from->k, &r);
        randomize(c, to->v, from->v, &r);
        memset(to->bk, 0, (size_t)(c->n_groups * c->dim) * sizeof *to->bk);
        memset(to->bv, 0, (size_t)(c->n_groups * c->dim) * sizeof *to->bv);
    }
}

static void permute_rows(const struct converter *c, double *rows, int n)
{
    const size_t size = (size_t)c->dim * (size_t)n;
    memcpy(c->square, rows, (size_t)c->n_heads * size * sizeof *rows);
    for (int i = 0; i < c->n_heads; i++)
        memcpy(rows + (size_t)i * size, c->square + (size_t)c->order[i] * size,
               size * sizeof *rows);
}

void convert_permute(struct converter *c)
{
    permute_rows(c, c->to.q, c->d);
    permute_rows(c, c->to.bq, 1);
    permute_rows(c, c->to.o, c->d);
}

/* --- what is lost ---------------------------------------------------------------------------- */

/* Second moments between the new cached factor of group g and x's rows of one head, from t = to
 * second. */
static void cross(const struct converter *c, const double *t, int g, const double *x, double *out)
{
    const size_t d = (size_t)c->d;
    for (int i = 0; i < c->dim; i++)
        for (int j = 0; j < c->dim; j++)
            out[i * c->dim + j] =
                linalg_dot(t + (size_t)(g * c->dim + i) * d, x + (size_t)j * d, d);
}

/*
 * E over independent positions of (y.x - y'.x')^2 for the own factors y and cached x of all heads,
 * over E (y.x)^2: sums of products of second moments.
 */
static double circuit_loss(struct converter *c, const struct convert_circuit *s, const double *from,
                           const double *to, const double *second)
{
    const int dim = c->dim;
    const size_t size = (size_t)dim * (size_t)dim, rows = (size_t)dim * (size_t)c->d;
    convert_multiply(c->spec->pool, c->square, to, second, c->n_groups * dim, c->d, c->d);
    double *xx = c->blocks, *new_old = xx + size, *new_new = new_old + size;
    double *yy = new_new + size, *turned = yy + size;
    double lost = 0, all = 0;
    for (int h = 0; h < c->n_heads; h++) {
        const int g = c->group_of[h];
        const double *out = head_map(c, s->out, h), *metric = head_map(c, s->metric, h);
        copy_gram(c, s, h, h, xx);
        cross(c, c->square, g, from + (size_t)kv_head_of(c, h) * rows, new_old);
        cross(c, c->square, g, to + (size_t)g * rows, new_new);
        const double own = linalg_dot(metric, xx, size);
        linalg_multiply(yy, out, metric, dim, dim, dim); /* E y' y^T */
        const double mixed = linalg_dot(yy, new_old, size);
        linalg_transpose(turned, out, dim, dim);
        linalg_multiply(xx, yy, turned, dim, dim, dim); /* E y' y'^T */
        lost += own - 2 * mixed + linalg_dot(xx, new_new, size);
        all += own;
    }
    return all > 0 ? fmax(lost, 0) / all : 0;
}

double convert_score_loss(struct converter *c)
{
    return circuit_loss(c, &c->qk, c->from.k, c->to.k, c->moments.keys);
}

double convert_output_loss(struct converter *c)
{
    return circuit_loss(c, &c->ov, c->from.v, c->to.v, c->moments.values);
}
