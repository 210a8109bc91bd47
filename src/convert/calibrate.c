/*
 * Windows of a text through the checkpoint's layers and the converted ones, and how far apart their
 * predictions are.
 */
#include <math.h>

#include "convert/private.h"
#include "engine/sampler.h"

/* Logits that exist at once, of the checkpoint or changed. */
#define MAX_LOGITS (1 << 23)

/* --- windows --------------------------------------------------------------------------------- */

struct convert_window convert_window_at(const struct converter *c, int w)
{
    const struct convert_calibration *k = &c->text;
    const size_t first = w * k->window, at = first * c->d, left = c->spec->n_tokens - first;
    struct convert_window win = {
        .w = w,
        .n = left < k->window ? left : k->window,
        .judged = !c->spec->measures_only && w % CONVERT_JUDGED == CONVERT_JUDGED - 1,
        .original = k->stream + at,
        .middle = k->middle + at,
        .converted = k->stream2 + at,
    };
    win.from = c->config.shared ? win.original : win.converted;
    return win;
}

enum status convert_windows_done(struct converter *c, int n)
{
    const struct convert_spec *spec = c->spec;
    c->text.done += n;
    if (n > 0 && spec->progress)
        spec->progress(spec->arg, c->text.done, c->text.all);
    return spec->stop && spec->stop(spec->arg) ? STATUS_INTERRUPTED : STATUS_OK;
}

/* --- starting -------------------------------------------------------------------------------- */

void convert_calibration_take(struct converter *c)
{
    const size_t n = c->spec->n_tokens, n_ctx = c->config.n_ctx, d = c->d;
    size_t window = n_ctx < n ? n_ctx : n;
    if (!c->spec->measures_only)
        window = convert_window_size(n_ctx, n);
    const size_t layers = c->config.shared ? c->config.n_layers : 1;
    const size_t vocab = c->config.n_vocab;
    struct convert_calibration *k = &c->text;
    *k = (struct convert_calibration){
        .window = window,
        .n_windows = (n + window - 1) / window,
        .stream = convert_floats(c, n, d),
        .stream2 = convert_floats(c, n, d),
        .middle = convert_floats(c, n, d),
        .rows = convert_floats(c, window, c->widest),
        .rows2 = convert_floats(c, window, d),
        .rows3 = convert_floats(c, window, d),
        .x = convert_doubles(c, window, c->widest),
        .x_sum = convert_doubles(c, c->widest, 1),
        .y_sum = convert_doubles(c, d, 1),
        .energy = convert_doubles(c, layers, 1),
        .energy_sum = convert_doubles(c, layers, d),
        .lost = convert_doubles(c, layers, 1),
    };
    k->ridge = (struct convert_ridge){.features = c->moments.values,
                                      .targets = c->moments.keys,
                                      .f_sum = k->x_sum,
                                      .t_sum = k->y_sum};
    if (c->spec->refit)
        k->part = convert_floats(c, c->widest, c->widest);
    convert_used_take(c);
    if (c->spec->measures_only)
        return;
    const uint64_t step = ((uint64_t)window * vocab + MAX_LOGITS - 1) / MAX_LOGITS;
    const size_t rows = window / step + 1;
    c->distance = (struct convert_distance){
        .step = step,
        .logits = convert_floats(c, rows, vocab),
        .changed = convert_floats(c, rows, vocab),
        .log_sums = convert_doubles(c, rows, 1),
        .rows = arena_take(&c->arena, window, sizeof *c->distance.rows),
    };
}

/* Both streams begin as the embeddings. The first touch of so much memory may take long. */
static enum status embed_tokens(struct converter *c)
{
    const struct convert_calibration *k = &c->text;
    for (size_t t = 0; t < c->spec->n_tokens; t++) {
        const size_t at = t % k->window;
        float *x = k->stream + t * c->d;
        if (at == 0)
            TRY(convert_windows_done(c, 0));
        model_embed(c->model, probe_positions(k->probe), c->spec->tokens[t], at, x);
        memcpy(k->stream2 + t * c->d, x, c->d * sizeof *x);
    }
    return STATUS_OK;
}

