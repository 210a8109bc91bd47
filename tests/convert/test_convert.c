/* Tests what conversion promises for every architecture: it is exact where nothing has to be lost,
 * does not depend on the gauge, and reports the losses that plain loops over the activations find.
 */
#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conversions.h"
#include "engine/session.h"
#include "formats/gguf_values.h"
#include "model/pack.h"
#include "opened.h"

#define MAX_LAYERS 8
#define N_TOKENS   40 /* that logits are compared on */

/* Makes as many K/V heads as there are query heads, all different, which is another function than
 * the file's. */
static struct opened open_as_mha(const char *name)
{
    struct opened file = open_golden_kind(name);
    const struct config *c = &file.model->config;
    struct planting p = planting_of(c->n_heads, 0);
    for (int l = 0; l < c->n_layers; l++)
        p.base[l] = config_kv_heads(c, l);
    p.gauge = p.dense = true;
    p.seed = 3;
    return plant(&file, &p);
}

/* Returns the root mean square of the difference of the logits after each of some tokens. *spread
 * (may be NULL) is that of the first model's own logits around their mean. */
static double logits_apart(const struct opened *a, const struct opened *b, double *spread)
{
    const struct session_params params = {.n_ctx = 0};
    const size_t n_vocab = (size_t)a->model->config.n_vocab, n = N_TOKENS * n_vocab;
    int32_t tokens[N_TOKENS];
    text_tokens(tokens, N_TOKENS, (int)n_vocab, 3);
    float *x = logits_after(a->model, tokens, N_TOKENS, 0, NULL, &params);
    float *y = logits_after(b->model, tokens, N_TOKENS, 0, NULL, &params);
    double square = 0, own = 0, mean = 0;
    for (size_t i = 0; i < n; i++) {
        square += pow((double)x[i] - (double)y[i], 2);
        own += pow((double)x[i], 2);
        mean += (double)x[i];
    }
    if (spread)
        *spread = sqrt(own / (double)n - pow(mean / (double)n, 2));
    return sqrt(square / (double)n);
}

static const struct gguf_tensor *find_part(const struct opened *o, int layer, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    return gguf_find_tensor(o->gguf, name);
}

CONVERSION_TEST(as_many_heads_change_nothing, .loops = 5)
{
    static const int shapes[][2] = {{1, 8}, {2, 16}, {8, 64}, {8, 40}, {8, 80}}; /* heads, width */
    struct checkpoint_shape shape = mha_shape(shapes[_i][0], 0);
    shape.d_model = shapes[_i][1];
    struct opened a = open_shape(&shape);
    ck_assert_int_eq(a.model->config.head_dim, 8);
    for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method++) {
        struct convert_spec plain = spec_of(&a, shape.n_heads, (enum convert_method)method);
        struct convert_spec calibrated = with_text(plain, N_CALIB);
        calibrated.cluster = true;
        struct convert_layer lost[2];
        struct opened b = convert_to(&plain, lost);
        if (method == CONVERT_RANDOM)
            continue;
        struct opened c = convert_to(&calibrated, NULL);
        ck_assert_double_lt(logits_apart(&a, &b, NULL), 1e-4);
        ck_assert_double_lt(logits_apart(&a, &c, NULL), 1e-4);
        ck_assert_double_lt(lost[1].score + lost[1].output, 1e-9);
    }
}

/* Checkpoints whose K/V heads are as many as their query heads, but equal, group by group, up to
 * what may be folded into queries and output. */
