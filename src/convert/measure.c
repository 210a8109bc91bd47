#include "convert/measure.h"

#include <math.h>
#include <string.h>

#include "compute/linalg.h"
#include "convert/products.h"

/* Added to the metric's diagonal, relative to its mean: it only has to make it invertible. */
#define METRIC_RIDGE 1e-6

/* means [rows] = x [rows, d] times the mean input, plus the bias. */
static void find_means(const struct converter *c, double *means, const double *x,
                       const double *bias, int rows)
{
    for (int i = 0; i < rows; i++)
        means[i] =
            linalg_dot(x + (size_t)i * (size_t)c->d, c->moments.mean, (size_t)c->d) + bias[i];
}

/* m [n, columns] += a b^T */
static void add_outer(double *m, size_t stride, const double *a, const double *b, int n,
                      int columns)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < columns; j++)
            m[(size_t)i * stride + (size_t)j] += a[i] * b[j];
}

/* --- turns ----------------------------------------------------------------------------------- */

/*
 * The mean of R m R^T over all R that turn each pair by an angle of its own: what is left is what
 * every R leaves as it is. Pairs turn at frequencies that have nothing in common, so over distances
 * a score's products of different pairs average out, and of one pair those with its mirror image.
 */
static void average_turns(const struct convert_circuit *s, double *m, size_t stride)
{
    for (int i = 0; i < s->n_turned; i += 2) {
        double *x = m + (size_t)i * stride, *y = x + stride;
        const double same = (x[i] + y[i + 1]) / 2, across = (x[i + 1] - y[i]) / 2;
        for (int j = 0; j < s->dim; j++) {
            double *to_pair = m + (size_t)j * stride + i;
            x[j] = y[j] = to_pair[0] = to_pair[1] = 0;
        }
        x[i] = y[i + 1] = same;
        x[i + 1] = across;
        y[i] = -across;
    }
}

static void average_gram(const struct converter *c, const struct convert_circuit *s)
{
    const size_t dim = (size_t)s->dim, width = (size_t)c->n_kv_heads * dim;
    for (size_t g = 0; g < width; g += dim)
        for (size_t h = 0; h < width; h += dim)
            average_turns(s, s->gram + g * width + h, width);
}

/* --- moments --------------------------------------------------------------------------------- */

/* Of the cached factor x. */
static void measure_gram(struct converter *c, struct convert_circuit *s, const double *x,
                         const double *bias)
{
    const int n = c->n_kv_heads * s->dim;
    convert_multiply(c->spec->pool, c->square, x, s->second, n, c->d, c->d);
    convert_multiply_transposed(c->spec->pool, s->gram, c->square, x, n, c->d, n, c->square2);
    if (!s->centred) {
        find_means(c, s->mean, x, bias, n);
        add_outer(s->gram, (size_t)n, s->mean, s->mean, n, n);
    }
    average_gram(c, s);
}

/* E q q^T of every head, biases included. */
static void measure_queries(struct converter *c)
{
    const struct convert_circuit *s = &c->qk;
    const double *q = c->from.q;
    const size_t d = (size_t)c->d, dim = (size_t)s->dim;
    double *means = c->square2;
    convert_multiply(c->spec->pool, c->square, q, c->moments.values, s->width, c->d, c->d);
    find_means(c, means, q, c->from.bq, s->width);
    for (int h = 0; h < c->n_heads; h++) {
        const size_t first = (size_t)h * dim;
        double *metric = convert_of_head(s, s->metric, h);
        for (size_t i = 0; i < dim; i++)
            for (size_t j = 0; j < dim; j++)
                metric[i * dim + j] =
                    linalg_dot(c->square + (first + i) * d, q + (first + j) * d, d);
        add_outer(metric, dim, means + first, means + first, s->dim, s->dim);
        average_turns(s, metric, dim);
    }
}

static void measure_outputs(struct converter *c)
{
    const size_t d = (size_t)c->d, dim = (size_t)c->ov.dim;
    for (int h = 0; h < c->n_heads; h++) {
        const double *o = c->from.o + (size_t)h * dim * d;
        double *metric = convert_of_head(&c->ov, c->ov.metric, h);
        for (size_t i = 0; i < dim; i++)
            for (size_t j = 0; j < dim; j++)
                metric[i * dim + j] = linalg_dot(o + i * d, o + j * d, d);
    }
}

const double *convert_gram_row(const struct converter *c, const struct convert_circuit *s, int g,
                               int i, int h)
{
    const size_t dim = (size_t)s->dim, width = (size_t)c->n_kv_heads * dim;
    return s->gram + ((size_t)convert_kv_head(c, g) * dim + (size_t)i) * width +
           (size_t)convert_kv_head(c, h) * dim;
}

