#include <math.h>
#include <string.h>

#include "compute/linalg.h"
#include "convert/products.h"
#include "convert/rebuild_parts.h"

/* Every one of so many windows is used, where there are many: more variables want more of them. */
#define SPARSE_VALUES 4
#define SPARSE_ALL    2
/* Added to a metric's diagonal, relative to its mean. */
#define METRIC_RIDGE 1e-4
#define INPUT_RIDGE  1e-6

int rebuild_sparse(bool patterns)
{
    return patterns ? SPARSE_ALL : SPARSE_VALUES;
}

bool rebuild_uses(const struct converter *c, int w, bool patterns)
{
    const struct convert_calibration *k = c->calibration;
    return convert_window_length(c, w) == k->window && !convert_is_judged(c, w) &&
           (k->n_windows < 2 * CONVERT_JUDGED || w % rebuild_sparse(patterns) == 0);
}

void rebuild_scale(const struct convert_rebuild *r, double *rows, bool gradient)
{
    const size_t stride = (size_t)r->d + 1;
    for (int i = 0; i < rebuild_heads(r->c); i++) {
        const struct rebuilt_head *h = &r->heads[i];
        (gradient ? linalg_solve_lower : linalg_solve_lower_transposed)(
            h->root, h->dim, rows + (size_t)h->first * stride, r->d + 1);
    }
}

/* --- metrics --------------------------------------------------------------------------------- */

/* m [dim, dim] += scale * rows rows^T for rows [dim, n], `stride` apart. */
static void add_moments(double *m, const double *rows, size_t stride, int n, int dim, double scale)
{
    for (int i = 0; i < dim; i++)
        for (int j = 0; j < dim; j++)
            m[i * dim + j] +=
                scale * linalg_dot(rows + (size_t)i * stride, rows + (size_t)j * stride, (size_t)n);
}

static void set_root(double *root, const double *metric, int n)
{
    convert_root(root, metric, n, METRIC_RIDGE);
    if (linalg_trace(metric, n) > 0)
        return;
    for (size_t i = 0; i < (size_t)n * (size_t)n; i++) /* nothing comes of it: any scale will do */
        root[i] = i % ((size_t)n + 1) == 0;
}

static void place_heads(struct convert_rebuild *r)
{
    const struct converter *c = r->c;
    int first = 0;
    for (int i = 0; i < rebuild_heads(c); i++) {
        struct rebuilt_head *h = &r->heads[i];
        h->dim = i < c->n_heads + c->n_groups ? c->qk.dim : c->ov.dim;
        h->first = first;
        first += h->dim;
    }
}

/* Of sum_i x_i^T metric x_i where values differ from their mean, what reaches the head's result:
 * the share that averaging leaves, from the moments of results. */
static double share_left(const double *o, const double *results, size_t stride, const double *v,
                         int dim)
{
    double before = 0, after = 0;
    for (int i = 0; i < dim; i++)
        for (int j = 0; j < dim; j++) {
            before += o[i * dim + j] * v[i * dim + j];
            after += o[i * dim + j] * results[(size_t)i * stride + (size_t)j];
        }
    const double share = before > 0 ? after / before : 1;
    return share > 1 ? 1 : share < 1e-3 ? 1e-3 : share;
}

/* Metrics of the heads from the rows w [qkv_dim, d + 1] over white inputs and their results'
 * moments; o [heads_dim, d]. */
static void set_roots(struct convert_rebuild *r, const double *w, const double *o,
                      const double *results)
{
    const struct converter *c = r->c;
    const int d = r->d, n = c->n_heads, kv = c->n_groups, k_dim = c->qk.dim, v_dim = c->ov.dim;
    const size_t stride = (size_t)d + 1;
    double *of_o = c->blocks, *of_v = of_o + v_dim * v_dim;
    double *q_metric = of_v + v_dim * v_dim, *k_metric = q_metric + k_dim * k_dim;
    double *v_metric = k_metric + k_dim * k_dim;
    place_heads(r);
    for (int g = 0; g < kv; g++) {
        struct rebuilt_head *k = &r->heads[n + g], *v = &r->heads[n + kv + g];
        memset(of_v, 0, (size_t)(v_dim * v_dim) * sizeof *of_v);
        memset(k_metric, 0, (size_t)(k_dim * k_dim) * sizeof *k_metric);
        memset(v_metric, 0, (size_t)(v_dim * v_dim) * sizeof *v_metric);
        add_moments(of_v, w + (size_t)v->first * stride, stride, d, v_dim, 1);
        for (int h = g * c->group; h < (g + 1) * c->group; h++) {
            struct rebuilt_head *q = &r->heads[h];
            const size_t at = (size_t)(h * v_dim);
            memset(of_o, 0, (size_t)(v_dim * v_dim) * sizeof *of_o);
            memset(q_metric, 0, (size_t)(k_dim * k_dim) * sizeof *q_metric);
            add_moments(of_o, o + at * (size_t)d, (size_t)d, d, v_dim, 1);
            const double share = share_left(of_o, results + at * (size_t)r->heads_dim + at,
                                            (size_t)r->heads_dim, of_v, v_dim);
            double energy = 0;
            for (int i = 0; i < v_dim * v_dim; i++) {
                v_metric[i] += share * of_o[i];
                energy += of_o[i] * of_v[i];
            }
            const double scale = share * energy / k_dim;
            add_moments(q_metric, w + (size_t)k->first * stride, stride, d, k_dim, scale);
            add_moments(k_metric, w + (size_t)q->first * stride, stride, d + 1, k_dim, scale);
            set_root(q->root, q_metric, k_dim);
        }
        set_root(k->root, k_metric, k_dim);
        set_root(v->root, v_metric, v_dim);
    }
}