static const struct exact_case {
    const char *name; /* NULL: made, of as many heads as are many */
    int own[3];       /* different heads, by block */
    int many[3];      /* that are made of them */
    int extra_values, n_turned, width;
} exact_cases[] = {
    /* The groups are exact, or heads have changed places. */
    {NULL, {4, 4}, {8, 8}, 0, 0, 0},
    {NULL, {4, 4}, {16, 16}, 0, 0, 0},
    /* All heads together are wider, or narrower, than the residual stream. */
    {NULL, {4, 4}, {8, 8}, 0, 0, 40},
    {NULL, {4, 4}, {8, 8}, 0, 0, 80},
    /* Tensors are separate, positions rotary, norms RMS; the second half of each head may not be
       turned. */
    {"llama", {2, 2}, {8, 8}, 0, 0, 0},
    {"llama", {2, 2}, {8, 8}, 0, 4, 0},
    /* This has biases as well, K/V heads by layer and factors of frequencies. */
    {"mixed-llama", {2, 2, 1}, {6, 6, 1}, 0, 0, 0},
    /* Tensors are joined, and three layers share one block; values are wider than keys. */
    {"shared-block", {2}, {6}, 0, 0, 0},
    {"shared-block", {2}, {6}, 3, 0, 0},
    /* Norms stand after the residuals, positions are sinusoids, and the embedding is scaled. */
    {"transformer", {2, 2}, {6, 6}, 0, 0, 0},
    {"transformer", {2, 2}, {6, 6}, 5, 0, 0},
    {"mixed-sinusoidal", {1}, {5}, 0, 0, 0},
    /* Scores have trained biases, which follow their heads. */
    {"quadratic", {3, 3}, {6, 6}, 0, 0, 0},
    {"mixed-quadratic", {2, 1, 2}, {4, 1, 4}, 0, 0, 0},
    /* Slopes belong to the places of heads and stay there. */
    {"alibi", {3, 3}, {6, 6}, 0, 0, 0},
    {"mixed-alibi", {3, 3}, {6, 6}, 0, 0, 0},
    {"layerwise-kv", {2, 2, 1}, {6, 2, 1}, 0, 0, 0},
    {"mixed-none", {1, 1}, {3, 1}, 0, 0, 0},
    {"mha", {2, 2}, {4, 4}, 0, 0, 0},
};

/* Conversions are from weights alone and on text, without a refit and with one. Groups of
 * neighbours lose much where heads have changed places. */
CONVERSION_TEST(planted_heads_are_found, .loops = COUNT(exact_cases), .left_out = SANITIZED)
{
    const struct exact_case *k = &exact_cases[_i];
    struct checkpoint_shape shape = mha_shape(k->many[0], 0);
    shape.d_model = k->width;
    struct opened file = k->name ? open_golden_kind(k->name) : open_shape(&shape);
    const bool may_move = file.model->config.position != POSITION_ALIBI;
    struct planting p = {.extra_values = k->extra_values, .n_turned = k->n_turned, .seed = 6};
    memcpy(p.base, k->own, sizeof k->own);
    memcpy(p.kv_heads, k->own, sizeof k->own);
    struct opened a = plant(&file, &p);
    memcpy(p.kv_heads, k->many, sizeof k->many);
    p.gauge = true;
    struct opened adjacent = plant(&file, &p);
    p.permute = may_move;
    struct opened moved = plant(&file, &p);
    double spread;
    for (int way = 0; way < 6; way++) {
        const bool cluster = way % 2;
        struct convert_spec spec = spec_of(cluster ? &moved : &adjacent, k->own[0], CONVERT_FIT);
        if (way >= 2)
            spec = with_text(spec, N_CALIB);
        spec.refit = way >= 4;
        struct convert_layer lost[MAX_LAYERS];
        if (cluster && !k->name) {
            struct opened neighbours = convert_to(&spec, NULL);
            ck_assert_double_gt(logits_apart(&a, &neighbours, &spread), 0.02 * spread);
        }
        spec.cluster = cluster && may_move;
        struct opened b = convert_to(&spec, lost);
        ck_assert_uint_eq(b.gguf->n_tensors, file.gguf->n_tensors);
        ck_assert_double_lt(logits_apart(&a, &b, &spread), (spec.refit ? 3e-6 : 1e-6) * spread);
        ck_assert_double_lt(lost[0].score + lost[1].output, 1e-9);
    }
}

/* 6 K/V heads of 12 become 4, whose groups do not line up with those of 6. A GQA checkpoint gives
 * the same as an MHA checkpoint with its heads written out. */
