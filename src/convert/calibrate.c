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
    const size_t first = w * c->window, at = first * c->d, left = c->spec->n_tokens - first;
    struct convert_window win = {.w = w,
                                 .n = MIN(left, c->window),
                                 .judged = !c->spec->measures_only &&
                                           w % CONVERT_JUDGED == CONVERT_JUDGED - 1,
                                 .original = c->stream + at,
                                 .middle = c->middle + at,
                                 .converted = c->stream2 + at};
    win.from = c->config.shared ? win.original : win.converted;
    return win;
}

enum status convert_windows_done(struct converter *c, int n)
{
    const struct convert_spec *spec = c->spec;
    c->done += n;
    if (n > 0 && spec->progress)
        spec->progress(spec->arg, c->done, c->all);
    return spec->stop && spec->stop(spec->arg) ? STATUS_INTERRUPTED : STATUS_OK;
}

/* --- starting -------------------------------------------------------------------------------- */

void convert_calibration_take(struct converter *c)
{
    const size_t n = c->spec->n_tokens, n_ctx = c->config.n_ctx, d = c->d;
    size_t window = MIN(n_ctx, n);
    if (!c->spec->measures_only)
        window = convert_window_size(n_ctx, n);
    const size_t layers = c->config.shared ? c->config.n_layers : 1, vocab = c->config.n_vocab;
    c->window = window;
    c->n_windows = (n + window - 1) / window;
    c->stream = convert_floats(c, n, d);
    c->stream2 = convert_floats(c, n, d);
    c->middle = convert_floats(c, n, d);
    c->rows = convert_floats(c, window, c->widest);
    c->rows2 = convert_floats(c, window, d);
    c->rows3 = convert_floats(c, window, d);
    c->x = convert_doubles(c, window, c->widest + 1);
    c->x_sum = convert_doubles(c, c->widest, 1);
    c->y_sum = convert_doubles(c, d, 1);
    c->energy = convert_doubles(c, layers, 1);
    c->energy_sum = convert_doubles(c, layers, d);
    c->lost = convert_doubles(c, layers, 1);
    ARENA_TAKE(c->own, &c->arena, layers);
    c->ridge.sums[0] =
        (struct convert_sums){c->value_moments, c->key_moments, c->x_sum, c->y_sum, 0};
    if (c->spec->refit) {
        c->ridge.sums[1] =
            (struct convert_sums){.features = convert_doubles(c, c->widest, c->widest),
                                  .targets = convert_doubles(c, c->widest, d),
                                  .f_sum = convert_doubles(c, c->widest, 1),
                                  .t_sum = convert_doubles(c, d, 1)};
        c->ridge.root = convert_doubles(c, c->widest, c->widest);
        c->ridge.w = convert_doubles(c, c->widest, d);
        c->ridge.b = convert_doubles(c, d, 1);
        c->ridge.error = convert_doubles(c, d, 1);
    }
    c->part = convert_floats(c, c->widest, c->widest);
    convert_used_take(c);
    if (c->spec->measures_only)
        return;
    const uint64_t step = ((uint64_t)window * vocab + MAX_LOGITS - 1) / MAX_LOGITS;
    const size_t rows = window / step + 1;
    c->step = step;
    c->logits = convert_floats(c, rows, vocab);
    c->changed = convert_floats(c, rows, vocab);
    c->log_sums = convert_doubles(c, rows, 1);
    ARENA_TAKE(c->batch, &c->arena, window);
}

/* Both streams begin as the embeddings. The first touch of so much memory may take long. */
static enum status embed_tokens(struct converter *c)
{
    for (size_t t = 0; t < c->spec->n_tokens; t++) {
        const size_t at = t % c->window;
        float *x = c->stream + t * c->d;
        if (at == 0)
            TRY(convert_windows_done(c, 0));
        model_embed(c->model, probe_positions(c->probe), c->spec->tokens[t], at, x);
        memcpy(c->stream2 + t * c->d, x, c->d * sizeof *x);
    }
    return STATUS_OK;
}

enum status convert_calibration_start(struct converter *c, struct err *e)
{
    const float *factors = c->model->w[ROLE_ROPE_FREQS].table;
    struct pool *pool = c->pool;
    c->kernels = c->spec->kernels;
    if (!c->kernels)
        TRY(kernels_choose(NULL, &c->kernels, e));
    c->grad = c->kernels->grad;
    TRY(probe_create(&c->config, factors, c->window, c->kernels, pool, &c->probe, e));
    TRY(probe_create(&c->converted, factors, c->window, c->kernels, pool, &c->probe2, e));
    TRY(embed_tokens(c));
    if (!c->batch)
        return STATUS_OK;
    const struct session_params params = {.n_ctx = c->window, .kernels = c->kernels};
    const int judged = c->n_windows / CONVERT_JUDGED;
    const int step = (judged + CONVERT_MEASURED - 1) / CONVERT_MEASURED;
    for (int i = 0; i < judged; i += step)
        c->measured[c->n_measured++] = (i + 1) * CONVERT_JUDGED - 1;
    for (size_t t = 0; t < c->window; t++)
        c->batch[t] = (struct batch_row){.position = t, .wants_logits = t % c->step == 0};
    return session_create(c->model, &params, pool, &c->session, e);
}

