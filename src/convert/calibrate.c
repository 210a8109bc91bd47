/*
 * The calibration text goes through the checkpoint and through its conversion side by side, layer
 * by layer: the residual streams of all windows are kept, so that each layer runs once as it was
 * and twice converted, for its refit and then for the layers behind it.
 */
#include <string.h>

#include "compute/linalg.h"
#include "convert/private.h"
#include "engine/probe.h"
#include "model/pack.h"

/* Pulls the refit towards the output matrix there was, relative to the features' mean square. */
#define REFIT_RIDGE 1e-4

/* --- starting -------------------------------------------------------------------------------- */

static size_t panel_elements(const struct matrix *w)
{
    return (size_t)matrix_panels(w->n_out) * (size_t)w->n_in * KERNEL_LANES;
}

/* Matrices of `layer` like the checkpoint's first layer's, converted. */
static void shape_layer(const struct converter *c, struct block *block)
{
    *block = (struct block){
        .w[ROLE_ATTN_QKV].matrix = {.n_out = c->d + 2 * c->n_groups * c->dim, .n_in = c->d},
        .w[ROLE_ATTN_OUTPUT].matrix = {.n_out = c->d, .n_in = c->d},
    };
}

void convert_carve_calibration(struct converter *c, struct convert_carver *carver)
{
    struct convert_calibration own = {.window = c->config.n_ctx};
    const uint64_t d = (uint64_t)c->d, n = c->spec->n_tokens;
    if ((uint64_t)own.window > n)
        own.window = (int)n;
    const uint64_t rows = (uint64_t)own.window * d;
    shape_layer(c, &own.block);
    struct convert_calibration *all = convert_carve(carver, 1, sizeof *all);
    own.qkv_panels =
        convert_carve(carver, panel_elements(&own.block.w[ROLE_ATTN_QKV].matrix), sizeof(float));
    own.out_panels =
        convert_carve(carver, panel_elements(&own.block.w[ROLE_ATTN_OUTPUT].matrix), sizeof(float));
    own.qkv_bias =
        convert_carve(carver, (uint64_t)own.block.w[ROLE_ATTN_QKV].matrix.n_out, sizeof(float));
    own.out_bias = convert_carve(carver, d, sizeof(float));
    own.stream = convert_carve(carver, n * d, sizeof(float));
    own.stream2 = convert_carve(carver, n * d, sizeof(float));
    own.middle = convert_carve(carver, n * d, sizeof(float));
    own.rows = convert_carve(carver, rows, sizeof(float));
    own.rows2 = convert_carve(carver, rows, sizeof(float));
    own.x = convert_carve(carver, rows, sizeof(double));
    own.y = convert_carve(carver, rows, sizeof(double));
    own.x_sum = convert_carve(carver, d, sizeof(double));
    own.y_sum = convert_carve(carver, d, sizeof(double));
    own.energy_sum = convert_carve(carver, d, sizeof(double));
    if (!carver->arena)
        return;
    *all = own;
    c->calibration = all;
}

static bool stopped(const struct convert_spec *spec)
{
    return spec->stop && spec->stop(spec->arg);
}

/* Both streams begin as the embeddings. The first touch of so much memory may take long. */
static enum status embed_tokens(struct converter *c)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    for (size_t t = 0; t < c->spec->n_tokens; t++) {
        const int at = (int)(t % (size_t)k->window);
        if (at == 0 && stopped(c->spec))
            return STATUS_INTERRUPTED;
        model_embed(c->model, c->spec->tokens[t], at, k->stream + t * d);
        memcpy(k->stream2 + t * d, k->stream + t * d, d * sizeof *k->stream);
    }
    return STATUS_OK;
}

