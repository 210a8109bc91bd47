/*
 * The residual streams of all windows are stored, so that each layer runs once as it was and twice
 * converted, for its refit and then for the layers behind it. Layers that share a block run as they
 * were each time, because where the stream was in the middle is stored for one layer only.
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
    struct block converted; /* the block in work */
    void *qkv_panels, *out_panels;
    float *qkv_bias, *out_bias;
    struct attend_bias *score_bias;
    struct pack_scratch pack;
    struct probe *probe, *probe2; /* of the checkpoint, of the conversion */
    int window;                   /* tokens */
    float *stream;                /* [n_tokens, d] the residual stream before the layer */
    float *stream2;               /* the converted model's */
    float *middle;                /* the checkpoint's, after attention */
    float *rows, *rows2;          /* [window, widest], [window, d] */
    double *x, *y;                /* the same in double */
    double *x_sum, *y_sum;        /* [widest], [d] */
    /* Of what attention adds, centred: by layer of the block. */
    double *energy;
    double *energy_sum; /* [layers, d] */
};

/* --- starting -------------------------------------------------------------------------------- */

/* Room for a converted matrix in panels of floats, the widest storage. */
static void *take_converted_panels(const struct converter *c, struct arena *arena,
                                   enum tensor_role role)
{
    uint64_t most = 0; /* rows */
    const uint64_t cols = (uint64_t)layout_weight(&c->converted, role, 0).cols;
    for (int l = 0; l < c->config.n_layers; l++) {
        const uint64_t rows = (uint64_t)layout_weight(&c->converted, role, l).rows;
        most = rows > most ? rows : most;
    }
    return arena_take(arena, (uint64_t)matrix_panels((int)most) * KERNEL_LANES * cols,
                      sizeof(float));
}

static float *take_floats(struct arena *arena, uint64_t rows, uint64_t cols)
{
    return arena_take(arena, rows, cols * sizeof(float));
}

static double *take_doubles(struct arena *arena, uint64_t rows, uint64_t cols)
{
    return arena_take(arena, rows, cols * sizeof(double));
}

