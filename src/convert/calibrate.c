#include "convert/calibrate.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "compute/linalg.h"
#include "convert/products.h"

/* --- starting -------------------------------------------------------------------------------- */

void convert_calibration_take(struct converter *c, struct arena *arena)
{
    const uint64_t n = c->spec->n_tokens;
    const int d = c->d, widest = c->widest, layers = c->config.shared ? c->config.n_layers : 1;
    const int window = convert_window_tokens(c);
    struct convert_calibration *k = c->calibration = arena_take(arena, 1, sizeof *k);
    c->lost = convert_take_doubles(arena, layers, 1);
    struct convert_calibration pieces = {
        .window = window,
        .n_windows = (int)((n + (uint64_t)window - 1) / (uint64_t)window),
        .used = convert_used_take(c, arena),
        .stream = convert_take_floats(arena, n, d),
        .stream2 = convert_take_floats(arena, n, d),
        .middle = convert_take_floats(arena, n, d),
        .rows = convert_take_floats(arena, (uint64_t)window, widest),
        .rows2 = convert_take_floats(arena, (uint64_t)window, d),
        .rows3 = convert_take_floats(arena, (uint64_t)window, d),
        .x = convert_take_doubles(arena, window, widest),
        .x_sum = convert_take_doubles(arena, widest, 1),
        .y_sum = convert_take_doubles(arena, d, 1),
        .energy = convert_take_doubles(arena, layers, 1),
        .energy_sum = convert_take_doubles(arena, layers, d),
    };
    if (convert_has_plain(c))
        pieces.plain = convert_take_floats(
            arena, (uint64_t)(pieces.n_windows / CONVERT_JUDGED) * (uint64_t)window, d);
    if (c->spec->refit)
        pieces.summing.part = convert_take_floats(arena, (uint64_t)widest, widest);
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
    const float *factors = c->model->w[ROLE_ROPE_FREQS].table;
    k->kernels = c->spec->kernels;
    if (!k->kernels)
        TRY(kernels_choose(NULL, &k->kernels, e));
    k->grad = grad_kernels_for(k->kernels);
    k->summing.pool = c->spec->pool;
    k->summing.grad = k->grad;
    TRY(probe_create(&c->config, factors, k->window, k->kernels, c->spec->pool, &k->probe, e));
    TRY(probe_create(&c->converted, factors, k->window, k->kernels, c->spec->pool, &k->probe2, e));
    TRY(embed_tokens(c));
    for (int w = CONVERT_JUDGED - 1; w < k->n_windows && k->plain; w += CONVERT_JUDGED)
        memcpy(convert_plain_window(c, w), convert_window(c, k->stream, w),
               (size_t)convert_window_length(c, w) * (size_t)c->d * sizeof *k->plain);
    return STATUS_OK;
}

void convert_calibration_end(struct converter *c)
{
    if (!c->calibration)
        return;
    probe_free(c->calibration->probe);
    probe_free(c->calibration->probe2);
}

/* --- windows --------------------------------------------------------------------------------- */

int convert_window_length(const struct converter *c, int w)
{
    const struct convert_calibration *k = c->calibration;
    const size_t left = c->spec->n_tokens - convert_window_first(k, w);
    return left < (size_t)k->window ? (int)left : k->window;
}

enum status convert_windows_done(struct converter *c, int n)
{
    const struct convert_spec *spec = c->spec;
    c->windows_done += (uint64_t)n;
    if (spec->progress)
        spec->progress(spec->arg, c->windows_done, c->windows_all);
    return convert_is_stopped(spec) ? STATUS_INTERRUPTED : STATUS_OK;
}

static void clear_numbers(double *x, size_t n)
{
    memset(x, 0, n * sizeof *x);
}

static void add_columns(double *sum, const double *x, int n, size_t d)
{
    for (int t = 0; t < n; t++)
        for (size_t i = 0; i < d; i++)
            sum[i] += x[(size_t)t * d + i];
}

/* --- the checkpoint's layers ----------------------------------------------------------------- */

/* Runs a layer as it was over a window's stream: its input goes to k->rows, where the stream is
 * after attention to k->middle, and after the layer to k->rows2; and then takes the stream there.
 */
static void run_original(struct converter *c, int layer, int w)
{
    struct convert_calibration *k = c->calibration;
    const struct block_taps taps = {.at = {[TAP_NORMED] = k->rows,
                                           [TAP_MIDDLE] = convert_window(c, k->middle, w),
                                           [TAP_OUT] = k->rows2}};
    probe_run(k->probe, &c->model->blocks[layer], layer, convert_window(c, k->stream, w),
              convert_window_length(c, w), &taps);
}

