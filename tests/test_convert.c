/* The conversion against what it promises: exact where nothing has to be lost, blind to the gauge,
 * its reported losses those of plain loops over the activations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "checkpoints.h"
#include "convert/convert.h"
#include "engine/probe.h"
#include "engine/session.h"
#include "support.h"
#include "train/activations.h"
#include "train/backprop.h"

#define N_TOKENS 40
#define CTX      64

/* --- checkpoints in memory ------------------------------------------------------------------- */

struct opened {
    unsigned char *bytes;
    size_t len;
    struct gguf *gguf;
    struct model *model;
};

static void open_bytes(struct opened *o)
{
    struct err e = {""};
    ck_assert_msg(gguf_parse(o->bytes, o->len, &o->gguf, &e) == STATUS_OK, "%s", e.text);
    ck_assert_msg(model_create(o->gguf, NULL, NULL, &o->model, &e) == STATUS_OK, "%s", e.text);
}

static struct opened open_path(const char *path)
{
    struct opened o = {.bytes = NULL};
    o.bytes = read_file(path, &o.len);
    open_bytes(&o);
    return o;
}

static struct opened open_shape(const struct checkpoint_shape *shape)
{
    const char *path = scratch_path("model.gguf");
    write_checkpoint(path, shape);
    const struct opened o = open_path(path);
    scratch_remove();
    return o;
}

static struct opened open_writer(struct gguf_writer *w)
{
    struct opened o = {.bytes = NULL};
    struct err e = {""};
    ck_assert_msg(gguf_write_memory(w, &o.bytes, &o.len, &e) == STATUS_OK, "%s", e.text);
    open_bytes(&o);
    return o;
}

static void close_opened(struct opened *o)
{
    model_free(o->model);
    gguf_free(o->gguf);
    free(o->bytes);
}

static struct checkpoint_shape mha(int n_heads)
{
    return (struct checkpoint_shape){.n_layers = 2,
                                     .n_heads = n_heads,
                                     .n_kv_heads = n_heads,
                                     .head_dim = 8,
                                     .d_ff = 64,
                                     .n_ctx = CTX,
                                     .n_vocab = 300,
                                     .type = TENSOR_F32,
                                     .seed = 7};
}

/* --- converting ------------------------------------------------------------------------------ */

static void text_tokens(int32_t *tokens, int n, uint64_t seed)
{
    struct rng r;
    rng_seed(&r, seed, 0);
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)(rng_u32(&r) % 256);
}

#define N_CALIB 640
static int32_t calib[N_CALIB];

static struct convert_spec spec_of(const struct opened *o, int g, enum convert_method method)
{
    return (struct convert_spec){.gguf = o->gguf,
                                 .source_name = "model.gguf",
                                 .version = "test",
                                 .n_kv_heads = g,
                                 .method = method};
}

static struct convert_spec with_text(struct convert_spec spec, int n)
{
    text_tokens(calib, N_CALIB, 99);
    spec.tokens = calib;
    spec.n_tokens = (size_t)n;
    return spec;
}

static uint64_t elements_of(const struct gguf *g)
{
    uint64_t n = 0;
    for (size_t i = 0; i < g->n_tensors; i++)
        n += g->tensors[i].n_elements;
    return n;
}

/* The losses of up to 8 layers go to `lost`, which may be NULL. */
static struct opened convert_to(const struct convert_spec *spec, struct convert_layer *lost)
{
    struct convert c;
    struct err e = {""};
    const enum status s = convert_run(spec, &c, &e);
    ck_assert_msg(s == STATUS_OK, "%s", e.text);
    if (lost)
        memcpy(lost, c.layers, (size_t)c.n_layers * sizeof *lost);
    const struct opened o = open_writer(c.writer);
    ck_assert_uint_eq(c.n_params_before, elements_of(spec->gguf));
    ck_assert_uint_eq(c.n_params_after, elements_of(o.gguf));
    convert_free(&c);
    return o;
}

/* Root mean square of the difference of the logits after each of some tokens, and (may be NULL) of
 * the first model's own around their mean. */
