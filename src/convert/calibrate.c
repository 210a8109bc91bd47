/*
 * A calibration text, and its windows through the checkpoint's layers and the converted ones.
 */
#include "convert/private.h"

#include <math.h>

/* --- the text ------------------------------------------------------------------------------ */

/* The most bytes of a text that are read: the larger of this, and so many for each token that is
 * wanted. */
#define TEXT_BYTES  ((size_t)16 << 20)
#define TOKEN_BYTES 64

/* Keeps about `wanted` of the tokens, in whole windows at equal distances. */
static void spread_windows(struct text_sample *text, size_t wanted, int n_ctx)
{
    const size_t window = convert_window_size(n_ctx, wanted);
    const size_t n_windows = wanted / window, step = (text->n - window) / (n_windows - 1);
    for (size_t i = 1; i < n_windows; i++)
        memmove(text->tokens + i * window, text->tokens + i * step, window * sizeof *text->tokens);
    text->n = n_windows * window;
}

enum status text_sample_take(const struct tokenizer *t, int n_ctx, struct text text, size_t wanted,
                             struct text_sample *out, struct err *e)
{
    const size_t most = MAX(TEXT_BYTES, TOKEN_BYTES * wanted);
    if (text.len > most)
        for (text.len = most;
             text.len > 0 && (text.data[text.len] & 0xc0) == 0x80;) /* to the end of a character */
            text.len--;
    TRY(tokenizer_encode(t, text, false, &out->tokens, &out->n, e));
    if (out->n < CONVERT_MIN_TOKENS)
        return err_usage(e, "expected a text of at least %d tokens, found %zu", CONVERT_MIN_TOKENS,
                         out->n);
    if (out->n > wanted)
        spread_windows(out, wanted, n_ctx);
    return STATUS_OK;
}

/* --- windows --------------------------------------------------------------------------------- */

struct convert_window convert_window_at(const struct converter *c, int w)
{
    const size_t first = w * c->calib.window, at = first * c->d, left = c->spec->n_tokens - first;
    struct convert_window win = {.n = MIN(left, c->calib.window),
                                 .held_out =
                                     w % CONVERT_HELD_OUT_EVERY == CONVERT_HELD_OUT_EVERY - 1,
                                 .original = c->calib.original + at,
                                 .middle = c->calib.middle + at,
                                 .converted = c->calib.converted + at};
    win.from = c->config.shared ? win.original : win.converted;
    return win;
}

enum status convert_windows_done(struct converter *c, int n)
{
    const struct convert_spec *spec = c->spec;
    c->done += n;
    if (n > 0)
        callbacks_progress(&spec->callbacks, c->done, c->all);
    return callbacks_stop(&spec->callbacks) ? STATUS_INTERRUPTED : STATUS_OK;
}

/* --- starting -------------------------------------------------------------------------------- */

void convert_calibration_allocate(struct converter *c)
{
    const size_t n = c->spec->n_tokens, d = c->d;
    const size_t window = convert_window_size(c->config.n_ctx, n);
    const size_t layers = c->config.shared ? c->config.n_layers : 1;
    c->calib.window = window;
    c->calib.n_windows = (n + window - 1) / window;
    c->calib.original = convert_floats(c, n, d);
    c->calib.converted = convert_floats(c, n, d);
    c->calib.middle = convert_floats(c, n, d);
    c->scratch.rows = convert_floats(c, window, c->widest);
    c->scratch.rows2 = convert_floats(c, window, d);
    c->scratch.rows3 = convert_floats(c, window, d);
    c->scratch.x = convert_doubles(c, window, c->widest + 1);
    c->scratch.x_sum = convert_doubles(c, c->widest, 1);
    c->scratch.y_sum = convert_doubles(c, d, 1);
    c->calib.energy = convert_doubles(c, layers, 1);
    c->calib.energy_sum = convert_doubles(c, layers, d);
    c->calib.lost = convert_doubles(c, layers, 1);
    c->scratch.float_product = convert_floats(c, c->widest, c->widest);
}

/* Fills both streams with the embeddings, and asks at every window whether to stop, because the
 * first touch of so much memory may take long. */