CONVERSION_TEST(from_gqa_to_any_divisor)
{
    static const int wanted[] = {6, 4, 3, 2, 1};
    struct checkpoint_shape shape = mha_shape(12, 0);
    shape.n_kv_heads = 6;
    struct opened expanded = open_mha(12, 6), gqa = open_shape(&shape);
    double spread;
    ck_assert_double_lt(logits_apart(&expanded, &gqa, NULL), 1e-5);
    for (size_t i = 0; i < 2 * COUNT(wanted); i++) {
        const int g = wanted[i / 2];
        const enum convert_method method = i % 2 ? CONVERT_FIT : CONVERT_MEAN;
        struct convert_spec a = with_text(spec_of(&expanded, g, method), N_CALIB);
        struct convert_spec b = with_text(spec_of(&gqa, g, method), N_CALIB);
        struct opened x = convert_to(&a, NULL), y = convert_to(&b, NULL);
        ck_assert_int_eq(y.model->config.n_kv_heads, g);
        ck_assert_double_lt(logits_apart(&x, &y, &spread), 1e-3 * spread);
        if (g == 6) /* nothing is lost */
            ck_assert_double_lt(logits_apart(&gqa, &y, NULL), 1e-4);
    }
}

/* Tokens of calibration in windows of 16. The last one is held out. */
#define WINDOW   16
#define N_ROWS   CONVERT_MIN_TOKENS
#define N_FITTED (N_ROWS - WINDOW)
struct rows {
    int n;
    float x[MAX_LAYERS * N_FITTED * 64]; /* [n, d_model] what Q, K and V are products of */
};

/* The stream of the tokens of `calib`, window by window, and the probe that takes it through
 * layers. */
static struct probe *embedded(const struct opened *o, float *stream)
{
    const struct config *c = &o->model->config;
    struct probe *p = new_probe(o->model, WINDOW, NULL);
    ck_assert_int_eq(convert_window_size(c->n_ctx, N_ROWS), WINDOW);
    for (int t = 0; t < N_ROWS; t++)
        probe_embed(p, o->model, calib[t], t % WINDOW, stream + t * c->d_model);
    return p;
}

/* The inputs are those of the first layers that use block 0, in the windows that are fitted to. */
static struct rows input_rows(const struct opened *o)
{
    const struct config *c = &o->model->config;
    static float stream[N_ROWS * 64];
    static struct rows r;
    struct probe *p = embedded(o, stream);
    r.n = 0;
    for (int l = 0; l < (c->shared ? c->n_layers : 1); l++)
        for (int t = 0; t < N_FITTED; t += WINDOW, r.n += WINDOW) {
            float *x = stream + t * c->d_model;
            const struct block_taps taps = {
                .at = {[TAP_NORMED] = r.x + r.n * c->d_model, [TAP_OUT] = x}};
            probe_run(p, &o->model->blocks[l], l, x, WINDOW, &taps);
        }
    return r;
}

/* Returns row `row` of W x + b for block 0's Q, K and V together, in F32; x [d_model]. */
static double qkv_element(const struct opened *o, int row, const float *x)
{
    const struct matrix *w = &o->model->blocks[0].w[ROLE_ATTN_QKV].matrix;
    float *of_row = allocated((size_t)w->n_in * sizeof *of_row);
    double sum = w->bias ? (double)w->bias[row] : 0;
    pack_read_row(w, row, of_row);
    for (int i = 0; i < w->n_in; i++)
        sum += (double)of_row[i] * (double)x[i];
    return sum;
}

/* Returns element i of a query head at x, or of the key that it meets. */
static double head_element(const struct opened *o, bool is_key, int head, int i, const float *x)
{
    const struct config *c = &o->model->config;
    const int first =
        is_key ? config_q_dim(c) + head / config_group(c, 0) * c->head_dim : head * c->head_dim;
    return qkv_element(o, first + i, x);
}