static double logits_apart(const struct opened *a, const struct opened *b, double *spread)
{
    const size_t n_vocab = (size_t)a->model->config.n_vocab, n = N_TOKENS * n_vocab;
    int32_t tokens[N_TOKENS];
    float *logits[2];
    const struct opened *both[] = {a, b};
    text_tokens(tokens, N_TOKENS, 3);
    for (int i = 0; i < 2; i++) {
        const struct session_params params = {.n_ctx = 0};
        struct session *s;
        struct err e = {""};
        logits[i] = calloc(n, sizeof(float));
        ck_assert_int_eq(session_create(both[i]->model, &params, NULL, &s, &e), STATUS_OK);
        ck_assert_int_eq(session_feed(s, 0, tokens, N_TOKENS, logits[i], &e), STATUS_OK);
        session_free(s);
    }
    double square = 0, own = 0, mean = 0;
    for (size_t i = 0; i < n; i++) {
        square += pow((double)logits[0][i] - (double)logits[1][i], 2);
        own += pow((double)logits[0][i], 2);
        mean += (double)logits[0][i];
    }
    if (spread)
        *spread = sqrt(own / (double)n - pow(mean / (double)n, 2));
    free(logits[0]), free(logits[1]);
    return sqrt(square / (double)n);
}

/* The loss of each of some tokens. */
static void token_losses(const struct opened *o, float *out)
{
    struct param_list list;
    struct arena arena = {0};
    struct err e = {""};
    int32_t tokens[N_TOKENS + 1];
    text_tokens(tokens, N_TOKENS + 1, 3);
    ck_assert_int_eq(param_list_create(&list, &o->model->config, o->gguf, &e), STATUS_OK);
    param_view_take(&arena, &list, &o->model->config);
    ck_assert_int_eq(arena_allocate(&arena, "test", &e), STATUS_OK);
    const struct param_view weights = param_view_take(&arena, &list, &o->model->config);
    param_list_read(&list, o->gguf, weights.flat);
    const struct backprop_params params = {.config = &o->model->config,
                                           .n_sequences = 1,
                                           .length = N_TOKENS,
                                           .forward_only = true,
                                           .kernels = &kernels_scalar};
    const struct backprop_batch batch = {.inputs = tokens, .targets = tokens + 1, .n_sequences = 1};
    struct backprop *b;
    ck_assert_int_eq(backprop_create(&params, NULL, &b, &e), STATUS_OK);
    backprop_loss(b, &weights, &batch);
    memcpy(out, b->losses, N_TOKENS * sizeof *out);
    backprop_free(b);
    arena_free(&arena);
    param_list_free(&list);
}

/* The largest difference of a token's loss. */
static double losses_apart(const struct opened *a, const struct opened *b)
{
    float losses[2][N_TOKENS];
    double most = 0;
    token_losses(a, losses[0]);
    token_losses(b, losses[1]);
    for (int t = 0; t < N_TOKENS; t++)
        most = fmax(most, fabs((double)losses[0][t] - (double)losses[1][t]));
    return most;
}

/* --- changing a checkpoint without changing its function ------------------------------------- */

static float *floats_of(const struct gguf *g, int layer, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    ck_assert_msg(t && t->type->type == TENSOR_F32, "%s", name);
    float *x = malloc(t->n_bytes);
    memcpy(x, t->data, t->n_bytes);
    return x;
}

/* A random well-conditioned matrix and its inverse, by Gauss and Jordan. */
static void invertible(double *a, double *inverse, int n, struct rng *r)
{
    double work[16][32] = {{0}};
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i * n + j] = work[i][j] = (i == j) + 0.8 * (rng_unit(r) - 0.5);
    for (int i = 0; i < n; i++)
        work[i][n + i] = 1;
    for (int k = 0; k < n; k++) {
        const double pivot = work[k][k];
        ck_assert_double_gt(fabs(pivot), 0.05);
        for (int j = 0; j < 2 * n; j++)
            work[k][j] /= pivot;
        for (int i = 0; i < n; i++) {
            const double factor = work[i][k];
            for (int j = 0; j < 2 * n && i != k; j++)
                work[i][j] -= factor * work[k][j];
        }
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            inverse[i * n + j] = work[i][n + j];
}

/* rows [dim, n] := m rows, or m^T rows; row r is at rows + r * stride, elements `step` apart. */
static void turn(float *rows, const double *m, bool transposed, int dim, int n, size_t stride,
                 size_t step)
{
    for (int j = 0; j < n; j++) {
        double column[16];
        for (int i = 0; i < dim; i++)
            column[i] = (double)rows[(size_t)i * stride + (size_t)j * step];
        for (int i = 0; i < dim; i++) {
            double sum = 0;
            for (int k = 0; k < dim; k++)
                sum += (transposed ? m[k * dim + i] : m[i * dim + k]) * column[k];
            rows[(size_t)i * stride + (size_t)j * step] = (float)sum;
        }
    }
}