/* --- layers ---------------------------------------------------------------------------------- */

void convert_run_layer(const struct converter *c, int layer, const struct convert_window *win,
                       struct block_taps taps)
{
    probe_run(c->probe2, &c->used, layer, win->from, win->n, &taps);
}

enum status convert_each_window(struct converter *c, enum convert_windows which,
                                convert_visit *visit)
{
    const bool original = c->config.shared || which == CONVERT_ORIGINAL;
    if (c->config.shared)
        TRY(embed_tokens(c));
    for (int w = 0; w < c->n_windows; w++) {
        const struct convert_window win = convert_window_at(c, w);
        /* As it was: its input, the stream after attention, and behind it. */
        const struct block_taps taps = {
            .at = {[TAP_NORMED] = c->rows, [TAP_MIDDLE] = win.middle, [TAP_OUT] = c->rows2}};
        if (which == CONVERT_KEPT_ASIDE && !win.judged)
            continue;
        for (int l = c->block; l < c->end; l++) {
            if (original)
                probe_run(c->probe, &c->model->blocks[l], l, win.original, win.n, &taps);
            visit(c, l, &win);
            if (original)
                memcpy(win.original, c->rows2, win.n * c->d * sizeof *c->rows2);
            TRY(convert_windows_done(c, 1));
        }
    }
    return STATUS_OK;
}

double convert_squared_distance(struct converter *c, const float *x, const float *y, size_t n)
{
    double *difference = c->x;
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
            c->kernels->norm[c->config.norm](out + t * d, x + t * d, norm->gain, norm->bias, d,
                                             c->config.norm_eps);
}

/* --- moments --------------------------------------------------------------------------------- */

/* What attention adds, and its sum over the rows; then moments of its inputs. */
static void measure_window(struct converter *c, int layer, const struct convert_window *win)
{
    const size_t n = win->n, at = layer - c->block, d = c->d;
    c->energy[at] += convert_squared_distance(c, win->middle, win->original, n * d);
    for (size_t t = 0; t < n; t++)
        linalg_add_scaled(c->energy_sum + at * d, 1, c->x + t * d, d);
    if (win->judged)
        return;
    convert_add_outer_floats(c, c->value_moments,
                             convert_product_turned(c->part, c->rows, c->rows, d, n, d));
    convert_zero(c->x_sum, d);
    convert_add_rows(c->x_sum, c->rows, n, d);
    for (size_t i = 0; i < d; i++) {
        c->input_mean[i] += c->x_sum[i];
        c->y_sum[i] = c->x_sum[i] / n;
    }
    /* Its mean's square, n times. */
    convert_add_product(c, linalg_product_turned(c->key_moments, c->x_sum, c->y_sum, d, 1, d), d);
    c->n_fitted += n;
}

/* Without text: what the norm before a block gives, before gain and bias, has any direction or, if
 * it takes the mean away, any that sums to 0, and the mean square 1. Embeddings have no norm. */
static void assume_moments(struct converter *c)
{
    const struct block *b = c->model->blocks;
    const struct norm *norm = NULL;
    const size_t d = c->d;
    if (c->config.placement == PLACEMENT_BEFORE)
        norm = &b[c->block].w[ROLE_ATTN_NORM].norm;
    else if (c->end > 1)
        norm = &b[c->end - 2].w[ROLE_LAYER_OUTPUT_NORM].norm;
    const double across = norm && c->config.norm == NORM_LAYER && d > 1 ? -1 / (double)(d - 1) : 0;
    for (size_t i = 0; i < d; i++) {
        c->input_mean[i] = norm && norm->bias ? (double)norm->bias[i] : 0;
        for (size_t j = 0; j < d; j++) {
            const double gains = norm ? (double)norm->gain[i] * (double)norm->gain[j] : 1;
            c->key_moments[i * d + j] = c->value_moments[i * d + j] = (i == j ? 1 : across) * gains;
        }
    }
}