/* Takes all pairs of rows; of each row of scores its mean over a window of keys is subtracted. */
static double direct_score_loss(const struct opened *a, const struct opened *b,
                                const struct rows *r)
{
    const struct config *c = &a->model->config;
    const struct opened *both[] = {a, b};
    double lost = 0, all = 0;
    for (int h = 0; h < c->n_heads; h++)
        for (int i = 0; i < r->n * r->n / WINDOW; i++) {
            double scores[2][WINDOW] = {{0}}, means[2] = {0, 0};
            const float *query = r->x + i % r->n * c->d_model;
            const float *keys = r->x + i / r->n * WINDOW * c->d_model;
            for (int j = 0; j < WINDOW; j++) {
                for (int k = 0; k < 2 * c->head_dim; k++)
                    scores[k % 2][j] +=
                        head_element(both[k % 2], false, h, k / 2, query) *
                        head_element(both[k % 2], true, h, k / 2, keys + j * c->d_model);
                means[0] += scores[0][j] / WINDOW;
                means[1] += (scores[0][j] - scores[1][j]) / WINDOW;
            }
            for (int j = 0; j < WINDOW; j++) {
                all += pow(scores[0][j] - means[0], 2);
                lost += pow(scores[0][j] - scores[1][j] - means[1], 2);
            }
        }
    return lost / all;
}

/* Returns queries, or the keys that they meet, as complex numbers [heads, pairs, rows]. */
static double complex *pairs_of(const struct opened *o, bool is_key, const struct rows *r)
{
    const struct config *c = &o->model->config;
    const int n_pairs = c->head_dim / 2;
    double complex *z = allocated((size_t)(c->n_heads * n_pairs * r->n) * sizeof *z);
    for (int k = 0; k < c->n_heads * n_pairs * r->n; k++) {
        const int h = k / r->n / n_pairs, pair = k / r->n % n_pairs;
        const float *x = r->x + k % r->n * c->d_model;
        z[k] = head_element(o, is_key, h, 2 * pair, x) +
               (double complex)I * head_element(o, is_key, h, 2 * pair + 1, x);
    }
    return z;
}

static double square(double complex z)
{
    return creal(z) * creal(z) + cimag(z) * cimag(z);
}

/* Sums over heads, pairs and two rows. The part of a score turns with the distance at the pair's
 * frequency, so that its mean square over all turns is half that of the complex product. */
static double direct_turned_loss(const struct opened *a, const struct opened *b,
                                 const struct rows *r)
{
    const struct config *c = &a->model->config;
    const double complex *q = pairs_of(a, false, r), *k = pairs_of(a, true, r);
    const double complex *q2 = pairs_of(b, false, r), *k2 = pairs_of(b, true, r);
    double lost = 0, all = 0;
    for (int h = 0; h < c->n_heads * c->head_dim / 2; h++)
        for (int i = h * r->n; i < (h + 1) * r->n; i++)
            for (int j = h * r->n; j < (h + 1) * r->n; j++) {
                const double complex own = conj(q[i]) * k[j];
                lost += square(own - conj(q2[i]) * k2[j]);
                all += square(own);
            }
    return lost / all;
}

/* Positions are learned, rotary, or rotary in a block that all layers share. */
CONVERSION_TEST(scores_lose_what_plain_loops_find, .loops = SANITIZED ? 1 : 3)
{
    struct opened a = _i ? open_as_mha(_i == 1 ? "llama" : "shared-block") : open_mha(4, 0);
    for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method++) {
        const struct convert_spec spec =
            with_text(spec_of(&a, 2, (enum convert_method)method), N_ROWS);
        struct convert_layer lost[MAX_LAYERS];
        struct opened b = convert_to(&spec, lost);
        const struct rows r = input_rows(&a);
        const double direct = _i ? direct_turned_loss(&a, &b, &r) : direct_score_loss(&a, &b, &r);
        ck_assert_double_eq_tol(lost[0].score, direct, 1e-5);
    }
}

/* Takes both models' streams through their layers. lost [n_layers] is the squared distance after
 * attention over the centred energy that the first model's attention adds. */
