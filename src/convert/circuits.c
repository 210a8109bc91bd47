/*
 * The two products of a block's attention: their second moments, what a conversion loses of them,
 * and the weights that maps make.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "compute/linalg.h"
#include "convert/private.h"

/* Added to the metric's diagonal, relative to its mean: it only has to make it invertible. */
#define METRIC_RIDGE 1e-6

/* --- moments --------------------------------------------------------------------------------- */

/* means [rows] of the matrix times the input, bias included. */
static void find_means(const struct converter *c, double *means, const struct convert_matrix *x)
{
    for (size_t i = 0; i < x->rows; i++)
        means[i] = linalg_dot(x->w + i * c->d, c->moments.mean, c->d) + x->bias[i];
}

/* m [n, columns] += a b^T */
static void add_outer(double *m, size_t stride, const double *a, const double *b, size_t n,
                      size_t columns)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < columns; j++)
            m[i * stride + j] += a[i] * b[j];
}

/*
 * The mean of R m R^T over all R that turn each pair by an angle of its own: what is left is what
 * every R leaves as it is. Pairs turn at frequencies that have nothing in common, so over distances
 * a score's products of different pairs average out, and of one pair those with its mirror image.
 */
static void average_turns(const struct convert_circuit *s, double *m, size_t stride)
{
    for (size_t i = 0; i < s->n_turned; i += 2) {
        double *x = m + i * stride, *y = x + stride;
        const double same = (x[i] + y[i + 1]) / 2, across = (x[i + 1] - y[i]) / 2;
        for (size_t j = 0; j < s->dim; j++) {
            double *to_pair = m + j * stride + i;
            x[j] = y[j] = to_pair[0] = to_pair[1] = 0;
        }
        x[i] = y[i + 1] = same;
        x[i + 1] = across;
        y[i] = -across;
    }
}

/* Of the cached factor. */
static void measure_gram(struct converter *c, struct convert_circuit *s)
{
    const struct convert_matrix *x = &c->from.at[s->cached];
    const size_t n = x->rows;
    convert_multiply(c, c->square, x->w, s->second, n, c->d, c->d);
    convert_multiply_transposed(c, s->gram, c->square, x->w, n, c->d, n);
    if (!s->centred) {
        find_means(c, s->mean, x);
        add_outer(s->gram, n, s->mean, s->mean, n, n);
    }
    for (size_t g = 0; g < n; g += s->dim)
        for (size_t h = 0; h < n; h += s->dim)
            average_turns(s, s->gram + g * n + h, n);
}

/* out [dim, dim] = a b^T of rows [dim, d]. */
static void multiply_rows(const struct converter *c, const struct convert_circuit *s,
                          const double *a, const double *b, double *out)
{
    for (size_t i = 0; i < s->dim; i++)
        for (size_t j = 0; j < s->dim; j++)
            out[i * s->dim + j] = linalg_dot(a + i * c->d, b + j * c->d, c->d);
}

/* E q q^T of every head, biases included; and o o^T. */
static void measure_own(struct converter *c)
{
    const struct convert_circuit *qk = &c->qk, *ov = &c->ov;
    double *means = c->square2;
    convert_multiply(c, c->square, c->from.q.w, c->moments.values, qk->width, c->d, c->d);
    find_means(c, means, &c->from.q);
    for (size_t h = 0; h < c->n_heads; h++) {
        const size_t first = h * qk->dim;
        double *metric = convert_of_head(qk, qk->metric, h);
        multiply_rows(c, qk, c->square + first * c->d, c->from.q.w + first * c->d, metric);
        add_outer(metric, qk->dim, means + first, means + first, qk->dim, qk->dim);
        average_turns(qk, metric, qk->dim);
        const double *o = c->from.o.w + h * ov->dim * c->d;
        multiply_rows(c, ov, o, o, convert_of_head(ov, ov->metric, h));
    }
}

const double *convert_gram_row(const struct converter *c, const struct convert_circuit *s, size_t g,
                               size_t i, size_t h)
{
    const size_t width = c->n_kv_heads * s->dim;
    return s->gram + (convert_kv_head(c, g) * s->dim + i) * width + convert_kv_head(c, h) * s->dim;
}