static void swap_floats(float *a, float *b, size_t n, size_t step)
{
    for (size_t i = 0; i < n; i++) {
        const float x = a[i * step];
        a[i * step] = b[i * step];
        b[i * step] = x;
    }
}

struct layer_floats {
    float *qkv, *bias, *out;
};

/* k -> A k and q -> A^-T q, v -> M v and its columns of the output matrix -> columns M^-1. */
static void gauge_head(struct layer_floats *w, int h, const struct config *c, double scale,
                       struct rng *r)
{
    double a[256], inverse[256];
    const int d = c->d_model, dim = c->head_dim;
    const size_t width = (size_t)d, q = (size_t)config_q_dim(c), first = (size_t)(h * dim);
    invertible(a, inverse, dim, r);
    for (int i = 0; i < dim * dim; i++) {
        a[i] *= scale;
        inverse[i] /= scale;
    }
    turn(w->qkv + first * width, inverse, true, dim, d, width, 1);
    turn(w->bias + first, inverse, true, dim, 1, 1, 1);
    turn(w->qkv + (q + first) * width, a, false, dim, d, width, 1);
    turn(w->bias + q + first, a, false, dim, 1, 1, 1);
    invertible(a, inverse, dim, r);
    turn(w->qkv + (2 * q + first) * width, a, false, dim, d, width, 1);
    turn(w->bias + 2 * q + first, a, false, dim, 1, 1, 1);
    turn(w->out + first, inverse, true, dim, d, 1, q);
}

static void swap_heads(struct layer_floats *w, int g, int h, const struct config *c)
{
    const size_t width = (size_t)c->d_model, q = (size_t)config_q_dim(c);
    const size_t rows = (size_t)c->head_dim;
    for (size_t part = 0; part < 3; part++) {
        const size_t a = part * q + (size_t)g * rows, b = part * q + (size_t)h * rows;
        swap_floats(w->qkv + a * width, w->qkv + b * width, rows * width, 1);
        swap_floats(w->bias + a, w->bias + b, rows, 1);
    }
    for (size_t i = 0; i < width; i++)
        swap_floats(w->out + i * q + (size_t)g * rows, w->out + i * q + (size_t)h * rows, rows, 1);
}

/* The same function in other weights: each head in a random gauge, and its place if `permute`. */
static struct opened regauge(const struct opened *o, bool permute, uint64_t seed)
{
    const struct config *c = &o->model->config;
    struct layer_floats w[8];
    struct gguf_writer *writer;
    struct err e = {""};
    struct rng r;
    rng_seed(&r, seed, 0);
    for (int l = 0; l < c->n_layers; l++) {
        w[l] = (struct layer_floats){floats_of(o->gguf, l, "attn_qkv.weight"),
                                     floats_of(o->gguf, l, "attn_qkv.bias"),
                                     floats_of(o->gguf, l, "attn_output.weight")};
        for (int h = 0; h < c->n_heads; h++)
            gauge_head(&w[l], h, c, 0.3 + 3 * rng_unit(&r), &r);
        for (int h = c->n_heads - 1; permute && h > 0; h--)
            swap_heads(&w[l], h, (int)(rng_u32(&r) % (uint32_t)(h + 1)), c);
    }
    ck_assert_int_eq(gguf_writer_create(&writer, &e), STATUS_OK);
    for (size_t i = 0; i < o->gguf->n_pairs; i++)
        gguf_add_value(writer, o->gguf->pairs[i].key, &o->gguf->pairs[i].value);
    for (size_t i = 0; i < o->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &o->gguf->tensors[i];
        const void *data = t->data;
        int layer;
        char part[32];
        if (sscanf(t->name.data, "blk.%d.%31[a-z_.]", &layer, part) == 2) {
            if (strncmp(part, "attn_qkv.weight", 15) == 0)
                data = w[layer].qkv;
            else if (strncmp(part, "attn_qkv.bias", 13) == 0)
                data = w[layer].bias;
            else if (strncmp(part, "attn_output.weight", 18) == 0)
                data = w[layer].out;
        }
        gguf_add_tensor(writer, t->name, t->type->type, t->n_dims, t->dims, data);
    }
    const struct opened changed = open_writer(writer);
    gguf_writer_free(writer);
    for (int l = 0; l < c->n_layers; l++)
        free(w[l].qkv), free(w[l].bias), free(w[l].out);
    return changed;
}

