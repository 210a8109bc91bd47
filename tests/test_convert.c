/* The conversion against what it promises: exact where nothing has to be lost, blind to the gauge,
 * its reported losses those of plain loops over the activations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conversions.h"
#include "engine/session.h"
#include "support.h"

#define CTX 64

static struct checkpoint_shape mha(int n_heads)
{
    return (struct checkpoint_shape){SIZES(2, n_heads, n_heads, 8, 64, CTX, 300),
                                     .type = TENSOR_F32, .seed = 7};
}

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

/* The same function in other weights: each head in a random gauge, and its place if `permute`. */
static struct opened regauge(const struct opened *o, bool permute, uint64_t seed)
{
    const int n_heads = o->model->config.n_heads;
    struct planting p = planting_of(n_heads, n_heads);
    p.gauge = true;
    p.permute = permute;
    p.seed = seed;
    return plant(o, &p);
}

/* --- nothing has to be lost ------------------------------------------------------------------ */

TEST(as_many_heads_change_nothing, .loops = 3, .seconds = 300, .tags = ONE_THREAD)
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
    }
}

/* Exact grouping with 8 heads, swaps with 16; from weights alone, and with text and refit. */
TEST(planted_groups_are_recovered, .loops = 4, .seconds = 300, .tags = ONE_THREAD)
{
    struct checkpoint_shape shape = mha(_i % 2 ? 16 : 8);
    shape.base_kv_heads = 4;
    struct opened a = open_shape(&shape), b = regauge(&a, true, 5);
    double spread;
    ck_assert_double_lt(logits_apart(&a, &b, &spread), 1e-4);
    struct convert_spec spec = spec_of(&b, 4, CONVERT_FIT);
    if (_i >= 2) {
        spec = with_text(spec, N_CALIB);
        spec.refit = CONVERT_REFIT_WO;
    }
    struct opened adjacent = convert_to(&spec, NULL);
    ck_assert_double_gt(logits_apart(&a, &adjacent, NULL), 0.02 * spread);
    spec.cluster = true;
    struct opened c = convert_to(&spec, NULL);
    ck_assert_int_eq(c.model->config.n_kv_heads, 4);
    ck_assert_double_lt(logits_apart(&a, &c, NULL), 1e-3);
}

/* All heads together wider, and narrower, than the residual stream. */
TEST(heads_of_their_own_width, .loops = 2, .seconds = 300, .tags = ONE_THREAD)
{
    struct checkpoint_shape shape = mha(8);
    shape.d_model = _i ? 80 : 40;
    shape.base_kv_heads = 4;
    struct opened a = open_shape(&shape), b = regauge(&a, true, 5);
    ck_assert_int_eq(a.model->config.head_dim, 8);
    double spread;
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
    }
    struct convert_spec spec = with_text(spec_of(&b, 4, CONVERT_FIT), N_CALIB);
    spec.cluster = true;
    spec.refit = CONVERT_REFIT_WO;
    struct opened fitted = convert_to(&spec, NULL);
    ck_assert_double_lt(logits_apart(&a, &fitted, NULL), 1e-3);
}

/* --- the gauge ------------------------------------------------------------------------------- */

TEST(fit_does_not_see_the_gauge_but_mean_does, .seconds = 300, .tags = ONE_THREAD)
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
                of_a.refit = of_b.refit =
                    method == CONVERT_FIT ? CONVERT_REFIT_WO : CONVERT_REFIT_NONE;
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
        }
    }
}

/* --- what is lost ---------------------------------------------------------------------------- */

/* Query head `head` at x, and the key it meets at y. */
static double score_of(const struct opened *o, int head, const float *x, const float *y)
{
    const struct config *c = &o->model->config;
    double sum = 0;
    for (int i = 0; i < c->head_dim; i++)
        sum += qkv_element(o, 0, head * c->head_dim + i, x) *
               qkv_element(o, 0, c->d_model + head / config_group(c, 0) * c->head_dim + i, y);
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

TEST(score_losses_are_those_of_plain_loops, .loops = 4, .seconds = 300, .tags = ONE_THREAD)
{
    enum { N = 24 };
    const struct checkpoint_shape shape = mha(4);
    struct opened a = open_shape(&shape);
    const int d = a.model->config.d_model;
    float in[N * 32], normed[N * 32];
    const enum convert_method methods[] = {CONVERT_MEAN, CONVERT_RANDOM, CONVERT_PROCRUSTES,
                                           CONVERT_FIT};
    struct convert_spec spec = with_rows(spec_of(&a, 2, methods[_i]), N);
    spec.seed = 11;
    struct convert_layer lost[2];
    struct opened b = convert_to(&spec, lost);
    for (int t = 0; t < N; t++)
        model_embed(a.model, NULL, calib[t], t, in + t * d);
    struct probe *p;
    const struct block_taps taps = {.at = {[TAP_NORMED] = normed}};
    expect_ok(probe_create(&a.model->config, NULL, N, NULL, NULL, &p, &err));
    probe_run(p, &a.model->blocks[0], 0, in, N, &taps);
    probe_free(p);
    ck_assert_double_eq_tol(lost[0].score, direct_score_loss(&a, &b, normed, N), 1e-5);
}

/* --- pooling --------------------------------------------------------------------------------- */

/* (What the mean is, the loader says: test_convert_arch.) */
TEST(first_takes_weights_and_biases, .seconds = 300, .tags = ONE_THREAD)
{
    const struct checkpoint_shape shape = mha(8);
    struct opened a = open_shape(&shape);
    const struct convert_spec spec = spec_of(&a, 2, CONVERT_FIRST);
    struct opened b = convert_to(&spec, NULL);
    float *from = floats_of(a.gguf, 1, "attn_qkv.weight");
    float *to = floats_of(b.gguf, 1, "attn_qkv.weight");
    float *from_bias = floats_of(a.gguf, 1, "attn_qkv.bias");
    float *to_bias = floats_of(b.gguf, 1, "attn_qkv.bias");
    ck_assert_mem_eq(from, to, 64 * 64 * sizeof *to); /* the queries stay */
    for (int part = 0; part < 2; part++)
        for (int g = 0; g < 2; g++) {
            const int old = 64 * (part + 1) + 4 * g * 8, new = 64 + 16 * part + 8 * g;
            ck_assert_mem_eq(from + old * 64, to + new * 64, 8 * 64 * sizeof *to);
            ck_assert_mem_eq(from_bias + old, to_bias + new, 8 * sizeof *to);
        }
    const struct gguf_tensor *o1 = gguf_find_tensor(a.gguf, "blk.1.attn_output.weight");
    const struct gguf_tensor *o2 = gguf_find_tensor(b.gguf, "blk.1.attn_output.weight");
    ck_assert_mem_eq(o1->data, o2->data, o1->n_bytes);
    free(from), free(to), free(from_bias), free(to_bias);
}

/* --- from GQA -------------------------------------------------------------------------------- */

/* 6 K/V heads of 12 become 4, whose groups do not line up; a GQA checkpoint gives what the MHA one
 * with the same heads written out gives. */
TEST(from_gqa_to_any_divisor, .seconds = 300, .tags = ONE_THREAD)
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
        }
}