static void direct_output_losses(const struct opened *a, const struct opened *b, double *lost)
{
    const struct config *c = &a->model->config;
    const struct opened *both[] = {a, b};
    const int d = c->d_model;
    static float stream[2][N_ROWS * 64], middle[2][N_ROWS * 64], before[N_ROWS * 64];
    struct probe *p[] = {embedded(a, stream[0]), embedded(b, stream[1])};
    for (int l = 0; l < c->n_layers; l++) {
        double energy = 0, distance = 0, sums[64] = {0};
        memcpy(before, stream[0], sizeof before);
        for (int i = 0; i < 2 * N_ROWS / WINDOW; i++) {
            const int at = i / 2 * WINDOW * d;
            float *x = stream[i % 2] + at;
            const struct block_taps taps = {
                .at = {[TAP_MIDDLE] = middle[i % 2] + at, [TAP_OUT] = x}};
            probe_run(p[i % 2], &both[i % 2]->model->blocks[l], l, x, WINDOW, &taps);
        }
        for (int t = 0; t < N_ROWS * d; t++) {
            const double added = (double)middle[0][t] - (double)before[t];
            sums[t % d] += added;
            energy += added * added;
            distance += pow((double)middle[0][t] - (double)middle[1][t], 2);
        }
        for (int i = 0; i < d; i++)
            energy -= sums[i] * sums[i] / N_ROWS;
        lost[l] = distance / energy;
    }
}

CONVERSION_TEST(output_loses_what_the_streams_do, .loops = N_KINDS)
{
    struct opened a = open_golden_kind(golden_kinds[_i]);
    for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method++) {
        struct convert_spec spec = with_text(spec_of(&a, 1, (enum convert_method)method), N_ROWS);
        struct convert_layer lost[MAX_LAYERS];
        struct opened b = convert_to(&spec, lost);
        double direct[MAX_LAYERS];
        direct_output_losses(&a, &b, direct);
        for (int l = 0; l < a.model->config.n_layers; l++)
            ck_assert_double_eq_tol(lost[l].output, direct[l], 1e-4 * direct[l] + 1e-9);
    }
}

/* The heads are random at first, and those of a trained model at last. There fit also loses least
 * of the output on a text, and the methods that fit nothing lose much. */
CONVERSION_TEST(fit_loses_least, .loops = SANITIZED ? 6 : 2 * N_KINDS + 4)
{
    const int kind = _i / 2 - 1;
    struct opened a = kind < 0         ? open_mha(8, 0)
                      : kind < N_KINDS ? open_as_mha(golden_kinds[kind])
                                       : open_path("models/shakespeare-mha.gguf");
    const bool text = _i % 2, all_differ = kind < 0 || kind == N_KINDS;
    /* Converts a golden file to one number of heads. */
    const int n_heads = a.model->config.n_heads, few = n_heads % 2 ? 1 : 2;
    const int first = kind == N_KINDS ? 4 : all_differ ? 1 : few;
    for (int g = first; g <= (all_differ ? 4 : few) && n_heads % g == 0; g *= 2) {
        struct convert_layer lost[CONVERT_FIT + 1][MAX_LAYERS], clustered[MAX_LAYERS];
        struct convert_spec spec = spec_of(&a, g, CONVERT_FIT);
        if (text)
            spec = with_text(spec, N_CALIB);
        for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method++) {
            spec.method = (enum convert_method)method;
            struct opened b = convert_to(&spec, lost[method]);
            ck_assert(isfinite(logits_apart(&a, &b, NULL)));
        }
        spec.cluster = a.model->config.position != POSITION_ALIBI;
        convert_to(&spec, clustered);
        for (int l = 0; l < a.model->config.n_layers; l++) {
            const struct convert_layer *fit = &lost[CONVERT_FIT][l];
            if (!text)
                ck_assert_double_le(clustered[l].score + clustered[l].output,
                                    fit->score + fit->output + 1e-9);
            for (int method = CONVERT_MEAN; method < CONVERT_FIT; method++) {
                const struct convert_layer *other = &lost[method][l];
                ck_assert_double_le(fit->score, other->score);
                if (all_differ || !text)
                    ck_assert_double_le(fit->output, other->output + (all_differ ? 0 : 1e-9));
                if (all_differ && (method == CONVERT_MEAN || method == CONVERT_PROCRUSTES))
                    ck_assert_double_gt(other->score, 0.01);
            }
        }
    }
}