/* --- nothing has to be lost ------------------------------------------------------------------ */

START_TEST(as_many_heads_change_nothing)
{
    static const int heads[] = {1, 2, 8};
    const struct checkpoint_shape shape = mha(heads[_i]);
    struct opened a = open_shape(&shape);
    for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method++) {
        if (method == CONVERT_RANDOM)
            continue;
        struct convert_spec plain = spec_of(&a, heads[_i], (enum convert_method)method);
        struct convert_spec calibrated = with_text(plain, N_CALIB);
        calibrated.cluster = true;
        struct convert_layer lost[2];
        struct opened b = convert_to(&plain, lost), c = convert_to(&calibrated, NULL);
        ck_assert_double_lt(logits_apart(&a, &b, NULL), 1e-4);
        ck_assert_double_lt(logits_apart(&a, &c, NULL), 1e-4);
        ck_assert_double_lt(lost[1].score + lost[1].output, 1e-9);
        close_opened(&b), close_opened(&c);
    }
    close_opened(&a);
}
END_TEST

/* Exact grouping with 8 heads, swaps with 16; from weights alone, and with text and refit. */
START_TEST(planted_groups_are_recovered)
{
    struct checkpoint_shape shape = mha(_i % 2 ? 16 : 8);
    shape.base_kv_heads = 4;
    struct opened a = open_shape(&shape), b = regauge(&a, true, 5);
    double spread;
    ck_assert_double_lt(logits_apart(&a, &b, &spread), 1e-4);
    struct convert_spec spec = spec_of(&b, 4, CONVERT_FIT);
    if (_i >= 2) {
        spec = with_text(spec, N_CALIB);
        spec.refit = true;
    }
    struct opened adjacent = convert_to(&spec, NULL);
    ck_assert_double_gt(logits_apart(&a, &adjacent, NULL), 0.02 * spread);
    spec.cluster = true;
    struct opened c = convert_to(&spec, NULL);
    ck_assert_int_eq(c.model->config.n_kv_heads, 4);
    ck_assert_double_lt(logits_apart(&a, &c, NULL), 1e-3);
    close_opened(&a), close_opened(&b), close_opened(&c), close_opened(&adjacent);
}
END_TEST

/* All heads together wider, and narrower, than the residual stream. */
START_TEST(heads_of_their_own_width)
{
    struct checkpoint_shape shape = mha(8);
    shape.d_model = _i ? 80 : 40;
    shape.base_kv_heads = 4;
    struct opened a = open_shape(&shape), b = regauge(&a, true, 5);
    ck_assert_int_eq(a.model->config.head_dim, 8);
    double spread;
    ck_assert_double_lt(losses_apart(&a, &b), 1e-4);
    ck_assert_double_lt(logits_apart(&a, &b, &spread), 1e-4);
    for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method++) {
        struct convert_spec spec = spec_of(&b, 8, (enum convert_method)method);
        struct opened same = convert_to(&spec, NULL);
        if (method != CONVERT_RANDOM)
            ck_assert_double_lt(logits_apart(&a, &same, NULL), 1e-4);
        spec.n_kv_heads = 4;
        spec.cluster = true;
        struct opened fewer = convert_to(&spec, NULL);
        ck_assert_int_eq(fewer.model->config.n_kv_heads, 4);
        ck_assert_int_eq(fewer.model->config.head_dim, 8);
        if (method == CONVERT_FIT)
            ck_assert_double_lt(logits_apart(&a, &fewer, NULL), 1e-3);
        else
            ck_assert_double_gt(logits_apart(&a, &fewer, NULL), 0.02 * spread);
        close_opened(&same), close_opened(&fewer);
    }
    struct convert_spec spec = with_text(spec_of(&b, 4, CONVERT_FIT), N_CALIB);
    spec.cluster = spec.refit = true;
    struct opened fitted = convert_to(&spec, NULL);
    ck_assert_double_lt(logits_apart(&a, &fitted, NULL), 1e-3);
    close_opened(&a), close_opened(&b), close_opened(&fitted);
}
END_TEST

/* --- the gauge ------------------------------------------------------------------------------- */

