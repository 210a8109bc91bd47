/*
 * Windows of a text through the checkpoint's layers and the converted ones.
 */
#include "convert/calibrate.h"

#include <math.h>

#include "convert/memory.h"
#include "convert/products.h"
#include "convert/tensors.h"

/* Sums of squares of a layer: of errors, then of what they are errors of. */
struct layer_errors {
    double attention[2], first[2], stream[2];
};

/* By layer of the block in work. */
struct convert_moments {
    double *energy;              /* of what attention adds, centred */
    double *energy_sum;          /* [layers, d] the sum of what it adds */
    double *lost;                /* of that energy, after the layer was converted */
    struct layer_errors *errors; /* of the layer after it was converted */
    double n_fitted;             /* rows that moments are over, in all layers of the block */
};

/* --- windows --------------------------------------------------------------------------------- */

struct convert_window convert_window_at(const struct converter *c, int w)
{
    const size_t first = w * c->calib.window, at = first * c->d, left = c->spec->n_tokens - first;
    struct convert_window win = {.w = w,
                                 .n = MIN(left, c->calib.window),
                                 .held_out =
                                     !c->spec->measures_only &&
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

void convert_calibration_take(struct converter *c)
{
    const size_t n = c->spec->n_tokens, n_ctx = c->config.n_ctx, d = c->d;
    size_t window = MIN(n_ctx, n);
    if (!c->spec->measures_only)
        window = convert_window_size(n_ctx, n);
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
    struct convert_moments counted;
    struct convert_moments *sums = arena_take(&c->arena, 1, sizeof *sums);
    c->calib.sums = sums;
    sums = sums ? sums : &counted;
    sums->energy = convert_doubles(c, layers, 1);
    sums->energy_sum = convert_doubles(c, layers, d);
    sums->lost = convert_doubles(c, layers, 1);
    ARENA_TAKE(sums->errors, &c->arena, layers);
    c->scratch.float_product = convert_floats(c, c->widest, c->widest);
}

/* Fills both streams with the embeddings. The first touch of so much memory may take long. */
static enum status embed_tokens(struct converter *c)
{
    for (size_t t = 0; t < c->spec->n_tokens; t++) {
        const size_t at = t % c->calib.window;
        float *x = c->calib.original + t * c->d;
        if (at == 0)
            TRY(convert_windows_done(c, 0));
        model_embed(c->model, probe_positions(c->calib.probe), c->spec->tokens[t], at, x);
        memcpy(c->calib.converted + t * c->d, x, c->d * sizeof *x);
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
    TRY(probe_create(&c->config, factors, c->calib.window, c->kernels, pool, &c->calib.probe, e));
    TRY(probe_create(&c->converted, factors, c->calib.window, c->kernels, pool,
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
        /* As it was: its input, the stream after attention, and behind it. */
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

void convert_norm_rows(const struct converter *c, enum tensor_role role, float *out, const float *x,
                       size_t n)
{
    const size_t d = c->d;
    const struct norm *norm = &c->model->blocks[c->block.index].w[role].norm;
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
    const size_t n = win->n, at = layer - c->block.index, d = c->d;
    c->calib.sums->energy[at] += convert_squared_distance(c, win->middle, win->original, n * d);
    for (size_t t = 0; t < n; t++)
        linalg_add_scaled(c->calib.sums->energy_sum + at * d, 1, c->scratch.x + t * d, d);
    if (win->held_out)
        return;
    convert_add_gram(c, c->calib.value_moments,
                     convert_product_transposed(c->scratch.float_product, c->scratch.rows,
                                                c->scratch.rows, d, n, d));
    convert_zero(c->scratch.x_sum, d);
    convert_add_rows(c->scratch.x_sum, c->scratch.rows, n, d);
    for (size_t i = 0; i < d; i++) {
        c->calib.input_mean[i] += c->scratch.x_sum[i];
        c->scratch.y_sum[i] = c->scratch.x_sum[i] / n;
    }
    /* Its mean's square, n times. */
    convert_add_product(
        c, linalg_product_turned(c->calib.key_moments, c->scratch.x_sum, c->scratch.y_sum, d, 1, d),
        d);
    c->calib.sums->n_fitted += n;
}

/* Without text: what the norm before a block gives, before gain and bias, has any direction or, if
 * it takes the mean away, any that sums to 0, and the mean square 1. Embeddings have no norm. */
static void assume_moments(struct converter *c)
{
    const struct block *b = c->model->blocks;
    const struct norm *norm = NULL;
    const size_t d = c->d;
    if (c->config.placement == PLACEMENT_BEFORE)
        norm = &b[c->block.index].w[ROLE_ATTN_NORM].norm;
    else if (c->block.end > 1)
        norm = &b[c->block.end - 2].w[ROLE_LAYER_OUTPUT_NORM].norm;
    const double across = norm && c->config.norm == NORM_LAYER && d > 1 ? -1 / (double)(d - 1) : 0;
    for (size_t i = 0; i < d; i++) {
        c->calib.input_mean[i] = norm && norm->bias ? (double)norm->bias[i] : 0;
        for (size_t j = 0; j < d; j++) {
            const double gains = norm ? (double)norm->gain[i] * (double)norm->gain[j] : 1;
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
    convert_zero(c->calib.sums->energy, n_layers);
    convert_zero(c->calib.sums->energy_sum, n_layers * d);
    c->calib.sums->n_fitted = 0;
    TRY(convert_each_window(c, CONVERT_ORIGINAL, measure_window));
    const double n = c->calib.sums->n_fitted;
    for (size_t i = 0; i < d * d; i++)
        c->calib.key_moments[i] = c->calib.value_moments[i] / n - c->calib.key_moments[i] / n;
    convert_sums_to_moments(c->calib.value_moments, c->calib.input_mean, c->calib.input_mean, n, d,
                            d);
    for (size_t i = 0; i < d; i++)
        c->calib.input_mean[i] /= n;
    for (size_t l = 0; l < n_layers; l++) {
        const double *sum = c->calib.sums->energy_sum + l * d;
        c->calib.sums->energy[l] -= linalg_dot(sum, sum, d) / c->spec->n_tokens;
    }
    return STATUS_OK;
}

/* --- the converted block --------------------------------------------------------------------- */

/* One window through the converted layer, whose squared distance from the checkpoint's stream after
 * attention is lost; and from what the layer as it was makes of the same input. */
static void advance_window(struct converter *c, int layer, const struct convert_window *win)
{
    struct convert_window own = *win;
    struct layer_errors *sums = &c->calib.sums->errors[layer - c->block.index];
    float *before = c->scratch.rows3; /* rows2 is what layers that share a block go on from */
    const size_t d = c->d, rest = (win->n - 1) * d;
    own.from = own.converted;
    if (win->held_out) {
        probe_run(c->calib.probe, &c->model->blocks[layer], layer, own.converted, win->n,
                  &(struct block_taps){.at = {[TAP_MIDDLE] = before}});
        sums->first[1] += convert_squared_distance(c, before, own.converted, d);
        sums->attention[1] += convert_squared_distance(c, before + d, own.converted + d, rest);
    }
    convert_run_layer(
        c, layer, &own,
        (struct block_taps){.at = {[TAP_MIDDLE] = c->scratch.rows, [TAP_OUT] = own.converted}});
    if (win->held_out) {
        sums->first[0] += convert_squared_distance(c, c->scratch.rows, before, d);
        sums->attention[0] += convert_squared_distance(c, c->scratch.rows + d, before + d, rest);
    }
    memset(before, 0, rest * sizeof *before);
    const float *behind =
        c->config.shared ? c->scratch.rows2 : win->original; /* the checkpoint's stream */
    sums->stream[0] += convert_squared_distance(c, own.converted + d, behind + d, rest);
    sums->stream[1] += convert_squared_distance(c, behind + d, before, rest);
    c->calib.sums->lost[layer - c->block.index] +=
        convert_squared_distance(c, win->middle, c->scratch.rows, win->n * d);
}

static double share_of(const double sums[2])
{
    return sums[1] > 0 ? sums[0] / sums[1] : 0;
}

enum status convert_advance(struct converter *c, struct err *e)
{
    const int n_layers = c->block.end - c->block.index;
    convert_load_stored(c);
    convert_zero(c->calib.sums->lost, n_layers);
    memset(c->calib.sums->errors, 0, n_layers * sizeof *c->calib.sums->errors);
    TRY(convert_each_window(c, CONVERT_ALL, advance_window));
    for (int i = 0; i < n_layers; i++) {
        const struct layer_errors *own = &c->calib.sums->errors[i];
        struct convert_layer *layer = &c->out->layers[c->block.index + i];
        layer->own = share_of(own->attention);
        layer->own_first = share_of(own->first);
        layer->gathered = share_of(own->stream);
        if (!isfinite(c->calib.sums->lost[i]) || !isfinite(c->calib.sums->energy[i]))
            return err_failed(e,
                              "layer %d: what attention adds to the calibration text is too large "
                              "for float; without a text the weights alone decide",
                              c->block.index + i);
        layer->output =
            c->calib.sums->energy[i] > 0 ? c->calib.sums->lost[i] / c->calib.sums->energy[i] : 0;
    }
    return STATUS_OK;
}