CONVERSION_TEST(first_takes_weights_and_biases)
{
    struct opened a = open_mha(8, 0);
    const struct convert_spec spec = spec_of(&a, 2, CONVERT_FIRST);
    struct opened b = convert_to(&spec, NULL);
    for (int bias = 0; bias < 2; bias++) {
        const char *part = bias ? "attn_qkv.bias" : "attn_qkv.weight";
        const unsigned char *from = find_part(&a, 1, part)->data,
                            *to = find_part(&b, 1, part)->data;
        const size_t row = (bias ? 1 : 64) * sizeof(float);
        ck_assert_mem_eq(from, to, 64 * row); /* the queries stay */
        for (size_t g = 0; g < 4; g++)        /* two of keys, two of values */
            ck_assert_mem_eq(from + (64 + 32 * g) * row, to + (64 + 8 * g) * row, 8 * row);
    }
    const struct gguf_tensor *o = find_part(&a, 1, "attn_output.weight");
    ck_assert_mem_eq(o->data, find_part(&b, 1, "attn_output.weight")->data, o->n_bytes);
}

static void expect_method(const struct opened *o, const char *method)
{
    struct text text;
    expect_ok(gguf_get_text(o->gguf, "decode.convert.method", &text, NULL, &err));
    ck_assert(text_is(text, method));
}

CONVERSION_TEST(types_and_metadata, .loops = 3)
{
    static const uint32_t types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    struct checkpoint_shape shape = mha_shape(4, 0);
    shape.type = types[_i];
    shape.no_biases = _i == 1;
    struct opened a = open_shape(&shape);
    struct convert_spec spec = fit_to(&a, 2, true);
    struct opened b = convert_to(&spec, NULL);
    const struct gguf_tensor *qkv = find_part(&b, 1, "attn_qkv.weight");
    ck_assert_uint_eq(qkv->type->type, types[_i]);
    ck_assert_uint_eq(qkv->dims[1], 32 + 2 * 16);
    ck_assert_uint_eq(find_part(&b, 0, "attn_output.weight")->type->type, types[_i]);
    ck_assert_int_eq(find_part(&b, 1, "attn_output.bias") != NULL, !shape.no_biases);
    ck_assert_ptr_eq(gguf_find_tensor(b.gguf, "output.weight")->type,
                     gguf_find_tensor(a.gguf, "output.weight")->type);
    uint64_t n;
    expect_ok(gguf_get_u64(b.gguf, "gpt2.attention.head_count_kv", 2, 2, &n, NULL, &err));
    expect_ok(gguf_get_u64(b.gguf, "decode.convert.calibration_tokens", N_CALIB, N_CALIB, &n, NULL,
                           &err));
    expect_method(&b, "fit");
    /* Converted once more, the file's keys describe the last step. */
    struct convert_spec again = spec_of(&b, 1, CONVERT_MEAN);
    struct opened c = convert_to(&again, NULL);
    expect_method(&c, "mean");
    ck_assert_int_eq(c.model->config.n_kv_heads, 1);
}

/* The file has an array of numbers, or one. The random method, too, leaves layers alone whose heads
 * stay. */