enum status convert_calibration_start(struct converter *c, struct err *e)
{
    struct convert_calibration *k = c->calibration;
    struct config converted = c->config;
    converted.n_kv_heads = c->n_groups;
    const size_t window = (size_t)k->window, n_windows = (c->spec->n_tokens + window - 1) / window;
    c->windows_all = (int)n_windows * c->config.n_layers * (c->spec->refit ? 3 : 2);
    enum status s = embed_tokens(c);
    if (s == STATUS_OK)
        s = probe_create(&c->config, k->window, c->spec->kernels, c->spec->pool, &k->probe, e);
    if (s == STATUS_OK)
        s = probe_create(&converted, k->window, c->spec->kernels, c->spec->pool, &k->probe2, e);
    return s;
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
static enum status tell(struct converter *c)
{
    const struct convert_spec *spec = c->spec;
    c->windows_done++;
    if (spec->progress)
        spec->progress(spec->arg, c->windows_done, c->windows_all);
    return stopped(spec) ? STATUS_INTERRUPTED : STATUS_OK;
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

static void clear(double *x, size_t n)
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
    convert_add_outer(c->spec->pool, m->second, k->x, k->x, n, c->d);
    clear(k->x_sum, d);
    add_columns(k->x_sum, k->x, n, d);
    for (size_t i = 0; i < d; i++) {
        m->mean[i] += k->x_sum[i];
        k->y_sum[i] = k->x_sum[i] / n;
    }
    convert_add_outer(c->spec->pool, m->keys, k->x_sum, k->y_sum, 1, c->d);
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
    clear(c->moments.second, d * d);
    clear(c->moments.keys, d * d);
    clear(c->moments.mean, d);
    clear(k->energy_sum, d);
    k->energy = 0;
    int n;
    for (size_t first = 0; (n = next_window(c, first)) > 0; first += (size_t)n) {
        float *stream = k->stream + first * d;
        float *middle = k->middle + first * d;
        const struct block_taps taps = {
            .at = {[TAP_NORMED] = k->rows, [TAP_MIDDLE] = middle, [TAP_OUT] = k->rows2}};
        probe_run(k->probe, &c->model->blocks[layer], stream, n, &taps);
        add_energy(c, middle, stream, n);
        memcpy(stream, k->rows2, (size_t)n * d * sizeof *stream);
        widen(k->x, k->rows, (size_t)n * d);
        add_moments(c, n);
        const enum status s = tell(c);
        if (s != STATUS_OK)
            return s;
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
            const double unit = i == j ? 1 : d > 1 ? -1 / (double)(d - 1) : 0;
            const double covariance = unit * (double)norm->gain[i] * (double)norm->gain[j];
            m->keys[i * d + j] = m->values[i * d + j] = covariance;
            m->second[i * d + j] = covariance + m->mean[i] * m->mean[j];
        }
}

/* --- the converted layer --------------------------------------------------------------------- */

/* Panels of the tensors' bytes, so that what is measured is what will run. */
static void use_tensors(struct converter *c, int layer, const struct convert_tensors *t,
                        bool out_too)
{
    struct convert_calibration *k = c->calibration;
    const struct block *old = &c->model->blocks[layer];
    k->block = *old;
    k->block.w[ROLE_ATTN_QKV].matrix =
        (struct matrix){.n_out = c->d + 2 * c->n_groups * c->dim,
                        .n_in = c->d,
                        .storage = old->w[ROLE_ATTN_QKV].matrix.storage,
                        .panels = k->qkv_panels,
                        .bias = k->qkv_bias};
    pack_matrix(k->qkv_panels, &k->block.w[ROLE_ATTN_QKV].matrix, &t->qkv.tensor, NULL);
    pack_floats(k->qkv_bias, &t->qkv_bias.tensor);
    if (!out_too)
        return;
    k->block.w[ROLE_ATTN_OUTPUT].matrix.panels = k->out_panels;
    k->block.w[ROLE_ATTN_OUTPUT].matrix.bias = k->out_bias;
    pack_matrix(k->out_panels, &k->block.w[ROLE_ATTN_OUTPUT].matrix, &t->out.tensor, NULL);
    pack_floats(k->out_bias, &t->out_bias.tensor);
}

/* to.o = (F^T F + r I)^-1 (F^T Y + r o) for centred features F and targets Y, which are sums in
 * `features` and `targets`. Both are destroyed. */
static void solve_refit(struct converter *c, double *features, double *targets)
{
    const struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    const double n = (double)c->spec->n_tokens;
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) {
            const double mean = k->x_sum[i] / n;
            features[i * d + j] = features[i * d + j] / n - mean * (k->x_sum[j] / n);
            targets[i * d + j] = targets[i * d + j] / n - mean * (k->y_sum[j] / n);
        }
    const double ridge = REFIT_RIDGE * linalg_trace(features, c->d) / c->d;
    if (!(ridge > 0)) /* attention gives nothing but constants */
        return;
    for (size_t i = 0; i < d * d; i++)
        targets[i] += ridge * c->to.o[i];
    linalg_cholesky(features, features, c->d, ridge);
    linalg_solve_lower(features, c->d, targets, c->d);
    linalg_solve_lower_transposed(features, c->d, targets, c->d);
    memcpy(c->to.o, targets, d * d * sizeof *targets);
    for (size_t j = 0; j < d; j++)
        c->to.bo[j] = k->y_sum[j] / n;
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++)
            c->to.bo[j] -= k->x_sum[i] / n * c->to.o[i * d + j];
}

/* The target is where the checkpoint's residual stream is after attention, from where the
 * converted one's is before it. */
enum status convert_refit(struct converter *c, int layer, const struct convert_tensors *t)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    double *features = c->moments.second, *targets = c->moments.keys; /* no longer needed */
    clear(features, d * d);
    clear(targets, d * d);
    clear(k->x_sum, d);
    clear(k->y_sum, d);
    use_tensors(c, layer, t, false);
    int n;
    for (size_t first = 0; (n = next_window(c, first)) > 0; first += (size_t)n) {
        const float *stream = k->stream2 + first * d;
        const struct block_taps taps = {.at = {[TAP_HEADS] = k->rows}};
        probe_run(k->probe2, &k->block, stream, n, &taps);
        widen(k->x, k->rows, (size_t)n * d);
        widen_difference(k->y, k->middle + first * d, stream, (size_t)n * d);
        convert_add_outer(c->spec->pool, features, k->x, k->x, n, c->d);
        convert_add_outer(c->spec->pool, targets, k->x, k->y, n, c->d);
        add_columns(k->x_sum, k->x, n, d);
        add_columns(k->y_sum, k->y, n, d);
        const enum status s = tell(c);
        if (s != STATUS_OK)
            return s;
    }
    solve_refit(c, features, targets);
    return STATUS_OK;
}

enum status convert_advance(struct converter *c, int layer, const struct convert_tensors *t,
                            double *lost)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    double sum = 0;
    use_tensors(c, layer, t, true);
    int n;
    for (size_t first = 0; (n = next_window(c, first)) > 0; first += (size_t)n) {
        float *stream = k->stream2 + first * d;
        const struct block_taps taps = {.at = {[TAP_MIDDLE] = k->rows, [TAP_OUT] = stream}};
        probe_run(k->probe2, &k->block, stream, n, &taps);
        widen_difference(k->x, k->middle + first * d, k->rows, (size_t)n * d);
        sum += linalg_dot(k->x, k->x, (size_t)n * d);
        const enum status s = tell(c);
        if (s != STATUS_OK)
            return s;
    }
    *lost = k->energy > 0 ? sum / k->energy : 0;
    return STATUS_OK;
}