static void copy_gram(const struct converter *c, const struct convert_circuit *s, size_t g,
                      size_t h, double *out)
{
    for (size_t i = 0; i < s->dim; i++)
        memcpy(out + i * s->dim, convert_gram_row(c, s, g, i, h), s->dim * sizeof *out);
}

/* The roots of the metrics, and root_g^T gram[g, h] root_h of every two heads into `white`. */
static void whiten(struct converter *c, struct convert_circuit *s)
{
    const size_t dim = s->dim, size = dim * dim;
    double *copy = c->blocks, *product = copy + size, *transposed = product + size;
    double *result = transposed + size;
    for (size_t h = 0; h < c->n_heads; h++)
        convert_root(convert_of_head(s, s->root, h), convert_of_head(s, s->metric, h), dim,
                     METRIC_RIDGE);
    for (size_t g = 0; g < c->n_heads; g++) {
        linalg_transpose(transposed, convert_of_head(s, s->root, g), dim, dim);
        for (size_t h = 0; h < c->n_heads; h++) {
            copy_gram(c, s, g, h, copy);
            linalg_multiply(product, copy, convert_of_head(s, s->root, h), dim, dim, dim);
            linalg_multiply(result, transposed, product, dim, dim, dim);
            for (size_t i = 0; i < dim; i++)
                memcpy(s->white + (g * dim + i) * s->width + h * dim, result + i * dim,
                       dim * sizeof *result);
        }
    }
}

void convert_measure(struct converter *c)
{
    const bool turned = c->config.position == POSITION_ROPE;
    c->qk.n_turned = turned ? c->config.rope.n_dims : 0;
    c->qk.centred = !turned;
    /* One vector for keys and values has one centre. */
    c->qk.second = turned || convert_is_latent(c) ? c->moments.values : c->moments.keys;
    c->ov.second = c->moments.values;
    measure_gram(c, &c->qk);
    measure_gram(c, &c->ov);
    measure_own(c);
    whiten(c, &c->qk);
    whiten(c, &c->ov);
}

/* --- what is lost ---------------------------------------------------------------------------- */

/* Second moments between the new cached factor of group g, whose product with `second` is
 * c->square, and K/V head `head` of x, whose means are `means`. */
static void cross(const struct converter *c, const struct convert_circuit *s, size_t g,
                  const struct convert_matrix *x, const double *means, size_t head, double *out)
{
    const size_t dim = s->dim, rows = dim * c->d;
    multiply_rows(c, s, c->square + g * rows, x->w + head * rows, out);
    if (!s->centred)
        add_outer(out, dim, s->new_mean + g * dim, means + head * dim, dim, dim);
}

/*
 * E over independent positions of (y.x - y'.x')^2 for the own factors y and cached x of all heads,
 * over E (y.x)^2: sums of products of second moments, of which one is averaged over turns.
 */
