/* What is fitted to text beyond the shared heads, and latent caches: exact where nothing has to be
 * lost, never worse than without, the same bits for any threads and instruction set. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/linalg.h"
#include "conversions.h"
#include "support.h"

#define CTX        64
#define MAX_LAYERS 8

static struct opened open_mha(int n_heads, int base)
{
    const struct checkpoint_shape shape = {SIZES(2, n_heads, n_heads, 8, 64, CTX, 300),
                                           .base_kv_heads = base, .type = TENSOR_F32, .seed = 7};
    return open_shape(&shape);
}

/* --- minimisation ---------------------------------------------------------------------------- */

struct valley {
    int n, asked, stop_after;
};

/* Rosenbrock's function of many variables, 0 at (1, ..., 1). */
static bool valley(void *arg, const double *x, double *value, double *gradient)
{
    struct valley *v = arg;
    *value = 0;
    memset(gradient, 0, (size_t)v->n * sizeof *gradient);
    for (int i = 0; i + 1 < v->n; i++) {
        const double a = 1 - x[i], b = x[i + 1] - x[i] * x[i];
        *value += a * a + 100 * b * b;
        gradient[i] += -2 * a - 400 * b * x[i];
        gradient[i + 1] += 200 * b;
    }
    return ++v->asked != v->stop_after;
}

/* To its end, with fewer evaluations never further than with more, and stopped before the first. */
TEST(lbfgs_follows_a_valley, .seconds = 300, .tags = ONE_THREAD)
{
    enum { N = 10, MEMORY = 5 };
    double *scratch = allocated(lbfgs_scratch(N, MEMORY) * sizeof *scratch);
    double before, last = HUGE_VAL, gradient[N];
    for (int most = 0; most < 400; most += most < 30 ? 1 : 369) {
        double x[N];
        struct valley v = {.n = N, .stop_after = most == 0};
        const struct lbfgs p = {.n = N,
                                .memory = MEMORY,
                                .evaluations = most ? most : 9,
                                .evaluate = valley,
                                .arg = &v};
        for (int i = 0; i < N; i++)
            x[i] = i % 2 ? 1 : -1.2;
        const double value = lbfgs_minimise(&p, x, scratch);
        if (most == 0) {
            ck_assert(isnan(value) && x[0] < -1.19);
            continue;
        }
        ck_assert_int_le(v.asked, most);
        valley(&v, x, &before, gradient);
        ck_assert_double_eq(value, before);
        ck_assert_double_le(value, last);
        last = value;
        for (int i = 0; i < N && most == 399; i++)
            ck_assert_double_eq_tol(x[i], 1, 1e-5);
    }
    ck_assert_double_lt(last, 1e-12);
}

/* --- K/V heads ------------------------------------------------------------------------------- */

/* Every piece is judged by the error after attention on windows kept aside, which are much like
 * those that the report's figure is of; nothing comes before the first layer. */
TEST(more_is_not_worse, .loops = SANITIZED ? 2 : N_KINDS, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_golden_kind(golden_kinds[_i]);
    double last = HUGE_VAL;
    for (int refit = CONVERT_REFIT_NONE; refit <= CONVERT_REFIT_BLOCK; refit++) {
        struct convert_spec spec = with_text(spec_of(&a, 1, CONVERT_FIT), N_CALIB);
        struct convert_layer lost[MAX_LAYERS];
        spec.refit = (enum convert_refit)refit;
        struct opened b = convert_to(&spec, lost);
        ck_assert_uint_eq(b.gguf->n_tensors, a.gguf->n_tensors);
        if (!a.model->config.shared || refit != CONVERT_REFIT_WO) /* judged by all its layers */
            ck_assert_double_le(lost[0].output, last * (1 + 1e-9));
        last = lost[0].output;
    }
}

TEST(nothing_lost_stays_so, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_mha(8, 4);
    struct planting p = planting_of(8, 8);
    double spread;
    p.gauge = p.permute = true;
    p.seed = 5;
    struct opened b = plant(&a, &p);
    for (int refit = CONVERT_REFIT_ALL; refit <= CONVERT_REFIT_BLOCK; refit++) {
        struct convert_spec spec = with_text(spec_of(&b, 4, CONVERT_FIT), N_CALIB);
        spec.cluster = true;
        spec.refit = (enum convert_refit)refit;
        struct opened c = convert_to(&spec, NULL);
        ck_assert_double_lt(logits_apart(&a, &c, &spread), 1e-3);
    }
}