START_TEST(fit_does_not_see_the_gauge_but_mean_does)
{
    const struct checkpoint_shape shape = mha(8);
    struct opened a = open_shape(&shape), b = regauge(&a, false, 6);
    for (int text = 0; text < 2; text++) {
        for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method += CONVERT_FIT) {
            struct convert_spec of_a = spec_of(&a, 2, (enum convert_method)method);
            struct convert_spec of_b = spec_of(&b, 2, (enum convert_method)method);
            if (text) {
                of_a = with_text(of_a, N_CALIB);
                of_b = with_text(of_b, N_CALIB);
                of_a.refit = of_b.refit = method == CONVERT_FIT;
            }
            struct convert_layer lost_a[2], lost_b[2];
            struct opened x = convert_to(&of_a, lost_a), y = convert_to(&of_b, lost_b);
            double spread;
            const double apart = logits_apart(&x, &y, &spread);
            if (method == CONVERT_FIT) {
                ck_assert_double_lt(apart, 1e-3 * spread);
                ck_assert_double_eq_tol(lost_a[1].score, lost_b[1].score, 1e-4);
                ck_assert_double_eq_tol(lost_a[1].output, lost_b[1].output, 1e-4);
            } else {
                ck_assert_double_gt(apart, 0.05 * spread);
            }
            close_opened(&x), close_opened(&y);
        }
    }
    close_opened(&a), close_opened(&b);
}
END_TEST

/* --- what is lost ---------------------------------------------------------------------------- */

/* Element `row` of W x + b. */
static double element(const struct opened *o, int layer, int row, const float *x)
{
    const struct matrix *w = &o->model->blocks[layer].w[ROLE_ATTN_QKV].matrix;
    const float *panels = (const float *)w->panels +
                          (size_t)(row / KERNEL_LANES) * (size_t)w->n_in * KERNEL_LANES +
                          row % KERNEL_LANES;
    double sum = w->bias ? (double)w->bias[row] : 0;
    for (int i = 0; i < w->n_in; i++)
        sum += (double)panels[i * KERNEL_LANES] * (double)x[i];
    return sum;
}

/* Query head `head` at x, and the key it meets at y. */
static double score_of(const struct opened *o, int head, const float *x, const float *y)
{
    const struct config *c = &o->model->config;
    double sum = 0;
    for (int i = 0; i < c->head_dim; i++)
        sum += element(o, 0, head * c->head_dim + i, x) *
               element(o, 0, c->d_model + head / config_group(c, 0) * c->head_dim + i, y);
    return sum;
}

/* All pairs of one window's positions, each row of scores without its mean. */
static double direct_score_loss(const struct opened *a, const struct opened *b, const float *x,
                                int n)
{
    const int d = a->model->config.d_model;
    double lost = 0, all = 0;
    for (int h = 0; h < a->model->config.n_heads; h++)
        for (int i = 0; i < n; i++) {
            double own[CTX], difference[CTX], own_mean = 0, difference_mean = 0;
            for (int j = 0; j < n; j++) {
                own[j] = score_of(a, h, x + i * d, x + j * d);
                difference[j] = own[j] - score_of(b, h, x + i * d, x + j * d);
                own_mean += own[j] / n;
                difference_mean += difference[j] / n;
            }
            for (int j = 0; j < n; j++) {
                all += pow(own[j] - own_mean, 2);
                lost += pow(difference[j] - difference_mean, 2);
            }
        }
    return lost / all;
}

static void run_block_0(const struct opened *o, const float *in, float *normed, float *middle,
                        int n)
{
    struct probe *p;
    struct err e = {""};
    const struct block_taps taps = {.at = {[TAP_NORMED] = normed, [TAP_MIDDLE] = middle}};
    ck_assert_int_eq(probe_create(&o->model->config, NULL, n, NULL, NULL, &p, &e), STATUS_OK);
    probe_run(p, &o->model->blocks[0], 0, in, n, &taps);
    probe_free(p);
}