enum status convert_calibrate(struct converter *c)
{
    const size_t d = c->d, n_layers = c->end - c->block;
    if (!c->spec->n_tokens) {
        assume_moments(c);
        return STATUS_OK;
    }
    convert_zero(c->value_moments, d * d);
    convert_zero(c->key_moments, d * d);
    convert_zero(c->input_mean, d);
    convert_zero(c->energy, n_layers);
    convert_zero(c->energy_sum, n_layers * d);
    c->n_fitted = 0;
    TRY(convert_each_window(c, CONVERT_ORIGINAL, measure_window));
    const double n = c->n_fitted;
    for (size_t i = 0; i < d * d; i++)
        c->key_moments[i] = c->value_moments[i] / n - c->key_moments[i] / n;
    convert_finish_sums(c->value_moments, c->input_mean, c->input_mean, n, d, d);
    for (size_t i = 0; i < d; i++)
        c->input_mean[i] /= n;
    for (size_t l = 0; l < n_layers; l++) {
        const double *sum = c->energy_sum + l * d;
        c->energy[l] -= linalg_dot(sum, sum, d) / c->spec->n_tokens;
    }
    return STATUS_OK;
}

/* --- the converted block --------------------------------------------------------------------- */

/* One window through the converted layer, whose squared distance from the checkpoint's stream after
 * attention is lost; and from what the layer as it was makes of the same input. */
static void advance_window(struct converter *c, int layer, const struct convert_window *win)
{
    struct convert_window own = *win;
    struct convert_own *sums = &c->own[layer - c->block];
    float *before = c->rows3; /* rows2 is what layers that share a block go on from */
    const size_t d = c->d, rest = (win->n - 1) * d;
    own.from = own.converted;
    if (win->judged) {
        probe_run(c->probe, &c->model->blocks[layer], layer, own.converted, win->n,
                  &(struct block_taps){.at = {[TAP_MIDDLE] = before}});
        sums->first[1] += convert_squared_distance(c, before, own.converted, d);
        sums->attention[1] += convert_squared_distance(c, before + d, own.converted + d, rest);
    }
    convert_run_layer(
        c, layer, &own,
        (struct block_taps){.at = {[TAP_MIDDLE] = c->rows, [TAP_OUT] = own.converted}});
    if (win->judged) {
        sums->first[0] += convert_squared_distance(c, c->rows, before, d);
        sums->attention[0] += convert_squared_distance(c, c->rows + d, before + d, rest);
    }
    memset(before, 0, rest * sizeof *before);
    const float *behind = c->config.shared ? c->rows2 : win->original; /* the checkpoint's stream */
    sums->stream[0] += convert_squared_distance(c, own.converted + d, behind + d, rest);
    sums->stream[1] += convert_squared_distance(c, behind + d, before, rest);
    c->lost[layer - c->block] += convert_squared_distance(c, win->middle, c->rows, win->n * d);
}

static double share_of(const double sums[2])
{
    return sums[1] > 0 ? sums[0] / sums[1] : 0;
}

enum status convert_advance(struct converter *c, struct err *e)
{
    const int n_layers = c->end - c->block;
    convert_use(c);
    convert_zero(c->lost, n_layers);
    memset(c->own, 0, n_layers * sizeof *c->own);
    TRY(convert_each_window(c, CONVERT_ALL, advance_window));
    for (int i = 0; i < n_layers; i++) {
        const struct convert_own *own = &c->own[i];
        struct convert_layer *layer = &c->out->layers[c->block + i];
        layer->own = share_of(own->attention);
        layer->own_first = share_of(own->first);
        layer->gathered = share_of(own->stream);
        if (!isfinite(c->lost[i]) || !isfinite(c->energy[i]))
            return err_failed(e,
                              "layer %d: what attention adds to the calibration text is too large "
                              "for float; without a text the weights alone decide",
                              c->block + i);
        layer->output = c->energy[i] > 0 ? c->lost[i] / c->energy[i] : 0;
    }
    return STATUS_OK;
}

/* --- predictions ----------------------------------------------------------------------------- */

enum status convert_distance_add(struct converter *c, int layer, size_t n, const float *stream,
                                 double *sum, struct err *e)
{
    const size_t vocab = c->config.n_vocab, n_logits = (n + c->step - 1) / c->step;
    float *logits = sum ? c->changed : c->logits;
    session_rewind(c->session, 0, 0);
    TRY(session_enter(c->session, layer, stream, c->batch, n, logits, e));
    for (size_t r = 0; r < n_logits; r++) {
        double log_sum;
        TRY(logits_log_sum(logits + r * vocab, vocab, &log_sum, e));
        if (sum)
            *sum += logits_divergence(c->logits + r * vocab, c->log_sums[r], logits + r * vocab,
                                      log_sum, vocab) /
                    n_logits;
        else
            c->log_sums[r] = log_sum;
    }
    return STATUS_OK;
}