static enum status embed_tokens(struct converter *c)
{
    for (size_t t = 0; t < c->spec->n_tokens; t++) {
        const size_t at = t % c->calib.window;
        float *x = c->calib.original + t * c->d;
        if (at == 0)
            TRY(convert_windows_done(c, 0));
        probe_embed(c->calib.probe, c->model, c->spec->tokens[t], at, x);
        memcpy(c->calib.converted + t * c->d, x, c->d * sizeof *x);
    }
    return STATUS_OK;
}

enum status convert_calibration_open(struct converter *c, struct err *e)
{
    const float *factors = c->model->w[ROLE_ROPE_FREQS].table;
    c->kernels = c->spec->kernels;
    if (!c->kernels)
        TRY(kernels_choose(NULL, &c->kernels, e));
    c->grad = c->kernels->grad;
    TRY(probe_create(&c->config, factors, c->calib.window, c->kernels, c->spec->pool,
                     &c->calib.probe, e));
    TRY(probe_create(&c->converted, factors, c->calib.window, c->kernels, c->spec->pool,
                     &c->calib.probe_converted, e));
    return embed_tokens(c);
}

/* --- layers ---------------------------------------------------------------------------------- */

void convert_run_layer(const struct converter *c, int layer, const struct convert_window *win,
                       struct block_taps taps)
{
    probe_run(c->calib.probe_converted, &c->block.loaded, layer, win->from, win->n, &taps);
}

enum status convert_each_window(struct converter *c, enum convert_windows which,
                                convert_visit *visit)
{
    const bool original = c->config.shared || which == CONVERT_ORIGINAL;
    if (c->config.shared)
        TRY(embed_tokens(c));
    for (int w = 0; w < c->calib.n_windows; w++) {
        const struct convert_window win = convert_window_at(c, w);
        /* The layer's input, the stream after its attention, and its output. */
        const struct block_taps taps = {.at = {[TAP_NORMED] = c->scratch.rows,
                                               [TAP_MIDDLE] = win.middle,
                                               [TAP_OUT] = c->scratch.rows2}};
        if (which == CONVERT_HELD_OUT && !win.held_out)
            continue;
        for (int l = c->block.index; l < c->block.end; l++) {
            if (original)
                probe_run(c->calib.probe, &c->model->blocks[l], l, win.original, win.n, &taps);
            visit(c, l, &win);
            if (original)
                memcpy(win.original, c->scratch.rows2, win.n * c->d * sizeof *c->scratch.rows2);
            TRY(convert_windows_done(c, 1));
        }
    }
    return STATUS_OK;
}

double convert_squared_distance(struct converter *c, const float *x, const float *y, size_t n)
{
    double *difference = c->scratch.x;
    for (size_t i = 0; i < n; i++)
        difference[i] = (double)x[i] - (double)y[i];
    return linalg_dot(difference, difference, n);
}

/* --- moments --------------------------------------------------------------------------------- */

/* Adds a window to the energy and the sum of what attention adds, and, unless the window is held
 * out, to the moments of attention's input. */
static void measure_window(struct converter *c, int layer, const struct convert_window *win)
{
    const size_t n = win->n, at = layer - c->block.index, d = c->d;
    c->calib.energy[at] += convert_squared_distance(c, win->middle, win->original, n * d);
    for (size_t t = 0; t < n; t++)
        linalg_add_scaled(c->calib.energy_sum + at * d, 1, c->scratch.x + t * d, d);
    if (win->held_out)
        return;
    convert_add_gram(c, c->calib.value_moments, c->scratch.rows, d, c->scratch.rows, d, n);
    convert_zero(c->scratch.x_sum, d);
    convert_add_rows(c->scratch.x_sum, c->scratch.rows, n, d);
    for (size_t i = 0; i < d; i++) {
        c->calib.input_mean[i] += c->scratch.x_sum[i];
        c->scratch.y_sum[i] = c->scratch.x_sum[i] / n;
    }
    /* Adds n times the square of the window's mean, which the second moments lose later. */
    convert_add_product(
        c, linalg_product_turned(c->calib.key_moments, c->scratch.x_sum, c->scratch.y_sum, d, 1, d),
        d);
    c->calib.n_fitted += n;
}