START_TEST(losses_are_those_of_plain_loops)
{
    enum { N = 24 };
    const struct checkpoint_shape shape = mha(4);
    struct opened a = open_shape(&shape);
    const int d = a.model->config.d_model;
    float in[N * 32], normed[N * 32], middle[2][N * 32];
    const enum convert_method methods[] = {CONVERT_MEAN, CONVERT_RANDOM, CONVERT_PROCRUSTES,
                                           CONVERT_FIT};
    struct convert_spec spec = with_text(spec_of(&a, 2, methods[_i % 4]), N);
    spec.refit = _i >= 4;
    spec.seed = 11;
    struct convert_layer lost[2];
    struct opened b = convert_to(&spec, lost);
    for (int t = 0; t < N; t++)
        model_embed(a.model, NULL, calib[t], t, in + t * d);
    run_block_0(&a, in, normed, middle[0], N);
    run_block_0(&b, in, NULL, middle[1], N);
    ck_assert_double_eq_tol(lost[0].score, direct_score_loss(&a, &b, normed, N), 1e-5);
    double difference = 0, all = 0;
    for (int i = 0; i < d; i++) {
        double mean = 0;
        for (int t = 0; t < N; t++)
            mean += (double)(middle[0][t * d + i] - in[t * d + i]) / N;
        for (int t = 0; t < N; t++) {
            all += pow((double)(middle[0][t * d + i] - in[t * d + i]) - mean, 2);
            difference += pow((double)(middle[0][t * d + i] - middle[1][t * d + i]), 2);
        }
    }
    ck_assert_double_eq_tol(lost[0].output / (difference / all), 1, 1e-4);
    close_opened(&a), close_opened(&b);
}
END_TEST

static void open_method(const struct opened *a, int g, int method, bool text, bool cluster,
                        struct convert_layer *lost)
{
    struct convert_spec spec = spec_of(a, g, (enum convert_method)method);
    if (text)
        spec = with_text(spec, N_CALIB);
    spec.cluster = cluster;
    struct opened b = convert_to(&spec, lost);
    close_opened(&b);
}

START_TEST(fit_loses_least)
{
    const struct checkpoint_shape shape = mha(8);
    struct opened a = _i < 2 ? open_shape(&shape) : open_path("tests/data/shakespeare-bytes.gguf");
    const bool text = _i % 2;
    for (int g = 4; g >= 1; g /= 2) {
        struct convert_layer fit[8], other[8], clustered[8];
        open_method(&a, g, CONVERT_FIT, text, false, fit);
        open_method(&a, g, CONVERT_FIT, text, true, clustered);
        for (int l = 0; l < a.model->config.n_layers && !text; l++)
            ck_assert_double_le(clustered[l].score + clustered[l].output,
                                fit[l].score + fit[l].output + 1e-9);
        for (int method = CONVERT_MEAN; method < CONVERT_FIT; method++) {
            open_method(&a, g, method, text, false, other);
            for (int l = 0; l < a.model->config.n_layers; l++) {
                ck_assert_double_le(fit[l].score, other[l].score);
                ck_assert_double_le(fit[l].output, other[l].output);
                if (method == CONVERT_MEAN || method == CONVERT_PROCRUSTES)
                    ck_assert_double_gt(other[l].score, 0.01);
            }
        }
    }
    close_opened(&a);
}
END_TEST

/* --- pooling --------------------------------------------------------------------------------- */

START_TEST(mean_and_first_pool_weights_and_biases)
{
    const struct checkpoint_shape shape = mha(8);
    struct opened a = open_shape(&shape);
    for (int method = CONVERT_MEAN; method <= CONVERT_FIRST; method++) {
        const struct convert_spec spec = spec_of(&a, 2, (enum convert_method)method);
        struct opened b = convert_to(&spec, NULL);
        float *from = floats_of(a.gguf, 1, "attn_qkv.weight");
        float *to = floats_of(b.gguf, 1, "attn_qkv.weight");
        float *from_bias = floats_of(a.gguf, 1, "attn_qkv.bias");
        float *to_bias = floats_of(b.gguf, 1, "attn_qkv.bias");
        ck_assert_mem_eq(from, to, 64 * 64 * sizeof *to); /* the queries stay */
        for (int part = 0; part < 2; part++)
            for (int row = 0; row < 16; row++) {
                const int g = row / 8, r = row % 8;
                double sum[65] = {0};
                for (int h = 0; h < (method == CONVERT_MEAN ? 4 : 1); h++) {
                    const int old = 64 * (part + 1) + (4 * g + h) * 8 + r;
                    for (int i = 0; i < 64; i++)
                        sum[i] += (double)from[old * 64 + i];
                    sum[64] += (double)from_bias[old];
                }
                const double n = method == CONVERT_MEAN ? 4 : 1;
                const int new = 64 + 16 * part + row;
                for (int i = 0; i < 64; i++)
                    ck_assert_double_eq_tol((double)to[new * 64 + i], sum[i] / n, 1e-7);
                ck_assert_double_eq_tol((double)to_bias[new], sum[64] / n, 1e-7);
            }
        const struct gguf_tensor *o1 = gguf_find_tensor(a.gguf, "blk.1.attn_output.weight");
        const struct gguf_tensor *o2 = gguf_find_tensor(b.gguf, "blk.1.attn_output.weight");
        ck_assert_mem_eq(o1->data, o2->data, o1->n_bytes);
        free(from), free(to), free(from_bias), free(to_bias);
        close_opened(&b);
    }
    close_opened(&a);
}
END_TEST