/* --- the file -------------------------------------------------------------------------------- */

TEST(types_and_metadata, .loops = 3, .seconds = 300, .tags = ONE_THREAD)
{
    static const uint32_t types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16};
    struct checkpoint_shape shape = mha(4);
    shape.type = types[_i];
    shape.no_biases = _i == 1;
    struct opened a = open_shape(&shape);
    struct convert_spec spec = with_text(spec_of(&a, 2, CONVERT_FIT), N_CALIB);
    spec.refit = CONVERT_REFIT_WO;
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
    expect_ok(gguf_get_u64(b.gguf, "gpt2.attention.head_count_kv", 2, 2, &n, NULL, &err));
    expect_ok(gguf_get_u64(b.gguf, "decode.convert.calibration_tokens", N_CALIB, N_CALIB, &n, NULL,
                           &err));
    expect_ok(gguf_get_text(b.gguf, "decode.convert.method", &text, NULL, &err));
    ck_assert(text_is(text, "fit"));
    /* Once more: the keys say how the last step was made. */
    struct convert_spec again = spec_of(&b, 1, CONVERT_MEAN);
    struct opened c = convert_to(&again, NULL);
    expect_ok(gguf_get_text(c.gguf, "decode.convert.method", &text, NULL, &err));
    ck_assert(text_is(text, "mean"));
    ck_assert_int_eq(c.model->config.n_kv_heads, 1);
}

/* --- threads, and what is refused ------------------------------------------------------------ */

TEST(any_number_of_threads_gives_the_same_bytes, .loops = 2, .seconds = 300)
{
    const struct checkpoint_shape shape = mha(_i ? 16 : 8);
    struct opened a = open_shape(&shape);
    struct convert_spec spec = with_text(spec_of(&a, 2, CONVERT_FIT), 200);
    spec.cluster = true;
    spec.refit = CONVERT_REFIT_WO;
    expect_same_bytes(spec);
}

static bool stop_after(void *arg)
{
    int *left = arg;
    return (*left)-- <= 0;
}

TEST(impossible_or_stopped, .seconds = 300, .tags = ONE_THREAD)
{
    const struct checkpoint_shape shape = mha(8);
    struct opened a = open_shape(&shape);
    struct convert c;
    size_t bytes;
    static const int bad[] = {0, -1, 3, 16, 64};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct convert_spec spec = spec_of(&a, bad[i], CONVERT_FIT);
        ck_assert_int_eq(convert_run(&spec, &c, &err), STATUS_USAGE);
        ck_assert_int_eq(convert_plan(&spec, &bytes, &err), STATUS_USAGE);
    }
    struct convert_spec spec = spec_of(&a, 2, CONVERT_FIT);
    spec.refit = CONVERT_REFIT_WO;
    ck_assert_int_eq(convert_run(&spec, &c, &err), STATUS_USAGE);
    spec = with_text(spec, N_CALIB);
    expect_ok(convert_plan(&spec, &bytes, &err));
    ck_assert_uint_gt(bytes, 3 * N_CALIB * 64 * sizeof(float));
    /* It asks at every window of every pass, the embedding of the tokens too: that was left out
     * once, and a conversion that filled gigabytes could not be interrupted meanwhile. */
    enum status s = STATUS_INTERRUPTED;
    int asked = 0;
    for (; s == STATUS_INTERRUPTED; asked += 23) {
        int left = asked;
        spec.stop = stop_after;
        spec.arg = &left;
        s = convert_run(&spec, &c, &err);
        convert_free(&c);
    }
    ck_assert_int_eq(s, STATUS_OK);
    ck_assert_int_gt(asked, 60 + (N_CALIB + shape.n_ctx - 1) / shape.n_ctx);
}