enum status convert_calibration_start(struct converter *c, struct err *e)
{
    struct convert_calibration *k = &c->text;
    struct convert_distance *x = &c->distance;
    const float *factors = c->model->w[ROLE_ROPE_FREQS].table;
    struct pool *pool = c->spec->pool;
    k->kernels = c->spec->kernels;
    if (!k->kernels)
        TRY(kernels_choose(NULL, &k->kernels, e));
    k->grad = grad_kernels_for(k->kernels);
    TRY(probe_create(&c->config, factors, k->window, k->kernels, pool, &k->probe, e));
    TRY(probe_create(&c->converted, factors, k->window, k->kernels, pool, &k->probe2, e));
    TRY(embed_tokens(c));
    if (!x->rows)
        return STATUS_OK;
    const struct session_params params = {.n_ctx = k->window, .kernels = k->kernels};
    const int judged = k->n_windows / CONVERT_JUDGED;
    const int step = (judged + CONVERT_MEASURED - 1) / CONVERT_MEASURED;
    for (int i = 0; i < judged; i += step)
        x->windows[x->n_windows++] = (i + 1) * CONVERT_JUDGED - 1;
    for (size_t t = 0; t < k->window; t++)
        x->rows[t] = (struct batch_row){.position = t, .wants_logits = t % x->step == 0};
    return session_create(c->model, &params, pool, &x->session, e);
}

void convert_calibration_end(struct converter *c)
{
    probe_free(c->text.probe);
    probe_free(c->text.probe2);
    session_free(c->distance.session);
}

/* --- layers ---------------------------------------------------------------------------------- */

void convert_run_layer(const struct converter *c, int layer, const struct convert_window *win,
                       struct block_taps taps)
{
    probe_run(c->text.probe2, &c->used.block, layer, win->from, win->n, &taps);
}

enum status convert_each_window(struct converter *c, enum convert_windows which,
                                convert_visit *visit)
{
    const struct convert_calibration *k = &c->text;
    const bool original = c->config.shared || which == CONVERT_ORIGINAL;
    if (c->config.shared)
        TRY(embed_tokens(c));
    for (int w = 0; w < k->n_windows; w++) {
        const struct convert_window win = convert_window_at(c, w);
        /* As it was: its input, the stream after attention, and behind it. */
        const struct block_taps taps = {
            .at = {[TAP_NORMED] = k->rows, [TAP_MIDDLE] = win.middle, [TAP_OUT] = k->rows2}};
        if (win.judged ? which == CONVERT_FITTED : which == CONVERT_KEPT_ASIDE)
            continue;
        for (int l = c->first; l < c->end; l++) {
            if (original)
                probe_run(k->probe, &c->model->blocks[l], l, win.original, win.n, &taps);
            visit(c, l, &win);
            if (original)
                memcpy(win.original, k->rows2, win.n * c->d * sizeof *k->rows2);
            TRY(convert_windows_done(c, 1));
        }
    }
    return STATUS_OK;
}

double convert_squared_distance(struct converter *c, const float *x, const float *y, size_t n)
{
    double *difference = c->text.x;
    for (size_t i = 0; i < n; i++)
        difference[i] = (double)x[i] - (double)y[i];
    return linalg_dot(difference, difference, n);
}

void convert_norm_rows(const struct converter *c, enum tensor_role role, float *out, const float *x,
                       size_t n)
{
    const size_t d = c->d;
    const struct norm *norm = &c->model->blocks[c->block].w[role].norm;
    if (!layout_has(&c->config, role))
        memcpy(out, x, n * d * sizeof *out);
    else
        for (size_t t = 0; t < n; t++)
            c->text.kernels->norm[c->config.norm](out + t * d, x + t * d, norm->gain, norm->bias, d,
                                                  c->config.norm_eps);
}

/* --- moments --------------------------------------------------------------------------------- */

/* What attention adds, and its sum over the rows; then moments of its inputs. */
static void measure_window(struct converter *c, int layer, const struct convert_window *win)
{
    struct convert_calibration *k = &c->text;
    const struct convert_moments *m = &c->moments;
    const size_t n = win->n, at = layer - c->first, d = c->d;
    k->energy[at] += convert_squared_distance(c, win->middle, win->original, n * d);
    for (size_t t = 0; t < n; t++)
        linalg_add_scaled(k->energy_sum + at * d, 1, k->x + t * d, d);
    if (win->judged)
        return;
    for (size_t i = 0; i < n * d; i++)
        k->x[i] = (double)k->rows[i];
    convert_add_outer(c, m->values, k->x, k->x, n, d, d);
    convert_zero(k->x_sum, d);
    convert_add_rows(k->x_sum, k->rows, n, d);
    for (size_t i = 0; i < d; i++) {
        m->mean[i] += k->x_sum[i];
        k->y_sum[i] = k->x_sum[i] / n;
    }
    convert_add_outer(c, m->keys, k->x_sum, k->y_sum, 1, d, d); /* its mean's square, n times */
    k->n_fitted += n;
}

/* Without text: the output of the norm that a block's input comes from, at last, before gain and
 * bias has any direction, or, if it takes the mean away, any that sums to 0, and n such numbers
 * have the mean square 1. Embeddings have no norm. */