/* --- from GQA -------------------------------------------------------------------------------- */

/* 6 K/V heads of 12 become 4, whose groups do not line up; a GQA checkpoint gives what the MHA one
 * with the same heads written out gives. */
START_TEST(from_gqa_to_any_divisor)
{
    struct checkpoint_shape shape = mha(12);
    shape.base_kv_heads = 6;
    struct opened expanded = open_shape(&shape);
    shape.n_kv_heads = 6;
    shape.base_kv_heads = 0;
    struct opened gqa = open_shape(&shape);
    static const int wanted[] = {6, 4, 3, 2, 1};
    ck_assert_double_lt(logits_apart(&expanded, &gqa, NULL), 1e-5);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method += CONVERT_FIT) {
            struct convert_spec a =
                with_text(spec_of(&expanded, wanted[i], (enum convert_method)method), N_CALIB);
            struct convert_spec b =
                with_text(spec_of(&gqa, wanted[i], (enum convert_method)method), N_CALIB);
            struct opened x = convert_to(&a, NULL), y = convert_to(&b, NULL);
            double spread;
            ck_assert_int_eq(y.model->config.n_kv_heads, wanted[i]);
            ck_assert_double_lt(logits_apart(&x, &y, &spread), 1e-3 * spread);
            if (wanted[i] == 6) /* nothing is lost */
                ck_assert_double_lt(logits_apart(&gqa, &y, NULL), 1e-4);
            close_opened(&x), close_opened(&y);
        }
    close_opened(&expanded), close_opened(&gqa);
}
END_TEST

/* --- the file -------------------------------------------------------------------------------- */

START_TEST(types_and_metadata)
{
    static const uint32_t types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    struct checkpoint_shape shape = mha(4);
    shape.type = types[_i];
    shape.no_biases = _i == 1;
    struct opened a = open_shape(&shape);
    struct convert_spec spec = with_text(spec_of(&a, 2, CONVERT_FIT), N_CALIB);
    spec.refit = true;
    struct opened b = convert_to(&spec, NULL);
    const struct gguf_tensor *qkv = gguf_find_tensor(b.gguf, "blk.1.attn_qkv.weight");
    ck_assert_uint_eq(qkv->type->type, types[_i]);
    ck_assert_uint_eq(qkv->dims[1], 32 + 2 * 16);
    ck_assert_uint_eq(gguf_find_tensor(b.gguf, "blk.0.attn_output.weight")->type->type, types[_i]);
    const bool has_biases = gguf_find_tensor(b.gguf, "blk.1.attn_output.bias") != NULL;
    ck_assert_int_eq(has_biases, !shape.no_biases);
    ck_assert_ptr_eq(gguf_find_tensor(b.gguf, "output.weight")->type,
                     gguf_find_tensor(a.gguf, "output.weight")->type);
    uint64_t n;
    struct text text;
    ck_assert_int_eq(gguf_get_u64(b.gguf, "gpt2.attention.head_count_kv", 2, 2, &n, NULL, NULL),
                     STATUS_OK);
    ck_assert_int_eq(
        gguf_get_u64(b.gguf, "decode.convert.calibration_tokens", N_CALIB, N_CALIB, &n, NULL, NULL),
        STATUS_OK);
    ck_assert_int_eq(gguf_get_text(b.gguf, "decode.convert.method", &text, NULL, NULL), STATUS_OK);
    ck_assert(text_is(text, "fit"));
    /* Once more: the keys say how the last step was made. */
    struct convert_spec again = spec_of(&b, 1, CONVERT_MEAN);
    struct opened c = convert_to(&again, NULL);
    ck_assert_int_eq(gguf_get_text(c.gguf, "decode.convert.method", &text, NULL, NULL), STATUS_OK);
    ck_assert(text_is(text, "mean"));
    ck_assert_int_eq(c.model->config.n_kv_heads, 1);
    close_opened(&a), close_opened(&b), close_opened(&c);
}
END_TEST