void convert_calibration_take(struct converter *c, struct arena *arena)
{
    const uint64_t d = (uint64_t)c->d, n = c->spec->n_tokens, widest = (uint64_t)c->widest;
    const uint64_t window = (uint64_t)c->config.n_ctx < n ? (uint64_t)c->config.n_ctx : n;
    const uint64_t layers = c->config.shared ? (uint64_t)c->config.n_layers : 1;
    const int kv_dim = c->n_groups * (c->qk.dim + c->ov.dim);
    struct convert_calibration *k = c->calibration = arena_take(arena, 1, sizeof *k);
    c->lost = take_doubles(arena, layers, 1);
    const struct convert_calibration pieces = {
        .window = (int)window,
        .qkv_panels = take_converted_panels(c, arena, ROLE_ATTN_QKV),
        .out_panels = take_converted_panels(c, arena, ROLE_ATTN_OUTPUT),
        .qkv_bias = take_floats(arena, (uint64_t)(c->qk.width + kv_dim), 1),
        .out_bias = take_floats(arena, d, 1),
        .score_bias = arena_take(arena, (uint64_t)c->n_heads, sizeof *k->score_bias),
        .pack = pack_scratch_take(arena, c->d),
        .stream = take_floats(arena, n, d),
        .stream2 = take_floats(arena, n, d),
        .middle = take_floats(arena, n, d),
        .rows = take_floats(arena, window, widest),
        .rows2 = take_floats(arena, window, d),
        .x = take_doubles(arena, window, widest),
        .y = take_doubles(arena, window, d),
        .x_sum = take_doubles(arena, widest, 1),
        .y_sum = take_doubles(arena, d, 1),
        .energy = take_doubles(arena, layers, 1),
        .energy_sum = take_doubles(arena, layers, d),
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

/* --- the checkpoint's layers ----------------------------------------------------------------- */

/* Runs a layer as it was over a window's stream: its input goes to k->rows, where the stream is
 * after attention to k->middle, and after the layer to k->rows2. */
static void run_original(struct converter *c, int layer, size_t first, int n)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    const struct block_taps taps = {
        .at = {[TAP_NORMED] = k->rows, [TAP_MIDDLE] = k->middle + first * d, [TAP_OUT] = k->rows2}};
    probe_run(k->probe, &c->model->blocks[layer], layer, k->stream + first * d, n, &taps);
}

/* The stream of a window goes on to the next layer. */
static void step_stream(struct converter *c, size_t first, int n)
{
    const struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    memcpy(k->stream + first * d, k->rows2, (size_t)n * d * sizeof *k->stream);
}

/* Before layers that share a block run once more. */
static enum status start_again(struct converter *c)
{
    return c->config.shared ? embed_tokens(c) : STATUS_OK;
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
static void add_energy(struct converter *c, int layer, size_t first, int n)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d, at = (size_t)(layer - c->first);
    widen_difference(k->x, k->middle + first * d, k->stream + first * d, (size_t)n * d);
    k->energy[at] += linalg_dot(k->x, k->x, (size_t)n * d);
    add_columns(k->energy_sum + at * d, k->x, n, d);
}

/* From sums to means. */
static void finish_moments(struct converter *c)
{
    struct convert_calibration *k = c->calibration;
    const struct convert_moments *m = &c->moments;
    const size_t d = (size_t)c->d, n_layers = (size_t)(c->end - c->first);
    const double n_tokens = (double)c->spec->n_tokens, n = n_tokens * (double)n_layers;
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
        k->energy[l] -= linalg_dot(sum, sum, d) / n_tokens;
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
    int n;
    for (size_t first = 0; (n = next_window(c, first)) > 0; first += (size_t)n)
        for (int l = c->first; l < c->end; l++) {
            run_original(c, l, first, n);
            add_energy(c, l, first, n);
            widen(k->x, k->rows, (size_t)n * d);
            add_moments(c, n);
            step_stream(c, first, n);
            TRY(window_done(c));
        }
    finish_moments(c);
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

/* Panels of a block's new tensors of Q, K and V, as the model would load them. */
static void use_qkv(struct converter *c)
{
    struct convert_calibration *k = c->calibration;
    const struct convert_tensors *t = &c->tensors[c->block];
    const struct block *old = &c->model->blocks[c->block];
    struct matrix *qkv = &k->converted.w[ROLE_ATTN_QKV].matrix;
    struct qkv_part parts[QKV_PARTS];
    qkv->n_out = config_qkv_dim(&c->converted, c->block);
    qkv->panels = k->qkv_panels;
    qkv->bias = old->w[ROLE_ATTN_QKV].matrix.bias ? k->qkv_bias : NULL;
    for (int i = 0; i < layout_qkv(&c->converted, c->block, parts); i++) {
        const struct convert_pair *p = &t->pairs[i];
        pack_matrix(k->qkv_panels, qkv, parts[i].first, &p->weight.tensor, &k->pack);
        if (p->bias.bytes)
            pack_floats(k->qkv_bias + parts[i].first, &p->bias.tensor);
        else
            memset(k->qkv_bias + parts[i].first, 0, (size_t)parts[i].rows * sizeof(float));
    }
    for (int h = 0; h < c->n_heads && old->bias; h++)
        k->score_bias[h] = old->bias[c->order[h]];
    k->converted.bias = old->bias ? k->score_bias : NULL;
}

static void use_out(struct converter *c)
{
    struct convert_calibration *k = c->calibration;
    const struct convert_pair *t = &c->tensors[c->block].pairs[PAIR_OUT];
    struct matrix *out = &k->converted.w[ROLE_ATTN_OUTPUT].matrix;
    out->panels = k->out_panels;
    pack_matrix(k->out_panels, out, 0, &t->weight.tensor, &k->pack);
    if (!t->bias.bytes)
        return;
    out->bias = k->out_bias;
    pack_floats(k->out_bias, &t->bias.tensor);
}

/* What was stored, so that what is measured is what will run. */
static void use_tensors(struct converter *c)
{
    const struct convert_pair *pairs = c->tensors[c->block].pairs;
    c->calibration->converted = c->model->blocks[c->block];
    if (pairs[0].weight.changed)
        use_qkv(c);
    if (pairs[PAIR_OUT].weight.changed)
        use_out(c);
}

/* From sums of products a^T b over n rows, with a [n, m] and b [n, columns], to their covariance,
 * or, if not centred, to their second moments. */
static void finish_products(double *sums, const double *a_sum, int m, const double *b_sum,
                            int columns, double n, bool centred)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < columns; j++) {
            double *at = sums + (size_t)i * (size_t)columns + j;
            *at = *at / n - (centred ? a_sum[i] / n * (b_sum[j] / n) : 0);
        }
}

/* to.o = (F^T F + r I)^-1 (F^T Y + r o) for features F [n, heads_dim] and targets Y [n, d], both
 * centred if there is a bias to take their means: `features` [heads_dim, heads_dim] and `targets`
 * [heads_dim, d] are sums of products over n rows. Both are destroyed. */