static void assume_moments(struct converter *c)
{
    const struct block *b = c->model->blocks;
    const struct norm *norm = NULL;
    const struct convert_moments *m = &c->moments;
    const size_t d = c->d;
    if (c->config.placement == PLACEMENT_BEFORE)
        norm = &b[c->block].w[ROLE_ATTN_NORM].norm;
    else if (c->end > 1)
        norm = &b[c->end - 2].w[ROLE_LAYER_OUTPUT_NORM].norm;
    const double across = norm && c->config.norm == NORM_LAYER && d > 1 ? -1 / (double)(d - 1) : 0;
    for (size_t i = 0; i < d; i++) {
        m->mean[i] = norm && norm->bias ? (double)norm->bias[i] : 0;
        for (size_t j = 0; j < d; j++) {
            const double gains = norm ? (double)norm->gain[i] * (double)norm->gain[j] : 1;
            m->keys[i * d + j] = m->values[i * d + j] = (i == j ? 1 : across) * gains;
        }
    }
}

enum status convert_calibrate(struct converter *c)
{
    struct convert_calibration *k = &c->text;
    const struct convert_moments *m = &c->moments;
    const size_t d = c->d, n_layers = c->end - c->first;
    if (!c->spec->n_tokens) {
        assume_moments(c);
        return STATUS_OK;
    }
    convert_zero(m->values, d * d);
    convert_zero(m->keys, d * d);
    convert_zero(m->mean, d);
    convert_zero(k->energy, n_layers);
    convert_zero(k->energy_sum, n_layers * d);
    k->n_fitted = 0;
    TRY(convert_each_window(c, CONVERT_ORIGINAL, measure_window));
    const double n = k->n_fitted;
    for (size_t i = 0; i < d * d; i++)
        m->keys[i] = m->values[i] / n - m->keys[i] / n;
    convert_finish_sums(m->values, m->mean, m->mean, n, d, d);
    for (size_t i = 0; i < d; i++)
        m->mean[i] /= n;
    for (size_t l = 0; l < n_layers; l++) {
        const double *sum = k->energy_sum + l * d;
        k->energy[l] -= linalg_dot(sum, sum, d) / (double)c->spec->n_tokens;
    }
    return STATUS_OK;
}

/* --- the converted block --------------------------------------------------------------------- */

/* One window through the converted layer, whose squared distance from the checkpoint's stream after
 * attention is lost. */
static void advance_window(struct converter *c, int layer, const struct convert_window *win)
{
    struct convert_calibration *k = &c->text;
    struct convert_window own = *win;
    own.from = own.converted;
    convert_run_layer(
        c, layer, &own,
        (struct block_taps){.at = {[TAP_MIDDLE] = k->rows, [TAP_OUT] = own.converted}});
    k->lost[layer - c->first] += convert_squared_distance(c, win->middle, k->rows, win->n * c->d);
}

enum status convert_advance(struct converter *c, struct err *e)
{
    struct convert_calibration *k = &c->text;
    const int n_layers = c->end - c->first;
    convert_use(c);
    convert_zero(k->lost, n_layers);
    TRY(convert_each_window(c, CONVERT_ALL, advance_window));
    for (int i = 0; i < n_layers; i++) {
        if (!isfinite(k->lost[i]) || !isfinite(k->energy[i]))
            return err_set(e, STATUS_FAILED,
                           "layer %d: what attention adds to the calibration text is too large for "
                           "float; without a text the weights alone decide",
                           c->first + i);
        k->lost[i] = k->energy[i] > 0 ? k->lost[i] / k->energy[i] : 0;
    }
    return STATUS_OK;
}

/* --- predictions ----------------------------------------------------------------------------- */

enum status convert_distance_add(struct converter *c, int layer, size_t n, const float *stream,
                                 double *sum, struct err *e)
{
    const struct convert_distance *x = &c->distance;
    const size_t vocab = c->config.n_vocab, n_logits = (n + x->step - 1) / x->step;
    float *logits = sum ? x->changed : x->logits;
    session_rewind(x->session, 0, 0);
    TRY(session_enter(x->session, layer, stream, x->rows, n, logits, e));
    for (size_t r = 0; r < n_logits; r++) {
        double log_sum;
        TRY(logits_log_sum(logits + r * vocab, vocab, &log_sum, e));
        if (sum)
            *sum += logits_divergence(x->logits + r * vocab, x->log_sums[r], logits + r * vocab,
                                      log_sum, vocab) /
                    n_logits;
        else
            x->log_sums[r] = log_sum;
    }
    return STATUS_OK;
}