static void step_stream(struct converter *c, int w)
{
    const struct convert_calibration *k = c->calibration;
    memcpy(convert_window(c, k->stream, w), k->rows2,
           (size_t)convert_window_length(c, w) * (size_t)c->d * sizeof *k->stream);
}

static bool is_among(const struct converter *c, enum convert_windows which, int w)
{
    return which == CONVERT_ALL || convert_is_judged(c, w) == (which == CONVERT_KEPT_ASIDE);
}

enum status convert_each_window(struct converter *c, enum convert_windows which, void *arg,
                                void (*visit)(void *arg, int layer, int w))
{
    const bool shared = c->config.shared;
    if (shared)
        TRY(embed_tokens(c));
    for (int w = 0; w < c->calibration->n_windows; w++) {
        if (!is_among(c, which, w))
            continue;
        for (int l = c->first; l < c->end; l++) {
            if (shared)
                run_original(c, l, w);
            visit(arg, l, w);
            if (shared)
                step_stream(c, w);
            TRY(convert_windows_done(c, 1));
        }
    }
    return STATUS_OK;
}

double convert_squared_distance(struct convert_calibration *k, const float *x, const float *y,
                                size_t n)
{
    convert_widen_difference(k->x, x, y, n);
    return linalg_dot(k->x, k->x, n);
}

const float *convert_stream(const struct converter *c, int w)
{
    const struct convert_calibration *k = c->calibration;
    return convert_window(c, c->config.shared ? k->stream : k->stream2, w);
}

void convert_norm_rows(const struct converter *c, enum tensor_role role, float *out, const float *x,
                       int n)
{
    const size_t d = (size_t)c->d;
    const struct norm *norm = &c->model->blocks[c->block].w[role].norm;
    for (size_t t = 0; t < (size_t)n; t++)
        if (layout_has(&c->config, role))
            c->calibration->kernels->norm[c->config.norm](out + t * d, x + t * d, norm->gain,
                                                          norm->bias, c->d, c->config.norm_eps);
        else
            memcpy(out + t * d, x + t * d, d * sizeof *out);
}

/* --- moments --------------------------------------------------------------------------------- */

/* One window's inputs, in k->x, to the sums; its mean's square, n times, to moments.keys. */
static void add_moments(struct converter *c, int n)
{
    struct convert_calibration *k = c->calibration;
    const struct convert_moments *m = &c->moments;
    const size_t d = (size_t)c->d;
    convert_add_outer(c->spec->pool, m->values, k->x, k->x, n, c->d, c->d);
    clear_numbers(k->x_sum, d);
    add_columns(k->x_sum, k->x, n, d);
    for (size_t i = 0; i < d; i++) {
        m->mean[i] += k->x_sum[i];
        k->y_sum[i] = k->x_sum[i] / n;
    }
    convert_add_outer(c->spec->pool, m->keys, k->x_sum, k->y_sum, 1, c->d, c->d);
}

/* What attention adds to one window's rows, to the sums of its energy. */
static void add_energy(struct converter *c, int layer, int w, int n)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d, at = (size_t)(layer - c->first);
    convert_widen_difference(k->x, convert_window(c, k->middle, w), convert_window(c, k->stream, w),
                             (size_t)n * d);
    k->energy[at] += linalg_dot(k->x, k->x, (size_t)n * d);
    add_columns(k->energy_sum + at * d, k->x, n, d);
}

/* From sums over n_fitted tokens to means. */
static void finish_moments(struct converter *c, double n_fitted)
{
    struct convert_calibration *k = c->calibration;
    const struct convert_moments *m = &c->moments;
    const size_t d = (size_t)c->d, n_layers = (size_t)(c->end - c->first);
    const double n = n_fitted * (double)n_layers;
    for (size_t i = 0; i < d; i++)
        m->mean[i] /= n;
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) {
            const size_t at = i * d + j;
            const double second = m->values[at] / n;
            m->keys[at] = second - m->keys[at] / n;
            m->values[at] = second - m->mean[i] * m->mean[j];
        }
    for (size_t l = 0; l < n_layers; l++) {
        const double *sum = k->energy_sum + l * d;
        k->energy[l] -= linalg_dot(sum, sum, d) / (double)c->spec->n_tokens;
    }
}