static void solve_refit(struct converter *c, double *features, double *targets, double n)
{
    const struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d, width = (size_t)c->ov.width;
    const bool centred = c->tensors[c->block].pairs[PAIR_OUT].bias.bytes;
    finish_products(features, k->x_sum, c->ov.width, k->x_sum, c->ov.width, n, centred);
    finish_products(targets, k->x_sum, c->ov.width, k->y_sum, c->d, n, centred);
    const double ridge = REFIT_RIDGE * linalg_trace(features, c->ov.width) / c->ov.width;
    if (!(ridge > 0)) /* attention adds nothing but constants */
        return;
    for (size_t i = 0; i < width * d; i++)
        targets[i] += ridge * c->to.o[i];
    linalg_cholesky(features, features, c->ov.width, ridge);
    linalg_solve_lower(features, c->ov.width, targets, c->d);
    linalg_solve_lower_transposed(features, c->ov.width, targets, c->d);
    memcpy(c->to.o, targets, width * d * sizeof *targets);
    for (size_t j = 0; j < d && centred; j++)
        c->to.bo[j] = k->y_sum[j] / n;
    for (size_t i = 0; i < width && centred; i++)
        for (size_t j = 0; j < d; j++)
            c->to.bo[j] -= k->x_sum[i] / n * c->to.o[i * d + j];
}

/* Sums over one window and layer; see convert_refit. */
static void add_refit(struct converter *c, int layer, size_t first, int n)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d, width = (size_t)c->ov.width;
    const float *stream = (c->config.shared ? k->stream : k->stream2) + first * d;
    const struct block_taps taps = {.at = {[TAP_HEADS] = k->rows}};
    probe_run(k->probe2, &k->converted, layer, stream, n, &taps);
    widen(k->x, k->rows, (size_t)n * width);
    widen_difference(k->y, k->middle + first * d, stream, (size_t)n * d);
    convert_add_outer(c->spec->pool, c->moments.values, k->x, k->x, n, c->ov.width, c->ov.width);
    convert_add_outer(c->spec->pool, c->moments.keys, k->x, k->y, n, c->ov.width, c->d);
    add_columns(k->x_sum, k->x, n, width);
    add_columns(k->y_sum, k->y, n, d);
}

enum status convert_refit(struct converter *c)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d, width = (size_t)c->ov.width;
    assert(k && c->spec->refit);
    double *features = c->moments.values, *targets = c->moments.keys; /* no longer needed */
    clear_numbers(features, width * width);
    clear_numbers(targets, width * d);
    clear_numbers(k->x_sum, width);
    clear_numbers(k->y_sum, d);
    use_tensors(c);
    TRY(start_again(c));
    int n;
    for (size_t first = 0; (n = next_window(c, first)) > 0; first += (size_t)n)
        for (int l = c->first; l < c->end; l++) {
            if (c->config.shared)
                run_original(c, l, first, n);
            add_refit(c, l, first, n);
            if (c->config.shared)
                step_stream(c, first, n);
            TRY(window_done(c));
        }
    solve_refit(c, features, targets, (double)c->spec->n_tokens * (c->end - c->first));
    return STATUS_OK;
}

/* One window through the converted layer; the squared distance from the checkpoint's stream after
 * attention. */
static double advance_window(struct converter *c, int layer, size_t first, int n)
{
    struct convert_calibration *k = c->calibration;
    const size_t d = (size_t)c->d;
    float *stream = k->stream2 + first * d;
    const struct block_taps taps = {.at = {[TAP_MIDDLE] = k->rows, [TAP_OUT] = stream}};
    probe_run(k->probe2, &k->converted, layer, stream, n, &taps);
    widen_difference(k->x, k->middle + first * d, k->rows, (size_t)n * d);
    return linalg_dot(k->x, k->x, (size_t)n * d);
}

enum status convert_advance(struct converter *c)
{
    struct convert_calibration *k = c->calibration;
    use_tensors(c);
    TRY(start_again(c));
    clear_numbers(c->lost, (size_t)(c->end - c->first));
    int n;
    for (size_t first = 0; (n = next_window(c, first)) > 0; first += (size_t)n)
        for (int l = c->first; l < c->end; l++) {
            if (c->config.shared)
                run_original(c, l, first, n);
            c->lost[l - c->first] += advance_window(c, l, first, n);
            if (c->config.shared)
                step_stream(c, first, n);
            TRY(window_done(c));
        }
    for (int i = 0; i < c->end - c->first; i++)
        c->lost[i] = k->energy[i] > 0 ? c->lost[i] / k->energy[i] : 0;
    return STATUS_OK;
}
