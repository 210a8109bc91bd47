#include "convert/private.h"

#include <math.h>

#include "base/rng.h"

/* Added to the metric's diagonal, relative to its mean: it only has to make it invertible. */
#define METRIC_RIDGE 1e-6

/* --- moments --------------------------------------------------------------------------------- */

/* Returns the mean, over the inputs, of output i of a matrix, bias included. */
static double mean_of_row(const struct converter *c, const struct convert_matrix *x, size_t i)
{
    return linalg_dot(x->w + i * c->d, c->calib.input_mean, c->d) + x->bias[i];
}

static void find_means(const struct converter *c, double *means, const struct convert_matrix *x)
{
    for (size_t i = 0; i < x->rows; i++)
        means[i] = mean_of_row(c, x, i);
}

/* m [n, n] += a b^T */
static void add_outer(double *m, const double *a, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        linalg_add_scaled(m + i * n, a[i], b, n);
}

/* Replaces m by the mean of R m R^T over all R that rotate each pair by its own angle. Pairs rotate
 * at frequencies that have nothing in common; so over many distances the products of different
 * pairs in a score average out, and so do those of a pair with its mirror image. */
static void average_rotations(const struct convert_circuit *s, double *m, size_t stride)
{
    for (size_t i = 0; i < s->n_rotary; i += 2) {
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

/* A head's factor of a product: its rows [dim, d], and the means of its elements, NULL if centred.
 */
struct factor {
    const double *rows, *means;
};

/* out [dim, dim] = E x y^T. The rows of x must already be multiplied by the input's moments. */
static void cross(const struct converter *c, const struct convert_circuit *s, double *out,
                  struct factor x, struct factor y)
{
    for (size_t i = 0; i < s->dim; i++)
        for (size_t j = 0; j < s->dim; j++)
            out[i * s->dim + j] = linalg_dot(x.rows + i * c->d, y.rows + j * c->d, c->d);
    if (x.means)
        add_outer(out, x.means, y.means, s->dim);
}

/* Measures gram, metric, root and white of both circuits, from the weights `from` and the moments.
 */
static void measure_circuits(struct converter *c)
{
    const bool rotary = c->config.position == POSITION_ROPE;
    const size_t d = c->d;
    c->circuits[QK].n_rotary = rotary ? c->config.rope.n_dims : 0;
    c->circuits[QK].centred = !rotary;
    c->circuits[QK].second = rotary ? c->calib.value_moments : c->calib.key_moments;
    c->circuits[OV].second = c->calib.value_moments;
    for (struct convert_circuit *s = c->circuits; s < c->circuits + CIRCUITS; s++) {
        /* The gram of the cached factors. */
        const struct convert_matrix *own = &c->block.from[s->own],
                                    *cached = &c->block.from[s->cached];
        const size_t n = cached->rows, dim = s->dim, size = dim * dim;
        convert_multiply(c, linalg_product(c->scratch.square, cached->w, s->second, d, d), n);
        linalg_transpose(c->scratch.square2, cached->w, n, d);
        convert_multiply(c, linalg_product(s->gram, c->scratch.square, c->scratch.square2, d, n),
                         n);
        if (!s->centred) {
            find_means(c, s->mean, cached);
            add_outer(s->gram, s->mean, s->mean, n);
        }
        for (size_t g = 0; g < n; g += dim)
            for (size_t h = 0; h < n; h += dim)
                average_rotations(s, s->gram + g * n + h, n);

        /* Every head's metric, E q q^T with biases or o o^T, and its root. */
        const bool is_q = s->own == WEIGHT_Q;
        double *means = c->scratch.square2;
        if (is_q) {
            convert_multiply(
                c, linalg_product(c->scratch.square, own->w, c->calib.value_moments, d, d),
                s->width);
            find_means(c, means, own);
        }
        for (size_t h = 0; h < c->block.n_heads; h++) {
            const double *rows = own->w + h * dim * d, *of_head = means + h * dim;
            double *metric = convert_of_head(s, s->metric, h);
            cross(c, s, metric,
                  is_q ? (struct factor){c->scratch.square + h * dim * d, of_head}
                       : (struct factor){rows, NULL},
                  (struct factor){rows, of_head});
            average_rotations(s, metric, dim);
            const double ridge = METRIC_RIDGE * linalg_trace(metric, dim) / dim;
            linalg_cholesky(convert_of_head(s, s->root, h), metric, dim, fmax(ridge, 0));
        }

        /* root_g^T gram[g, h] root_h of every two heads. */
        double *copy = c->scratch.blocks, *product = copy + size, *transposed = product + size;
        double *result = transposed + size;
        for (size_t g = 0; g < c->block.n_heads; g++) {
            linalg_transpose(transposed, convert_of_head(s, s->root, g), dim, dim);
            for (size_t h = 0; h < c->block.n_heads; h++) {
                linalg_copy(copy, dim, convert_gram(c, s, g, h), n, dim, dim);
                linalg_multiply(product, copy, convert_of_head(s, s->root, h), dim, dim, dim);
                linalg_multiply(result, transposed, product, dim, dim, dim);
                linalg_copy(s->white + g * dim * s->width + h * dim, s->width, result, dim, dim,
                            dim);
            }
        }
    }
}

/* --- what is lost ---------------------------------------------------------------------------- */

/* Returns the share of the squared scores, or of what heads add, that `to` loses:
 * E (y.x - y'.x')^2 / E (y.x)^2 for the own factors y and the cached factors x of all heads, at
 * independent positions. Each expectation is a sum of products of two second moments, and the
 * average over rotations was taken of one of them. */
static double loss(struct converter *c, struct convert_circuit *s)
{
    const struct convert_matrix *from = &c->block.from[s->cached], *to = &c->block.to[s->cached];
    const size_t dim = s->dim, size = dim * dim, rows = dim * c->d;
    convert_multiply(c, linalg_product(c->scratch.square, to->w, s->second, c->d, c->d), to->rows);
    if (!s->centred)
        find_means(c, s->new_mean, to);
    double *xx = c->scratch.blocks, *new_old = xx + size, *new_new = new_old + size;
    double *yy = new_new + size, *transposed = yy + size;
    double lost = 0, all = 0;
    for (size_t h = 0; h < c->block.n_heads; h++) {
        const size_t g = c->block.group_of[h], old = convert_kv_head(c, h);
        const double *map_own = convert_of_head(s, s->map_own, h),
                     *metric = convert_of_head(s, s->metric, h);
        const struct factor new = {c->scratch.square + g * rows,
                                   s->centred ? NULL : s->new_mean + g * dim};
        linalg_copy(xx, dim, convert_gram(c, s, h, h), from->rows, dim, dim);
        cross(c, s, new_old, new, (struct factor){from->w + old * rows, s->mean + old * dim});
        cross(c, s, new_new, new, (struct factor){to->w + g * rows, new.means});
        const double own = linalg_dot(metric, xx, size);
        linalg_multiply(yy, map_own, metric, dim, dim, dim); /* E y' y^T */
        const double mixed = linalg_dot(yy, new_old, size);
        linalg_transpose(transposed, map_own, dim, dim);
        linalg_multiply(xx, yy, transposed, dim, dim, dim); /* E y' y'^T */
        lost += own - 2 * mixed + linalg_dot(xx, new_new, size);
        all += own;
    }
    return all > 0 ? fmax(lost, 0) / all : 0;
}

/* --- the new weights ------------------------------------------------------------------------- */

/* to [dim, n] += map [dim, dim] from [dim, n] */
static void add_mapped(double *to, const double *map, const double *from, size_t dim, size_t n)
{
    const struct linalg_product p = linalg_product(to, map, from, dim, n);
    linalg_add_product(&p, 0, dim);
}

/* Sets the bias that takes the mean away from the rows' outputs. */
static void centre(const struct converter *c, const struct convert_matrix *x)
{
    for (size_t i = 0; i < x->rows; i++)
        x->bias[i] = -linalg_dot(x->w + i * c->d, c->calib.input_mean, c->d);
}

/* Adds the mean of the checkpoint's values to the new output bias. Any attention pattern passes
 * that mean on unchanged, because its rows sum to 1. */
static void add_value_means(const struct converter *c)
{
    const size_t d = c->d, dim = c->circuits[OV].dim;
    for (size_t at = 0; at < c->circuits[OV].width; at++) {
        const size_t row = convert_kv_head(c, at / dim) * dim + at % dim;
        linalg_add_scaled(c->block.to[WEIGHT_O].bias, mean_of_row(c, &c->block.from[WEIGHT_V], row),
                          c->block.from[WEIGHT_O].w + at * d, d);
    }
}

/* Fills the new weight with random numbers of the mean square that the old one has. */
static void randomize(const struct converter *c, enum convert_weight weight, struct rng *r)
{
    const struct convert_matrix *from = &c->block.from[weight], *to = &c->block.to[weight];
    const size_t n_from = from->rows * c->d;
    const double spread = sqrt(3 * linalg_dot(from->w, from->w, n_from) / n_from);
    for (size_t i = 0; i < to->rows * c->d; i++)
        to->w[i] = spread * (2 * rng_unit(r) - 1);
    convert_zero(to->bias, to->rows);
}

/* Puts the rows of every head, of_head numbers each, into the heads' new order. */
static void permute_rows(const struct converter *c, double *rows, size_t of_head)
{
    memcpy(c->scratch.square, rows, c->block.n_heads * of_head * sizeof *rows);
    for (size_t i = 0; i < c->block.n_heads; i++)
        memcpy(rows + i * of_head, c->scratch.square + c->block.order[i] * of_head,
               of_head * sizeof *rows);
}

/* Makes Q, K, V and O of `to` from those of `from` and the maps, with the heads in their new order.
 */
static void apply_maps(struct converter *c)
{
    const size_t d = c->d;
    for (enum convert_weight p = WEIGHT_Q; p <= WEIGHT_O; p++) {
        convert_zero(c->block.to[p].w, c->block.to[p].rows * d);
        convert_zero(c->block.to[p].bias, c->block.to[p].n_bias);
    }
    /* A bias is mapped as its rows are. The output matrix's bias belongs to no head and stays. */
    for (const struct convert_circuit *s = c->circuits; s < c->circuits + CIRCUITS; s++) {
        const struct convert_matrix *own = &c->block.from[s->own],
                                    *cached = &c->block.from[s->cached];
        const struct convert_matrix *to_own = &c->block.to[s->own],
                                    *shared = &c->block.to[s->cached];
        const size_t dim = s->dim;
        for (size_t h = 0; h < c->block.n_heads; h++) {
            const double *map_cached = convert_of_head(s, s->map_cached, h),
                         *map_own = convert_of_head(s, s->map_own, h);
            const size_t at = h * dim, old = convert_kv_head(c, h) * dim;
            const size_t new = c->block.group_of[h] * dim;
            add_mapped(to_own->w + at * d, map_own, own->w + at * d, dim, d);
            add_mapped(shared->w + new *d, map_cached, cached->w + old * d, dim, d);
            add_mapped(shared->bias + new, map_cached, cached->bias + old, dim, 1);
            if (s->own != WEIGHT_O)
                add_mapped(to_own->bias + at, map_own, own->bias + at, dim, 1);
        }
    }
    memcpy(c->block.to[WEIGHT_O].bias, c->block.from[WEIGHT_O].bias, d * sizeof(double));
    /* Unless positions rotate keys, their means add one number to all scores of a query. */
    if (c->spec->method == CONVERT_FIT && c->circuits[QK].centred)
        centre(c, &c->block.to[WEIGHT_K]);
    if (c->spec->method == CONVERT_FIT && c->circuits[OV].centred) {
        centre(c, &c->block.to[WEIGHT_V]);
        add_value_means(c);
    }
    if (c->spec->method == CONVERT_RANDOM) {
        struct rng r;
        rng_seed(&r, c->spec->seed, c->block.index);
        randomize(c, WEIGHT_K, &r);
        randomize(c, WEIGHT_V, &r);
    }
    permute_rows(c, c->block.to[WEIGHT_Q].w, c->circuits[QK].dim * d);
    permute_rows(c, c->block.to[WEIGHT_Q].bias, c->circuits[QK].dim);
    permute_rows(c, c->block.to[WEIGHT_O].w, c->circuits[OV].dim * d);
}

/* --- a block ---------------------------------------------------------------------------------- */

enum status convert_share(struct converter *c, struct err *e)
{
    struct convert_layer lost = {.score = 0};
    if (convert_keeps_heads(c)) {
        for (size_t h = 0; h < c->block.n_heads; h++)
            c->block.order[h] = h;
        memcpy(c->block.to[WEIGHT_O].w, c->block.from[WEIGHT_O].w,
               c->circuits[OV].width * c->d * sizeof(double));
        memcpy(c->block.to[WEIGHT_O].bias, c->block.from[WEIGHT_O].bias, c->d * sizeof(double));
    } else {
        measure_circuits(c);
        TRY(convert_group_heads(c, e));
        apply_maps(c);
        lost.score = loss(c, &c->circuits[QK]);
        lost.output = loss(c, &c->circuits[OV]);
        TRY(convert_store(c, WEIGHT_Q, CONVERT_WEIGHTS, e));
    }
    convert_store_order(c);
    for (lost.layer = c->block.index; lost.layer < c->block.end; lost.layer++)
        c->out->layers[lost.layer] = lost;
    return STATUS_OK;
}
