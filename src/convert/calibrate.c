/*
 * The residual streams of all windows are stored, so that each layer runs once as it was and twice
 * converted, for its refit and then for the layers behind it.
 */
#include "convert/calibrate.h"

#include <assert.h>
#include <string.h>

#include "compute/linalg.h"
#include "convert/products.h"
#include "convert/tensors.h"
#include "engine/probe.h"
#include "model/pack.h"

/* Pulls the refit towards the output matrix there was, relative to the features' mean square. */
#define REFIT_RIDGE 1e-4

struct convert_calibration {
    struct block block; /* the layer in work, converted */
    void *qkv_panels, *out_panels;
    float *qkv_bias, *out_bias;
    struct probe *probe, *probe2; /* of the checkpoint, of the conversion */
    int window;                   /* tokens */
    float *stream;                /* [n_tokens, d] the residual stream before the layer */
    float *stream2;               /* the converted model's */
    float *middle;                /* the checkpoint's, after attention */
    float *rows, *rows2;          /* [window, d or q_dim], [window, d] */
    double *x, *y;                /* the same in double */
    double *x_sum, *y_sum;        /* [d or q_dim], [d] */
    double *energy_sum;           /* [d] */
    double energy;                /* of what attention adds, centred */
};

/* --- starting -------------------------------------------------------------------------------- */

/* Room for a converted matrix in panels of floats, the widest storage. */
static void *take_converted_panels(const struct converter *c, struct arena *arena,
                                   enum tensor_role role)
{
    const struct tensor_spec spec = layout_weight(&c->converted, role, 0);
    const uint64_t rows = (uint64_t)matrix_panels(spec.rows) * KERNEL_LANES;
    return arena_take(arena, rows * (uint64_t)spec.cols, sizeof(float));
}

void convert_calibration_take(struct converter *c, struct arena *arena)
{
    const uint64_t d = (uint64_t)c->d, n = c->spec->n_tokens;
    const uint64_t window = (uint64_t)c->config.n_ctx < n ? (uint64_t)c->config.n_ctx : n;
    const uint64_t most = (uint64_t)(c->q_dim > c->d ? c->q_dim : c->d);
    struct convert_calibration *k = c->calibration = arena_take(arena, 1, sizeof *k);
    const struct convert_calibration pieces = {
        .window = (int)window,
        .qkv_panels = take_converted_panels(c, arena, ROLE_ATTN_QKV),
        .out_panels = take_converted_panels(c, arena, ROLE_ATTN_OUTPUT),
        .qkv_bias = arena_take(arena, (uint64_t)config_qkv_dim(&c->converted, 0), sizeof(float)),
        .out_bias = arena_take(arena, d, sizeof(float)),
        .stream = arena_take(arena, n * d, sizeof(float)),
        .stream2 = arena_take(arena, n * d, sizeof(float)),
        .middle = arena_take(arena, n * d, sizeof(float)),
        .rows = arena_take(arena, window * most, sizeof(float)),
        .rows2 = arena_take(arena, window * d, sizeof(float)),
        .x = arena_take(arena, window * most, sizeof(double)),
        .y = arena_take(arena, window * d, sizeof(double)),
        .x_sum = arena_take(arena, most, sizeof(double)),
        .y_sum = arena_take(arena, d, sizeof(double)),
        .energy_sum = arena_take(arena, d, sizeof(double)),
    };
    if (k)
        *k = pieces;
}

/* Both streams begin as the embeddings. The first touch of so much memory may take long. */
static enum status embed_tokens(struct converter *c)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    for (size_t t = 0; t < c->spec->n_tokens; t++) {
        const int at = (int)(t % (size_t)k->window);
        if (at == 0 && convert_is_stopped(c->spec))
            return STATUS_INTERRUPTED;
        model_embed(c->model, probe_positions(k->probe), c->spec->tokens[t], at, k->stream + t * d);
        memcpy(k->stream2 + t * d, k->stream + t * d, d * sizeof *k->stream);
    }
    return STATUS_OK;
}

enum status convert_calibration_start(struct converter *c, struct err *e)
{
    struct convert_calibration *k = c->calibration;
    const size_t window = (size_t)k->window, n_windows = (c->spec->n_tokens + window - 1) / window;
    c->windows_all = (int)n_windows * c->config.n_layers * (c->spec->refit ? 3 : 2);
    const float *factors = c->model->w[ROLE_ROPE_FREQS].table;
    TRY(probe_create(&c->config, factors, k->window, c->spec->kernels, c->spec->pool, &k->probe,
                     e));
    TRY(probe_create(&c->converted, factors, k->window, c->spec->kernels, c->spec->pool, &k->probe2,
                     e));
    return embed_tokens(c);
}

void convert_calibration_end(struct converter *c)
{
    if (!c->calibration)
        return;
    probe_free(c->calibration->probe);
    probe_free(c->calibration->probe2);
}

/* --- windows --------------------------------------------------------------------------------- */