/* Assumes moments, because there is no text: what the norm before a block gives, before gain and
 * bias, has a mean square of 1 and any direction with equal probability; if the norm takes the mean
 * away, any direction whose elements sum to 0. Embeddings without a norm count as outputs of one.
 */
static void assume_moments(struct converter *c)
{
    const struct block *b = c->model->blocks;
    const struct norm *norm = NULL;
    const size_t d = c->d;
    if (c->config.placement != PLACEMENT_AFTER)
        norm = &b[c->block.index].w[ROLE_ATTN_NORM].norm;
    else if (c->block.end > 1)
        norm = &b[c->block.end - 2].w[ROLE_LAYER_OUTPUT_NORM].norm;
    const double across = norm && c->config.norm == NORM_LAYER && d > 1 ? -1 / (double)(d - 1) : 0;
    for (size_t i = 0; i < d; i++) {
        c->calib.input_mean[i] = norm && norm->bias ? (double)norm->bias[i] : 0;
        for (size_t j = 0; j < d; j++) {
            const double gains =
                norm && norm->gain ? (double)norm->gain[i] * (double)norm->gain[j] : 1;
            c->calib.key_moments[i * d + j] = c->calib.value_moments[i * d + j] =
                (i == j ? 1 : across) * gains;
        }
    }
}

enum status convert_calibrate(struct converter *c)
{
    const size_t d = c->d, n_layers = c->block.end - c->block.index;
    if (!c->spec->n_tokens) {
        assume_moments(c);
        return STATUS_OK;
    }
    convert_zero(c->calib.value_moments, d * d);
    convert_zero(c->calib.key_moments, d * d);
    convert_zero(c->calib.input_mean, d);
    convert_zero(c->calib.energy, n_layers);
    convert_zero(c->calib.energy_sum, n_layers * d);
    c->calib.n_fitted = 0;
    TRY(convert_each_window(c, CONVERT_ORIGINAL, measure_window));
    const double n = c->calib.n_fitted;
    for (size_t i = 0; i < d * d; i++)
        c->calib.key_moments[i] = c->calib.value_moments[i] / n - c->calib.key_moments[i] / n;
    convert_sums_to_moments(c->calib.value_moments, c->calib.input_mean, c->calib.input_mean, n, d,
                            d);
    for (size_t i = 0; i < d; i++)
        c->calib.input_mean[i] /= n;
    for (size_t l = 0; l < n_layers; l++) {
        const double *sum = c->calib.energy_sum + l * d;
        c->calib.energy[l] -= linalg_dot(sum, sum, d) / c->spec->n_tokens;
    }
    return STATUS_OK;
}

/* --- the converted block --------------------------------------------------------------------- */

/* Takes one window through the converted layer. Its squared distance from the checkpoint's stream
 * after attention counts as lost. */
static void advance_window(struct converter *c, int layer, const struct convert_window *win)
{
    struct convert_window from = *win;
    from.from = from.converted;
    convert_run_layer(
        c, layer, &from,
        (struct block_taps){.at = {[TAP_MIDDLE] = c->scratch.rows, [TAP_OUT] = from.converted}});
    c->calib.lost[layer - c->block.index] +=
        convert_squared_distance(c, win->middle, c->scratch.rows, win->n * c->d);
}

enum status convert_advance(struct converter *c, struct err *e)
{
    const int n_layers = c->block.end - c->block.index;
    if (!c->spec->n_tokens)
        return STATUS_OK;
    convert_load_stored(c);
    convert_zero(c->calib.lost, n_layers);
    TRY(convert_each_window(c, CONVERT_ALL, advance_window));
    for (int i = 0; i < n_layers; i++) {
        const double lost = c->calib.lost[i], energy = c->calib.energy[i];
        if (!isfinite(lost) || !isfinite(energy))
            return err_failed(e,
                              "layer %d: what attention adds to the calibration text is too large "
                              "for float; without a text the weights alone decide",
                              c->block.index + i);
        c->out->layers[c->block.index + i].output = energy > 0 ? lost / energy : 0;
    }
    return STATUS_OK;
}