enum status convert_calibrate(struct converter *c)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d, n_layers = (size_t)(c->end - c->first);
    clear_numbers(c->moments.values, d * d);
    clear_numbers(c->moments.keys, d * d);
    clear_numbers(c->moments.mean, d);
    clear_numbers(k->energy, n_layers);
    clear_numbers(k->energy_sum, n_layers * d);
    double n_fitted = 0;
    for (int w = 0; w < k->n_windows; w++) {
        const int n = convert_window_length(c, w);
        const bool fitted = !convert_is_judged(c, w);
        n_fitted += fitted ? n : 0;
        for (int l = c->first; l < c->end; l++) {
            run_original(c, l, w);
            add_energy(c, l, w, n);
            convert_widen(k->x, k->rows, (size_t)n * d);
            if (fitted)
                add_moments(c, n);
            step_stream(c, w);
            TRY(convert_windows_done(c, 1));
        }
    }
    finish_moments(c, n_fitted);
    return STATUS_OK;
}

/* The norm whose output a block takes, at last; NULL for embeddings. */
static const struct norm *norm_before(const struct converter *c)
{
    const struct block *b = c->model->blocks;
    if (c->config.placement == PLACEMENT_BEFORE)
        return &b[c->block].w[ROLE_ATTN_NORM].norm;
    return c->end > 1 ? &b[c->end - 2].w[ROLE_LAYER_OUTPUT_NORM].norm : NULL;
}

/* Without text: a norm's output before gain and bias has any direction, or, if it takes the mean
 * away, any that sums to 0, and n such numbers have the mean square 1. */
void convert_assume(struct converter *c)
{
    const struct norm *norm = norm_before(c);
    const struct convert_moments *m = &c->moments;
    const size_t d = (size_t)c->d;
    const double across = norm && c->config.norm == NORM_LAYER && d > 1 ? -1 / (double)(d - 1) : 0;
    for (size_t i = 0; i < d; i++)
        m->mean[i] = norm && norm->bias ? (double)norm->bias[i] : 0;
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) {
            const double gains = norm ? (double)norm->gain[i] * (double)norm->gain[j] : 1;
            m->keys[i * d + j] = m->values[i * d + j] = (i == j ? 1 : across) * gains;
        }
}

/* --- the converted block --------------------------------------------------------------------- */

/* One window through the converted layer, whose squared distance from the checkpoint's stream after
 * attention is lost. */
static void advance_window(void *arg, int layer, int w)
{
    struct converter *c = arg;
    struct convert_calibration *k = c->calibration;
    const int n = convert_window_length(c, w);
    const size_t size = (size_t)n * (size_t)c->d;
    float *stream = convert_window(c, k->stream2, w);
    const struct block_taps taps = {.at = {[TAP_MIDDLE] = k->rows, [TAP_OUT] = stream}};
    probe_run(k->probe2, &k->used.block, layer, stream, n, &taps);
    c->lost[layer - c->first] +=
        convert_squared_distance(k, convert_window(c, k->middle, w), k->rows, size);
}

enum status convert_advance(struct converter *c, struct err *e)
{
    struct convert_calibration *k = c->calibration;
    convert_use(c, &k->used);
    clear_numbers(c->lost, (size_t)(c->end - c->first));
    TRY(convert_each_window(c, CONVERT_ALL, c, advance_window));
    for (int i = 0; i < c->end - c->first; i++) {
        if (!isfinite(c->lost[i]) || !isfinite(k->energy[i]))
            return err_set(e, STATUS_FAILED,
                           "layer %d: what attention adds to the calibration text is too large for "
                           "float; without a text the weights alone decide",
                           c->first + i);
        c->lost[i] = k->energy[i] > 0 ? c->lost[i] / k->energy[i] : 0;
    }
    return STATUS_OK;
}

static void advance_plain_window(void *arg, int layer, int w)
{
    struct converter *c = arg;
    struct convert_calibration *k = c->calibration;
    float *stream = convert_plain_window(c, w);
    const struct block_taps taps = {.at = {[TAP_OUT] = stream}};
    probe_run(k->probe2, &k->used.block, layer, stream, convert_window_length(c, w), &taps);
}

enum status convert_advance_plain(struct converter *c)
{
    convert_use(c, &c->calibration->used);
    return convert_each_window(c, CONVERT_KEPT_ASIDE, c, advance_plain_window);
}