static void copy_gram(const struct converter *c, const struct convert_circuit *s, int g, int h,
                      double *out)
{
    for (int i = 0; i < s->dim; i++)
        memcpy(out + i * s->dim, convert_gram_row(c, s, g, i, h), (size_t)s->dim * sizeof *out);
}

/* --- whitening ------------------------------------------------------------------------------- */

/* out = root_g^T gram[g, h] root_h into `white`. */
static void whiten_pair(struct converter *c, struct convert_circuit *s, int g, int h)
{
    const int dim = s->dim, size = dim * dim;
    double *copy = c->blocks, *product = copy + size, *transposed = product + size;
    double *result = transposed + size;
    copy_gram(c, s, g, h, copy);
    linalg_multiply(product, copy, convert_of_head(s, s->root, h), dim, dim, dim);
    linalg_transpose(transposed, convert_of_head(s, s->root, g), dim, dim);
    linalg_multiply(result, transposed, product, dim, dim, dim);
    for (int i = 0; i < dim; i++)
        memcpy(s->white + (size_t)(g * dim + i) * (size_t)s->width + (size_t)(h * dim),
               result + i * dim, (size_t)dim * sizeof *result);
}

static void whiten(struct converter *c, struct convert_circuit *s)
{
    for (int h = 0; h < c->n_heads; h++) {
        const double *metric = convert_of_head(s, s->metric, h);
        convert_root(convert_of_head(s, s->root, h), metric, s->dim, METRIC_RIDGE);
    }
    for (int g = 0; g < c->n_heads; g++)
        for (int h = 0; h < c->n_heads; h++)
            whiten_pair(c, s, g, h);
}

void convert_measure(struct converter *c)
{
    c->qk.n_turned = c->config.position == POSITION_ROPE ? c->config.rope.n_dims : 0;
    c->qk.centred = c->config.position != POSITION_ROPE;
    /* One vector for keys and values has one centre. */
    c->qk.second = c->qk.centred && !convert_is_latent(c) ? c->moments.keys : c->moments.values;
    c->ov.second = c->moments.values;
    measure_gram(c, &c->qk, c->from.k, c->from.bk);
    measure_gram(c, &c->ov, c->from.v, c->from.bv);
    measure_queries(c);
    measure_outputs(c);
    whiten(c, &c->qk);
    whiten(c, &c->ov);
}

/* --- what is lost ---------------------------------------------------------------------------- */

/* Second moments between the new cached factor of group g and the factor x [dim, d] with those
 * means, from t = to second. */
static void cross(const struct converter *c, const struct convert_circuit *s, const double *t,
                  int g, const double *x, const double *means, double *out)
{
    const size_t d = (size_t)c->d, dim = (size_t)s->dim, first = (size_t)g * dim;
    for (size_t i = 0; i < dim; i++)
        for (size_t j = 0; j < dim; j++)
            out[i * dim + j] = linalg_dot(t + (first + i) * d, x + j * d, d);
    if (!s->centred)
        add_outer(out, dim, s->new_mean + first, means, s->dim, s->dim);
}

/*
 * E over independent positions of (y.x - y'.x')^2 for the own factors y and cached x of all heads,
 * over E (y.x)^2: sums of products of second moments, of which one is averaged over turns.
 */
static double circuit_loss(struct converter *c, struct convert_circuit *s, const double *from,
                           const double *to, const double *to_bias)
{
    const int dim = s->dim;
    const size_t size = (size_t)dim * (size_t)dim, rows = (size_t)dim * (size_t)c->d;
    convert_multiply(c->spec->pool, c->square, to, s->second, c->n_groups * dim, c->d, c->d);
    if (!s->centred)
        find_means(c, s->new_mean, to, to_bias, c->n_groups * dim);
    double *xx = c->blocks, *new_old = xx + size, *new_new = new_old + size;
    double *yy = new_new + size, *turned = yy + size;
    double lost = 0, all = 0;
    for (int h = 0; h < c->n_heads; h++) {
        const int g = c->group_of[h], old = convert_kv_head(c, h);
        const double *out = convert_of_head(s, s->out, h),
                     *metric = convert_of_head(s, s->metric, h);
        copy_gram(c, s, h, h, xx);
        cross(c, s, c->square, g, from + (size_t)old * rows, s->mean + old * dim, new_old);
        cross(c, s, c->square, g, to + (size_t)g * rows, s->new_mean + g * dim, new_new);
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
    return circuit_loss(c, &c->qk, c->from.k, c->to.k, c->to.bk);
}

double convert_output_loss(struct converter *c)
{
    return circuit_loss(c, &c->ov, c->from.v, c->to.v, c->to.bv);
}