/* --- threads, and what is refused ------------------------------------------------------------ */

START_TEST(any_number_of_threads_gives_the_same_bytes)
{
    const struct checkpoint_shape shape = mha(_i ? 16 : 8);
    struct opened a = open_shape(&shape);
    struct convert_spec spec = with_text(spec_of(&a, 2, CONVERT_FIT), 200);
    spec.cluster = true;
    spec.refit = true;
    struct opened alone = convert_to(&spec, NULL);
    static const int threads[] = {2, 3, 5, 8};
    for (int t = 0; t < 4; t++) {
        struct pool *pool;
        struct err e = {""};
        ck_assert_int_eq(pool_create(threads[t], &pool, &e), STATUS_OK);
        spec.pool = pool;
        struct opened b = convert_to(&spec, NULL);
        ck_assert_uint_eq(alone.len, b.len);
        ck_assert_mem_eq(alone.bytes, b.bytes, b.len);
        close_opened(&b);
        pool_free(pool);
    }
    close_opened(&a), close_opened(&alone);
}
END_TEST

static bool stop_after(void *arg)
{
    int *left = arg;
    return (*left)-- <= 0;
}

START_TEST(impossible_or_stopped)
{
    const struct checkpoint_shape shape = mha(8);
    struct opened a = open_shape(&shape);
    struct convert c;
    size_t bytes;
    struct err e = {""};
    static const int bad[] = {0, -1, 3, 16, 64};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct convert_spec spec = spec_of(&a, bad[i], CONVERT_FIT);
        ck_assert_int_eq(convert_run(&spec, &c, &e), STATUS_USAGE);
        ck_assert_int_eq(convert_plan(&spec, &bytes, &e), STATUS_USAGE);
    }
    struct convert_spec spec = spec_of(&a, 2, CONVERT_FIT);
    spec.refit = true;
    ck_assert_int_eq(convert_run(&spec, &c, &e), STATUS_USAGE);
    spec = with_text(spec, N_CALIB);
    calib[7] = 300;
    ck_assert_int_eq(convert_run(&spec, &c, &e), STATUS_USAGE);
    ck_assert_msg(strstr(e.text, "token 7") != NULL, "%s", e.text);
    calib[7] = 0;
    ck_assert_int_eq(convert_plan(&spec, &bytes, &e), STATUS_OK);
    ck_assert_uint_gt(bytes, 3 * N_CALIB * 64 * sizeof(float));
    /* It asks at every window of every pass, the embedding of the tokens too: that was left out
     * once, and a conversion that filled gigabytes could not be interrupted meanwhile. */
    enum status s = STATUS_INTERRUPTED;
    int asked = 0;
    for (; s == STATUS_INTERRUPTED; asked += 23) {
        int left = asked;
        spec.stop = stop_after;
        spec.arg = &left;
        s = convert_run(&spec, &c, &e);
        convert_free(&c);
    }
    ck_assert_int_eq(s, STATUS_OK);
    ck_assert_int_gt(asked, 60 + (N_CALIB + shape.n_ctx - 1) / shape.n_ctx);
    close_opened(&a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("convert");
    TCase *t = tcase_create("convert");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, as_many_heads_change_nothing, 0, 3);
    tcase_add_loop_test(t, planted_groups_are_recovered, 0, 4);
    tcase_add_loop_test(t, heads_of_their_own_width, 0, 2);
    tcase_add_test(t, fit_does_not_see_the_gauge_but_mean_does);
    tcase_add_loop_test(t, losses_are_those_of_plain_loops, 0, 8);
    tcase_add_loop_test(t, fit_loses_least, 0, 4);
    tcase_add_test(t, mean_and_first_pool_weights_and_biases);
    tcase_add_test(t, from_gqa_to_any_divisor);
    tcase_add_loop_test(t, types_and_metadata, 0, 3);
    tcase_add_test(t, impossible_or_stopped);
    tcase_set_tags(t, ONE_THREAD);
    suite_add_tcase(s, t);
    TCase *threads = tcase_create("threads");
    tcase_set_timeout(threads, 300);
    tcase_add_loop_test(threads, any_number_of_threads_gives_the_same_bytes, 0, 2);
    suite_add_tcase(s, threads);
    return run_suite(s);
}