/* --- before and after ------------------------------------------------------------------------ */

/* Inputs, not yet white, and targets of the windows that are used. */
static void gather(struct convert_rebuild *r)
{
    const struct converter *c = r->c;
    const struct convert_calibration *k = c->calibration;
    const size_t size = (size_t)k->window * (size_t)r->d;
    r->n_windows = 0;
    for (int w = 0; w < k->n_windows; w++) {
        if (!rebuild_uses(c, w, r->patterns))
            continue;
        const float *stream = convert_stream(c, w);
        const float *middle = convert_window(c, k->middle, w);
        float *x = r->x + (size_t)r->n_windows * size, *y = r->y + (size_t)r->n_windows * size;
        convert_norm_rows(c, ROLE_ATTN_NORM, x, stream, k->window);
        convert_subtract(y, middle, stream, size);
        r->n_windows++;
    }
}

/* Moments of the inputs to r->mean and r->root; the targets' energy. */
static void measure_inputs(struct convert_rebuild *r)
{
    const struct converter *c = r->c;
    const struct convert_calibration *k = c->calibration;
    const int d = r->d;
    const size_t width = (size_t)d, size = (size_t)k->window * width;
    const double n = (double)r->n_windows * (double)k->window;
    memset(r->root, 0, width * width * sizeof *r->root);
    memset(r->mean, 0, width * sizeof *r->mean);
    r->energy = 0;
    for (int w = 0; w < r->n_windows; w++) {
        const float *x = r->x + (size_t)w * size;
        convert_add_outer_floats(&k->summing, r->root, x, x, k->window, d, d);
        convert_add_rows(r->mean, x, k->window, width);
        convert_widen(k->x, r->y + (size_t)w * size, size);
        r->energy += linalg_dot(k->x, k->x, size);
    }
    convert_finish_sums(r->root, r->has_biases ? r->mean : NULL, r->mean, n, d, d);
    for (size_t i = 0; i < width; i++)
        r->mean[i] = r->has_biases ? r->mean[i] / n : 0;
    convert_root(r->root, r->root, d, INPUT_RIDGE);
}

/* x = root^-1 (x - mean) of every row. */
static void whiten_inputs(struct convert_rebuild *r)
{
    const struct convert_calibration *k = r->c->calibration;
    const size_t d = (size_t)r->d;
    float *turned = k->summing.part; /* root^-T */
    double *inverse = r->c->square;
    memset(inverse, 0, d * d * sizeof *inverse);
    for (size_t i = 0; i < d; i++)
        inverse[i * d + i] = 1;
    linalg_solve_lower(r->root, r->d, inverse, r->d);
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++)
            turned[j * d + i] = (float)inverse[i * d + j];
    for (int t = 0; t < r->n_windows * k->window; t += k->window) {
        float *x = r->x + (size_t)t * d;
        for (size_t i = 0; i < (size_t)k->window * d; i++)
            k->rows[i] = (float)((double)x[i] - r->mean[i % d]);
        rebuild_multiply(r, x, k->rows, turned, NULL, k->window, r->d, r->d);
    }
}

/* The rows of a matrix with its bias, over white inputs: w root, b + w mean. */
static void whiten_rows(const struct convert_rebuild *r, const double *w, const double *bias,
                        int rows, double *out)
{
    const size_t d = (size_t)r->d;
    for (size_t j = 0; j < (size_t)rows; j++) {
        double *to = out + j * (d + 1);
        memset(to, 0, d * sizeof *to);
        for (size_t t = 0; t < d; t++)
            for (size_t i = 0; i <= t; i++)
                to[i] += w[j * d + t] * r->root[t * d + i];
        to[d] = bias[j] + linalg_dot(w + j * d, r->mean, d);
    }
}