TEST(kv_heads_layer_by_layer, .seconds = 300, .tags = ONE_THREAD)
{
    static const int heads[] = {2, 8}, bad[][2] = {{2, 3}, {4, 16}, {0, 2}};
    struct opened a = open_mha(8, 0);
    struct convert_spec spec = with_text(spec_of(&a, 8, CONVERT_FIT), N_CALIB);
    spec.layer_kv_heads = heads;
    spec.cluster = true;
    spec.refit = CONVERT_REFIT_ALL;
    struct convert_layer lost[MAX_LAYERS];
    struct opened b = convert_to(&spec, lost);
    ck_assert_int_eq(config_kv_heads(&b.model->config, 0), 2);
    ck_assert_int_eq(config_kv_heads(&b.model->config, 1), 8);
    ck_assert_double_gt(lost[0].score, 1e-3);
    ck_assert_double_eq(lost[1].score, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct convert c;
        spec.layer_kv_heads = bad[i];
        ck_assert_int_eq(convert_run(&spec, &c, &err), STATUS_USAGE);
    }
}

/* Heads that are narrower together than the residual stream, and values that are each wider than
 * it, whose metric lay in other memory: reconstruction brought nothing. */
TEST(heads_of_other_widths, .loops = 2, .seconds = 300, .tags = ONE_THREAD)
{
    const struct config shapes[] = {{.head_dim = 4, .value_dim = 4, .d_model = 64},
                                    {.head_dim = 4, .value_dim = 48, .d_model = 16}};
    struct config c = {.n_layers = 2,
                       .n_heads = 2,
                       .head_dim = shapes[_i].head_dim,
                       .value_dim = shapes[_i].value_dim,
                       .d_ff = 32,
                       .n_ctx = CTX,
                       .n_vocab = 20, /* so few that what is kept aside is much like the rest */
                       .norm_eps = 1e-5f};
    config_set_arch(&c, arch_find(text_of("decode")));
    c.d_model = shapes[_i].d_model;
    const char *path = scratch_path("model.gguf");
    write_config_checkpoint(path, &c);
    struct opened a = open_path(path);
    scratch_remove();
    struct convert_spec spec = with_text(spec_of(&a, 1, CONVERT_FIT), N_CALIB);
    struct convert_layer lost[CONVERT_REFIT_BLOCK + 1][MAX_LAYERS];
    for (int refit = CONVERT_REFIT_NONE; refit <= CONVERT_REFIT_BLOCK; refit++) {
        spec.refit = (enum convert_refit)refit;
        convert_to(&spec, lost[refit]);
    }
    ck_assert_double_lt(lost[CONVERT_REFIT_BLOCK][0].output,
                        0.9 * lost[CONVERT_REFIT_ALL][0].output);
}

/* Values that are all the same, so that rounding alone makes the moments of heads' results: their
 * trace came out negative, and a root was asked of it. */
TEST(values_that_are_constant, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_mha(2, 0);
    const size_t d = (size_t)a.model->config.d_model;
    for (int l = 0; l < a.model->config.n_layers; l++) {
        const struct gguf_tensor *weight =
            gguf_find_tensor(a.gguf, arch_tensor_name(ROLE_ATTN_QKV, l, false).text);
        const struct gguf_tensor *bias =
            gguf_find_tensor(a.gguf, arch_tensor_name(ROLE_ATTN_QKV, l, true).text);
        float *values = (float *)(void *)(a.bytes + (weight->data - a.bytes)) + 2 * d * d;
        float *means = (float *)(void *)(a.bytes + (bias->data - a.bytes)) + 2 * d;
        memset(values, 0, d * d * sizeof *values);
        for (size_t i = 0; i < d; i++)
            means[i] = 0.1f + 0.01f * (float)i;
    }
    for (int n = 640; n >= CONVERT_MIN_TOKENS; n -= SANITIZED ? 70 : 7) {
        struct convert_spec spec = with_text(spec_of(&a, 1, CONVERT_MEAN), n);
        spec.refit = CONVERT_REFIT_BLOCK;
        convert_to(&spec, NULL);
    }
}

/* --- progress -------------------------------------------------------------------------------- */

struct shown {
    uint64_t done, all;
};

static void show(void *arg, uint64_t done, uint64_t all)
{
    struct shown *shown = arg;
    ck_assert_uint_le(done, all);
    *shown = (struct shown){done, all};
}

/* Progress once went beyond its end where windows were few. */
TEST(progress_ends_at_its_end, .first = SANITIZED ? 2 : 0, .loops = 4, .seconds = 300,
     .tags = ONE_THREAD)
{
    struct opened a = _i / 2 ? open_golden_kind("shared-block") : open_mha(8, 0);
    const int n = _i % 2 ? N_CALIB : CONVERT_MIN_TOKENS;
    for (int refit = CONVERT_REFIT_NONE; refit <= CONVERT_REFIT_BLOCK; refit++) {
        struct shown shown = {0, 1};
        struct convert_spec spec = with_text(spec_of(&a, 1, CONVERT_FIT), n);
        spec.refit = (enum convert_refit)refit;
        spec.progress = show;
        spec.arg = &shown;
        convert_to(&spec, NULL);
        ck_assert_uint_eq(shown.done, shown.all);
    }
}