double convert_loss(struct converter *c, struct convert_circuit *s)
{
    const struct convert_matrix *from = &c->from.at[s->cached], *to = &c->to.at[s->cached];
    const size_t dim = s->dim, size = dim * dim;
    convert_multiply(c, c->square, to->w, s->second, to->rows, c->d, c->d);
    if (!s->centred)
        find_means(c, s->new_mean, to);
    double *xx = c->blocks, *new_old = xx + size, *new_new = new_old + size;
    double *yy = new_new + size, *turned = yy + size;
    double lost = 0, all = 0;
    for (size_t h = 0; h < c->n_heads; h++) {
        const size_t g = c->group_of[h];
        const double *out = convert_of_head(s, s->out, h),
                     *metric = convert_of_head(s, s->metric, h);
        copy_gram(c, s, h, h, xx);
        cross(c, s, g, from, s->mean, convert_kv_head(c, h), new_old);
        cross(c, s, g, to, s->new_mean, g, new_new);
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

/* --- the new weights ------------------------------------------------------------------------- */

/* to [dim, n] += map [dim, dim] from [dim, n] */
static void add_mapped(double *to, const double *map, const double *from, size_t dim, size_t n)
{
    const struct linalg_product p = {.c = to,
                                     .c_stride = n,
                                     .a = map,
                                     .a_row = dim,
                                     .a_inner = 1,
                                     .b = from,
                                     .b_stride = n,
                                     .inner = dim,
                                     .columns = n};
    linalg_add_product(&p, 0, dim);
}

/* Heads' own factors, and the cached ones to those of groups. Biases are mapped as their rows are,
 * but that of the output matrix is no head's. */
static void apply_maps(const struct converter *c, const struct convert_circuit *s)
{
    const struct convert_matrix *own = &c->from.at[s->own], *cached = &c->from.at[s->cached];
    const struct convert_matrix *to_own = &c->to.at[s->own], *to_cached = &c->to.at[s->cached];
    const size_t dim = s->dim, d = c->d;
    convert_zero(to_own->w, to_own->rows * d);
    convert_zero(to_cached->w, to_cached->rows * d);
    convert_zero(to_own->bias, to_own->n_bias);
    convert_zero(to_cached->bias, to_cached->rows);
    for (size_t h = 0; h < c->n_heads; h++) {
        const double *in = convert_of_head(s, s->in, h), *out = convert_of_head(s, s->out, h);
        const size_t at = h * dim, old = convert_kv_head(c, h) * dim, new = c->group_of[h] * dim;
        add_mapped(to_own->w + at * d, out, own->w + at * d, dim, d);
        add_mapped(to_cached->w + new *d, in, cached->w + old * d, dim, d);
        add_mapped(to_cached->bias + new, in, cached->bias + old, dim, 1);
        if (s->own != PART_O)
            add_mapped(to_own->bias + at, out, own->bias + at, dim, 1);
    }
}

/* The bias that takes the mean from the rows times the input. */
static void centre(const struct converter *c, const struct convert_matrix *x)
{
    for (size_t i = 0; i < x->rows; i++)
        x->bias[i] = -linalg_dot(x->w + i * c->d, c->moments.mean, c->d);
}

void convert_add_value_means(const struct converter *c)
{
    const size_t d = c->d, dim = c->ov.dim;
    for (size_t h = 0; h < c->n_heads; h++)
        for (size_t i = 0; i < dim; i++) {
            const size_t row = convert_kv_head(c, h) * dim + i;
            const double mean =
                linalg_dot(c->from.v.w + row * d, c->moments.mean, d) + c->from.v.bias[row];
            for (size_t j = 0; j < d; j++)
                c->to.o.bias[j] += mean * c->from.o.w[(h * dim + i) * d + j];
        }
}

/* Numbers as large as those they replace. */
static void randomize(const struct converter *c, enum convert_part part, struct rng *r)
{
    const struct convert_matrix *from = &c->from.at[part], *to = &c->to.at[part];
    const size_t n_from = from->rows * c->d;
    const double spread = sqrt(3 * linalg_dot(from->w, from->w, n_from) / (double)n_from);
    for (size_t i = 0; i < to->rows * c->d; i++)
        to->w[i] = spread * (2 * rng_unit(r) - 1);
    convert_zero(to->bias, to->rows);
}

/* Rows of every head into their new order. */
static void permute_rows(const struct converter *c, double *rows, size_t of_head)
{
    memcpy(c->square, rows, c->n_heads * of_head * sizeof *rows);
    for (size_t i = 0; i < c->n_heads; i++)
        memcpy(rows + i * of_head, c->square + c->order[i] * of_head, of_head * sizeof *rows);
}

void convert_apply(struct converter *c)
{
    apply_maps(c, &c->qk);
    apply_maps(c, &c->ov);
    memcpy(c->to.o.bias, c->from.o.bias, c->d * sizeof(double));
    /* fit reproduces the centred keys and values where it can. The keys' means do not matter: they
     * add the same to all scores of a query, unless positions turn them. */
    if (c->method == CONVERT_FIT && c->qk.centred)
        centre(c, &c->to.k);
    if (c->method == CONVERT_FIT && c->ov.centred) {
        centre(c, &c->to.v);
        convert_add_value_means(c);
    }
    if (c->method == CONVERT_RANDOM) {
        struct rng r;
        rng_seed(&r, c->spec->seed, c->block);
        randomize(c, PART_K, &r);
        randomize(c, PART_V, &r);
    }
    permute_rows(c, c->to.q.w, c->qk.dim * c->d);
    permute_rows(c, c->to.q.bias, c->qk.dim);
    permute_rows(c, c->to.o.w, c->ov.dim * c->d);
}

void convert_keep(struct converter *c)
{
    for (size_t h = 0; h < c->n_heads; h++)
        c->order[h] = h;
    convert_copy(c, &c->to, &c->from, PART_Q, PART_UP);
}