/* And back. */
static void restore_rows(const struct convert_rebuild *r, const double *from, int rows, double *w,
                         double *bias)
{
    const size_t d = (size_t)r->d;
    double *turned = r->c->square; /* [d, rows] */
    for (size_t j = 0; j < (size_t)rows; j++)
        for (size_t i = 0; i < d; i++)
            turned[i * (size_t)rows + j] = from[j * (d + 1) + i];
    linalg_solve_lower_transposed(r->root, r->d, turned, rows);
    for (size_t j = 0; j < (size_t)rows; j++) {
        for (size_t i = 0; i < d; i++)
            w[j * d + i] = turned[i * (size_t)rows + j];
        bias[j] = r->has_biases ? from[j * (d + 1) + d] - linalg_dot(w + j * d, r->mean, d) : 0;
    }
}

/* Q, K and V of `to` as variables or back. */
struct part {
    double *w, *bias;
    int rows;
};

static void list_parts(const struct convert_rebuild *r, struct part parts[3])
{
    const struct converter *c = r->c;
    const int k = c->n_groups * c->qk.dim, v = c->n_groups * c->ov.dim;
    parts[0] = (struct part){c->to.q, c->to.bq, c->qk.width};
    parts[1] = (struct part){c->to.k, c->to.bk, k};
    parts[2] = (struct part){c->to.v, c->to.bv, v};
}

/* out = root^T in for the head's rows: from weights to variables. */
static void unscale_rows(const double *root, double *rows, size_t stride, int dim, int n)
{
    for (int i = 0; i < dim; i++) /* row i takes only rows from i on */
        for (int t = 0; t < n; t++) {
            double sum = 0;
            for (int j = i; j < dim; j++)
                sum += root[j * dim + i] * rows[(size_t)j * stride + (size_t)t];
            rows[(size_t)i * stride + (size_t)t] = sum;
        }
}

/* Moments of the heads' results, as the weights are: c->moments.values, free by now. */
static void measure_results(struct convert_rebuild *r, double *moments)
{
    const struct converter *c = r->c;
    const struct convert_calibration *k = c->calibration;
    const int n = r->heads_dim;
    memset(moments, 0, (size_t)n * (size_t)n * sizeof *moments);
    memset(k->x_sum, 0, (size_t)n * sizeof *k->x_sum);
    for (int w = 0; w < k->n_windows; w++) {
        if (!rebuild_uses(c, w, r->patterns))
            continue;
        probe_run(k->probe2, &k->used.block, c->block, convert_stream(c, w), k->window,
                  &(struct block_taps){.at = {[TAP_HEADS] = k->rows}});
        convert_add_outer_floats(&k->summing, moments, k->rows, k->rows, k->window, n, n);
        convert_add_rows(k->x_sum, k->rows, k->window, (size_t)n);
    }
    const double rows = (double)r->n_windows * (double)k->window;
    convert_finish_sums(moments, k->x_sum, k->x_sum, rows, n, n);
}

static void set_variables(struct convert_rebuild *r)
{
    const struct converter *c = r->c;
    const size_t d = (size_t)r->d, heads = (size_t)r->heads_dim;
    double *w = r->theta, *o = r->theta + (size_t)r->qkv_dim * (d + 1);
    struct part parts[3];
    list_parts(r, parts);
    for (int i = 0; i < 3; i++) {
        whiten_rows(r, parts[i].w, parts[i].bias, parts[i].rows, w);
        w += (size_t)parts[i].rows * (d + 1);
    }
    memcpy(o, c->to.o, heads * d * sizeof *o);
    memcpy(o + heads * d, c->to.bo, d * sizeof *o);
    measure_results(r, c->moments.values);
    set_roots(r, r->theta, o, c->moments.values);
    set_root(r->out_root, c->moments.values, r->heads_dim);
    for (int i = 0; i < rebuild_heads(c); i++) {
        const struct rebuilt_head *h = &r->heads[i];
        unscale_rows(h->root, r->theta + (size_t)h->first * (d + 1), d + 1, h->dim, r->d + 1);
    }
    unscale_rows(r->out_root, o, d, r->heads_dim, r->d);
}

void rebuild_end(struct convert_rebuild *r)
{
    const struct converter *c = r->c;
    const size_t d = (size_t)r->d, heads = (size_t)r->heads_dim;
    double *w = r->theta, *o = r->theta + (size_t)r->qkv_dim * (d + 1);
    struct part parts[3];
    rebuild_scale(r, w, false);
    linalg_solve_lower_transposed(r->out_root, r->heads_dim, o, r->d);
    list_parts(r, parts);
    for (int i = 0; i < 3; i++) {
        restore_rows(r, w, parts[i].rows, parts[i].w, parts[i].bias);
        w += (size_t)parts[i].rows * (d + 1);
    }
    memcpy(c->to.o, o, heads * d * sizeof *o);
    memcpy(c->to.bo, o + heads * d, d * sizeof *o);
}

bool rebuild_begin(struct convert_rebuild *r)
{
    gather(r);
    measure_inputs(r);
    if (!(r->energy > 0))
        return false;
    whiten_inputs(r);
    set_variables(r);
    memcpy(r->start, r->theta, rebuild_variables(r) * sizeof *r->start);
    return true;
}