/* --- latent caches --------------------------------------------------------------------------- */

static struct convert_spec latent_spec(const struct opened *a, const int *ranks)
{
    struct convert_spec spec = with_text(spec_of(a, 0, CONVERT_FIT), N_CALIB);
    spec.latent = ranks;
    return spec;
}

/* One vector as wide as the residual stream holds all that keys and values are made of. */
TEST(full_rank_loses_nothing, .loops = SANITIZED ? 2 : N_KINDS, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_golden_kind(golden_kinds[_i]);
    const struct config *c = &a.model->config;
    int ranks[MAX_LAYERS];
    for (int l = 0; l < MAX_LAYERS; l++)
        ranks[l] = c->d_model;
    const struct convert_spec spec = latent_spec(&a, ranks);
    if (c->position == POSITION_ROPE) {
        struct convert out;
        expect_status(convert_run(&spec, &out, &err), STATUS_USAGE, "rotary");
    } else {
        double spread;
        struct convert_layer lost[MAX_LAYERS];
        struct opened b = convert_to(&spec, lost);
        ck_assert_int_eq(config_latent(&b.model->config, 0), c->d_model);
        ck_assert_str_eq(b.model->config.arch->name, "decode");
        ck_assert_double_lt(logits_apart(&a, &b, &spread), 1e-3 * spread);
        ck_assert_double_lt(lost[0].score + lost[0].output, 1e-5);
    }
}

/* Keys and values of all heads that are maps of one head's: 16 numbers a position are enough, one
 * less is not. */
TEST(planted_ranks_are_found, .seconds = 300, .tags = ONE_THREAD)
{
    static const int enough[] = {16, 16}, less[] = {15, 15};
    struct opened a = open_mha(8, 1);
    struct planting p = planting_of(8, 8);
    double spread;
    p.gauge = true;
    p.seed = 5;
    struct opened b = plant(&a, &p);
    struct convert_spec spec = latent_spec(&b, enough);
    struct convert_layer lost[MAX_LAYERS], more[MAX_LAYERS];
    struct opened c = convert_to(&spec, lost);
    ck_assert_double_lt(logits_apart(&a, &c, &spread), 1e-3);
    ck_assert_double_lt(lost[0].score + lost[0].output, 1e-5);
    spec.latent = less;
    struct opened d = convert_to(&spec, more);
    ck_assert_double_gt(more[0].score + more[0].output, 1e-4);
    ck_assert_double_gt(logits_apart(&a, &d, &spread), logits_apart(&a, &c, &spread));
}

TEST(cache_bytes_bound_the_ranks, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_mha(8, 0);
    struct convert_spec spec = latent_spec(&a, NULL);
    struct convert out;
    size_t bytes;
    spec.cache_bytes = 4 * (16 * 5 + 15);
    spec.refit = CONVERT_REFIT_ALL;
    expect_ok(convert_plan(&spec, &bytes, &err));
    expect_ok(convert_run(&spec, &out, &err));
    const int ranks[] = {config_latent(&out.config, 0), config_latent(&out.config, 1)};
    ck_assert_int_le(ranks[0] + ranks[1], 80);
    ck_assert_int_ge(ranks[0] + ranks[1], 64);
    ck_assert_int_eq((ranks[0] | ranks[1]) % 16, 0);
    ck_assert_double_gt(out.divergence, 0);
    convert_free(&out);
    spec.cache_bytes = 127;
    ck_assert_int_eq(convert_run(&spec, &out, &err), STATUS_USAGE);
    ck_assert_int_eq(convert_plan(&spec, &bytes, &err), STATUS_USAGE);
}

/* --- the same bits --------------------------------------------------------------------------- */

/* Of heads rebuilt, of a latent cache, and, with fewer tokens, of what is wide enough for threads
 * to meet in. */
TEST(the_same_bytes_everywhere, .loops = SANITIZED ? 1 : 3, .seconds = 300)
{
    static const int ranks[] = {24, 20};
    struct opened a = _i == 2 ? open_path("tests/data/shakespeare-bytes.gguf") : open_mha(8, 0);
    struct convert_spec spec = latent_spec(&a, _i == 1 ? ranks : NULL);
    spec.n_tokens = _i == 2 ? N_CALIB / 4 : N_CALIB;
    spec.n_kv_heads = 2;
    spec.refit = CONVERT_REFIT_BLOCK;
    expect_same_bytes(spec);
}