CONVERSION_TEST(layers_with_few_heads_keep_them)
{
    static const int expected[] = {2, 2, 1};
    struct opened a = open_golden_kind("layerwise-kv");
    struct convert_spec spec = spec_of(&a, 2, CONVERT_FIT);
    struct opened b = convert_to(&spec, NULL);
    const struct gguf_value *heads = gguf_find(b.gguf, "decode.attention.head_count_kv");
    ck_assert(heads && heads->kind == GGUF_ARRAY && heads->count == 3);
    for (int l = 0; l < 3; l++)
        ck_assert_int_eq(gguf_int_at(heads, (uint64_t)l), expected[l]);
    for (size_t i = 0; i < a.gguf->n_tensors; i++) {
        const struct gguf_tensor *from = &a.gguf->tensors[i], *to = &b.gguf->tensors[i];
        ck_assert(text_equal(from->name, to->name));
        if (!text_starts_with(from->name, "blk.0."))
            ck_assert_mem_eq(from->data, to->data, from->n_bytes);
    }
    spec = spec_of(&b, 1, CONVERT_RANDOM);
    struct opened c = convert_to(&spec, NULL);
    heads = gguf_find(c.gguf, "decode.attention.head_count_kv");
    ck_assert(heads && heads->kind == GGUF_U32 && gguf_int_at(heads, 0) == 1);
    const struct gguf_tensor *kept = find_part(&b, 2, "attn_qkv.weight");
    ck_assert_mem_eq(find_part(&c, 2, "attn_qkv.weight")->data, kept->data, kept->n_bytes);
}

TEST(any_number_of_threads_gives_the_same_bytes, .first = SANITIZED ? 3 : 0, .loops = 6,
     .seconds = 300)
{
    /* These have rotary positions, one block for all layers, no clusters, and heads by layer. */
    static const char *const kinds[] = {"llama", "shared-block", "alibi", "layerwise-kv"};
    struct opened a = _i < 4    ? open_golden_kind(kinds[_i])
                      : _i == 4 ? open_mha(16, 0)
                                : open_path("tests/data/shakespeare-bytes.gguf");
    struct convert_spec spec = with_text(spec_of(&a, _i < 4 ? 1 : 2, CONVERT_FIT), 200);
    spec.cluster = a.model->config.position != POSITION_ALIBI;
    spec.refit = true;
    struct opened alone = convert_to(&spec, NULL);
    for (int scalar = 0; scalar <= (SANITIZED ? 0 : 1); scalar++) {
        spec.pool = new_pool(scalar ? 2 : 5);
        spec.kernels = scalar ? &kernels_scalar : NULL;
        struct opened b = convert_to(&spec, NULL);
        ck_assert_uint_eq(alone.len, b.len);
        ck_assert_mem_eq(alone.bytes, b.bytes, b.len);
    }
}

/* (tests/data/broken/lines.txt has conversions that lack their text.) */
CONVERSION_TEST(what_cannot_be_converted)
{
    static const int bad[] = {0, -1, 3, 16, 64};
    struct opened mha = open_mha(8, 0);
    struct convert c;
    size_t bytes;
    for (size_t i = 0; i < COUNT(bad); i++) {
        const struct convert_spec spec = spec_of(&mha, bad[i], CONVERT_FIT);
        expect_status(convert_plan(&spec, &bytes, &err), STATUS_USAGE, "");
        expect_status(convert_run(&spec, &c, &err), STATUS_USAGE, "");
    }
}

static bool stop_after(void *arg)
{
    int *left = arg;
    return (*left)-- <= 0;
}

/* A conversion asks at every window of every pass, also while it embeds the tokens. Once it did not
 * ask there, and one that filled gigabytes could not be interrupted. */
CONVERSION_TEST(it_can_be_stopped)
{
    struct opened a = open_mha(8, 0);
    struct convert c;
    size_t bytes;
    struct convert_spec spec = fit_to(&a, 2, true);
    spec.callbacks.stop = stop_after;
    expect_ok(convert_plan(&spec, &bytes, &err));
    ck_assert_uint_gt(bytes, 3 * N_CALIB * 64 * sizeof(float));
    enum status s = STATUS_INTERRUPTED;
    int asked = 0;
    for (; s == STATUS_INTERRUPTED; asked += 23) {
        int left = asked;
        spec.callbacks.arg = &left;
        s = convert_run(&spec, &c, &err);
        convert_free(&c);
    }
    ck_assert_int_eq(s, STATUS_OK);
    ck_assert_int_gt(asked, 60 + N_CALIB / a.model->config.n_ctx);
}