/* The next window from token `first` on: its tokens, 0 at the end. */
static int next_window(const struct converter *c, size_t first)
{
    const size_t left = c->spec->n_tokens - first;
    return left < (size_t)c->calibration->window ? (int)left : c->calibration->window;
}

/* After each window. */
static enum status window_done(struct converter *c)
{
    const struct convert_spec *spec = c->spec;
    c->windows_done++;
    if (spec->progress)
        spec->progress(spec->arg, c->windows_done, c->windows_all);
    return convert_is_stopped(spec) ? STATUS_INTERRUPTED : STATUS_OK;
}

static void widen(double *out, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)x[i];
}

static void widen_difference(double *out, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)x[i] - (double)y[i];
}

static void add_columns(double *sum, const double *x, int n, size_t d)
{
    for (int t = 0; t < n; t++)
        for (size_t i = 0; i < d; i++)
            sum[i] += x[(size_t)t * d + i];
}

static void clear_numbers(double *x, size_t n)
{
    memset(x, 0, n * sizeof *x);
}

/* --- moments --------------------------------------------------------------------------------- */

/* One window's normed inputs, in k->x, to the sums; its mean's square, n times, to moments.keys. */
static void add_moments(struct converter *c, int n)
{
    struct convert_calibration *k = c->calibration;
    const struct convert_moments *m = &c->moments;
    const size_t d = (size_t)c->d;
    convert_add_outer(c->spec->pool, m->second, k->x, k->x, n, c->d, c->d);
    clear_numbers(k->x_sum, d);
    add_columns(k->x_sum, k->x, n, d);
    for (size_t i = 0; i < d; i++) {
        m->mean[i] += k->x_sum[i];
        k->y_sum[i] = k->x_sum[i] / n;
    }
    convert_add_outer(c->spec->pool, m->keys, k->x_sum, k->y_sum, 1, c->d, c->d);
}

/* What attention adds to one window's rows, to the sums of its energy. */
static void add_energy(struct converter *c, const float *middle, const float *in, int n)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    widen_difference(k->x, middle, in, (size_t)n * d);
    k->energy += linalg_dot(k->x, k->x, (size_t)n * d);
    add_columns(k->energy_sum, k->x, n, d);
}

/* From sums to means. */
static void finish_moments(struct converter *c)
{
    const struct convert_moments *m = &c->moments;
    const size_t d = (size_t)c->d;
    const double n = (double)c->spec->n_tokens;
    for (size_t i = 0; i < d; i++)
        m->mean[i] /= n;
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) {
            const size_t at = i * d + j;
            m->second[at] /= n;
            m->keys[at] = m->second[at] - m->keys[at] / n;
            m->values[at] = m->second[at] - m->mean[i] * m->mean[j];
        }
    double *sum = c->calibration->energy_sum;
    c->calibration->energy -= linalg_dot(sum, sum, d) / n;
}

enum status convert_calibrate(struct converter *c, int layer)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    clear_numbers(c->moments.second, d * d);
    clear_numbers(c->moments.keys, d * d);
    clear_numbers(c->moments.mean, d);
    clear_numbers(k->energy_sum, d);
    k->energy = 0;
    int n;
    for (size_t first = 0; (n = next_window(c, first)) > 0; first += (size_t)n) {
        float *stream = k->stream + first * d;
        float *middle = k->middle + first * d;
        const struct block_taps taps = {
            .at = {[TAP_NORMED] = k->rows, [TAP_MIDDLE] = middle, [TAP_OUT] = k->rows2}};
        probe_run(k->probe, &c->model->blocks[layer], layer, stream, n, &taps);
        add_energy(c, middle, stream, n);
        memcpy(stream, k->rows2, (size_t)n * d * sizeof *stream);
        widen(k->x, k->rows, (size_t)n * d);
        add_moments(c, n);
        TRY(window_done(c));
    }
    finish_moments(c);
    return STATUS_OK;
}

/* Without text: the norm's output before gain and bias has any direction that sums to 0, and n
 * such numbers have the mean square 1. */
void convert_assume(struct converter *c, int layer)
{
    const struct norm *norm = &c->model->blocks[layer].w[ROLE_ATTN_NORM].norm;
    const struct convert_moments *m = &c->moments;
    const size_t d = (size_t)c->d;
    for (size_t i = 0; i < d; i++)
        m->mean[i] = norm->bias ? (double)norm->bias[i] : 0;
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) {
            const double identity = i == j ? 1 : d > 1 ? -1 / (double)(d - 1) : 0;
            const double covariance = identity * (double)norm->gain[i] * (double)norm->gain[j];
            m->keys[i * d + j] = m->values[i * d + j] = covariance;
            m->second[i * d + j] = covariance + m->mean[i] * m->mean[j];
        }
}

/* --- the converted layer --------------------------------------------------------------------- */

/* Panels of the tensors' bytes, so that what is measured is what will run. */
static void use_tensors(struct converter *c, int layer, bool out_too)
{
    struct convert_calibration *k = c->calibration;
    const struct convert_tensors *t = &c->tensors[layer];
    const struct block *old = &c->model->blocks[layer];
    k->block = *old;
    k->block.w[ROLE_ATTN_QKV].matrix =
        (struct matrix){.n_out = config_qkv_dim(&c->converted, layer),
                        .n_in = c->d,
                        .storage = old->w[ROLE_ATTN_QKV].matrix.storage,
                        .panels = k->qkv_panels,
                        .bias = k->qkv_bias};
    pack_matrix(k->qkv_panels, &k->block.w[ROLE_ATTN_QKV].matrix, 0, &t->qkv.weight.tensor, NULL);
    pack_floats(k->qkv_bias, &t->qkv.bias.tensor);
    if (!out_too)
        return;
    k->block.w[ROLE_ATTN_OUTPUT].matrix.panels = k->out_panels;
    k->block.w[ROLE_ATTN_OUTPUT].matrix.bias = k->out_bias;
    pack_matrix(k->out_panels, &k->block.w[ROLE_ATTN_OUTPUT].matrix, 0, &t->out.weight.tensor,
                NULL);
    pack_floats(k->out_bias, &t->out.bias.tensor);
}

/* From sums of products a^T b over the text, with a [n, m] and b [n, columns], to their covariance.
 */
static void centre_products(double *sums, const double *a_sum, int m, const double *b_sum,
                            int columns, double n)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < columns; j++) {
            double *at = sums + (size_t)i * (size_t)columns + j;
            *at = *at / n - a_sum[i] / n * (b_sum[j] / n);
        }
}

/* to.o = (F^T F + r I)^-1 (F^T Y + r o) for centred features F [n, q_dim] and targets Y [n, d]:
 * `features` [q_dim, q_dim] and `targets` [q_dim, d] are sums of products. Both are destroyed. */
static void solve_refit(struct converter *c, double *features, double *targets)
{
    const struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d, q = (size_t)c->q_dim;
    const double n = (double)c->spec->n_tokens;
    centre_products(features, k->x_sum, c->q_dim, k->x_sum, c->q_dim, n);
    centre_products(targets, k->x_sum, c->q_dim, k->y_sum, c->d, n);
    const double ridge = REFIT_RIDGE * linalg_trace(features, c->q_dim) / c->q_dim;
    if (!(ridge > 0)) /* attention adds nothing but constants */
        return;
    for (size_t i = 0; i < q * d; i++)
        targets[i] += ridge * c->to.o[i];
    linalg_cholesky(features, features, c->q_dim, ridge);
    linalg_solve_lower(features, c->q_dim, targets, c->d);
    linalg_solve_lower_transposed(features, c->q_dim, targets, c->d);
    memcpy(c->to.o, targets, q * d * sizeof *targets);
    for (size_t j = 0; j < d; j++)
        c->to.bo[j] = k->y_sum[j] / n;
    for (size_t i = 0; i < q; i++)
        for (size_t j = 0; j < d; j++)
            c->to.bo[j] -= k->x_sum[i] / n * c->to.o[i * d + j];
}

/* The target is where the checkpoint's residual stream is after attention, from where the
 * converted one's is before it. */
enum status convert_refit(struct converter *c, int layer)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d, q = (size_t)c->q_dim;
    assert(k && c->spec->refit);
    double *features = c->moments.second, *targets = c->moments.keys; /* no longer needed */
    clear_numbers(features, q * q);
    clear_numbers(targets, q * d);
    clear_numbers(k->x_sum, q);
    clear_numbers(k->y_sum, d);
    use_tensors(c, layer, false);
    int n;
    for (size_t first = 0; (n = next_window(c, first)) > 0; first += (size_t)n) {
        const float *stream = k->stream2 + first * d;
        const struct block_taps taps = {.at = {[TAP_HEADS] = k->rows}};
        probe_run(k->probe2, &k->block, layer, stream, n, &taps);
        widen(k->x, k->rows, (size_t)n * q);
        widen_difference(k->y, k->middle + first * d, stream, (size_t)n * d);
        convert_add_outer(c->spec->pool, features, k->x, k->x, n, c->q_dim, c->q_dim);
        convert_add_outer(c->spec->pool, targets, k->x, k->y, n, c->q_dim, c->d);
        add_columns(k->x_sum, k->x, n, q);
        add_columns(k->y_sum, k->y, n, d);
        TRY(window_done(c));
    }
    solve_refit(c, features, targets);
    return STATUS_OK;
}

enum status convert_advance(struct converter *c, int layer, double *lost)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    double sum = 0;
    use_tensors(c, layer, true);
    int n;
    for (size_t first = 0; (n = next_window(c, first)) > 0; first += (size_t)n) {
        float *stream = k->stream2 + first * d;
        const struct block_taps taps = {.at = {[TAP_MIDDLE] = k->rows, [TAP_OUT] = stream}};
        probe_run(k->probe2, &k->block, layer, stream, n, &taps);
        widen_difference(k->x, k->middle + first * d, k->rows, (size_t)n * d);
        sum += linalg_dot(k->x, k->x, (size_t)n * d);
        TRY(window_done(c));
    }
    *lost = k->energy > 0 ? sum / k->energy : 0;
    return STATUS_OK;
}
