/* Tests that refitting other matrices to text, and dividing a cache's bytes between layers, are
 * never worse than doing neither. (test_convert.c tests the bits for any threads and instruction
 * set.) */
#include <math.h>
#include <string.h>

#include "conversions.h"
#include "engine/session.h"
#include "opened.h"

/* Measures what a refit is judged by: the distances after attention on n tokens of calib, row by
 * row, of the first layer, or of all layers where these share a block. */
static double distance_after_attention(const struct opened *a, const struct opened *b, int n)
{
    const struct config *c = &a->model->config;
    const size_t d = (size_t)c->d_model, size = (size_t)n * d;
    float *x = allocated(4 * size * sizeof *x), *of_a = x + size, *of_b = of_a + size,
          *behind = of_b + size;
    struct probe *probe[] = {new_probe(a->model, n, NULL), new_probe(b->model, n, NULL)};
    double sum = 0;
    for (int t = 0; t < n; t++)
        probe_embed(probe[0], a->model, calib[t], t, x + (size_t)t * d);
    for (int l = 0; l < (c->shared ? c->n_layers : 1); l++) {
        const struct block_taps taps = {.at = {[TAP_MIDDLE] = of_a, [TAP_OUT] = behind}};
        probe_run(probe[0], &a->model->blocks[l], l, x, n, &taps);
        probe_run(probe[1], &b->model->blocks[l], l, x, n,
                  &(struct block_taps){.at = {[TAP_MIDDLE] = of_b}});
        for (size_t at = 0; at < size; at += d) {
            double squares = 0;
            for (size_t i = at; i < at + d; i++)
                squares += pow((double)of_a[i] - (double)of_b[i], 2);
            sum += sqrt(squares);
        }
        memcpy(x, behind, size * sizeof *x);
    }
    return sum;
}

/* The windows that are held out are the same as the others here. */
CONVERSION_TEST(a_refit_is_not_worse, .first = SANITIZED, .loops = SANITIZED ? 2 : N_KINDS)
{
    struct opened a = open_golden_kind(golden_kinds[_i]);
    double last = HUGE_VAL;
    for (int refit = 0; refit < 2; refit++) {
        const struct convert_spec spec = fit_to(&a, 1, refit);
        const int window = convert_window_size(a.model->config.n_ctx, spec.n_tokens);
        for (int i = window; i < N_CALIB; i++)
            calib[i] = calib[i - window];
        struct opened b = convert_to(&spec, NULL);
        ck_assert_uint_eq(b.gguf->n_tensors, a.gguf->n_tensors);
        const double distance = distance_after_attention(&a, &b, window);
        ck_assert_double_le(distance, last * (1 + 1e-9));
        last = distance;
    }
}

/* All values are the same, so that the moments of heads' results are nothing but rounding, and
 * their trace may be negative. */
CONVERSION_TEST(values_that_are_constant)
{
    struct opened a = open_mha(2, 0);
    const size_t d = (size_t)a.model->config.d_model;
    for (int l = 0; l < a.model->config.n_layers; l++) {
        float *values =
            floats_of(a.gguf, arch_tensor_name(ROLE_ATTN_QKV, l, false).text) + 2 * d * d;
        float *means = floats_of(a.gguf, arch_tensor_name(ROLE_ATTN_QKV, l, true).text) + 2 * d;
        memset(values, 0, d * d * sizeof *values);
        for (size_t i = 0; i < d; i++)
            means[i] = 0.1f + 0.01f * (float)i;
    }
    for (int n = 640; n >= CONVERT_MIN_TOKENS; n -= SANITIZED ? 70 : 35) {
        struct convert_spec spec = with_text(spec_of(&a, 1, CONVERT_MEAN), n);
        spec.refit = true;
        convert_to(&spec, NULL);
    }
}

/* Makes a llama whose residual stream has one channel that is far larger than the others, as real
 * ones have. */
static struct opened open_outliers(void)
{
    const char *path = scratch_path("outliers.gguf");
    struct config c =
        config_sized("llama", "layers=3 heads=6 kv=3 dim=8 width=48 ff=64 ctx=64 vocab=20");
    write_config_checkpoint(path, &c);
    struct opened a = open_path(path);
    float *row = floats_of(a.gguf, "blk.0.ffn_down.weight") + 5 * c.d_ff;
    for (int i = 0; i < c.d_ff; i++)
        row[i] *= 2000;
    return a;
}

/* Few rows have almost all of the squares, and there are more features than tokens. Fits still stay
 * nearer to the checkpoint than means. */
CONVERSION_TEST(outliers_break_no_fit, .loops = 2)
{
    struct opened a = open_outliers();
    const int n = _i ? N_CALIB : 2 * CONVERT_MIN_TOKENS;
    struct convert_spec spec = with_text(spec_of(&a, 1, CONVERT_MEAN), n);
    struct convert out;
    expect_ok(convert_run(&spec, &out, &err));
    const double mean = out.divergence;
    convert_free(&out);
    ck_assert_double_gt(mean, 1e-4);
    spec.method = CONVERT_FIT;
    for (int refit = 0; refit < 2; refit++) {
        spec.refit = refit;
        expect_ok(convert_run(&spec, &out, &err));
        ck_assert(out.divergence < mean);
        for (int l = 0; l < out.n_layers; l++)
            ck_assert(isfinite(out.layers[l].score) && isfinite(out.layers[l].output));
        convert_free(&out);
    }
}

struct shown {
    uint64_t done, all;
};

static void show(void *arg, uint64_t done, uint64_t all)
{
    struct shown *shown = arg;
    ck_assert_uint_le(done, all);
    *shown = (struct shown){done, all};
}

/* Once progress went beyond its end where windows were few. */
CONVERSION_TEST(progress_ends_at_its_end, .first = SANITIZED ? 2 : 0, .loops = 4)
{
    struct opened a = _i / 2 ? open_golden_kind("shared-block") : open_mha(8, 0);
    const int n = _i % 2 ? N_CALIB : CONVERT_MIN_TOKENS;
    for (int refit = 0; refit < 2; refit++) {
        struct shown shown = {0, 1};
        struct convert_spec spec = with_text(spec_of(&a, 1, CONVERT_FIT), n);
        spec.refit = refit;
        spec.callbacks.progress = show;
        spec.callbacks.arg = &shown;
        convert_to(&spec, NULL);
        ck_assert_uint_eq(shown.done, shown.all);
    }
}

/* A key of 8 numbers and a value, for which the cache has 16 lanes. */
#define HEAD_BYTES ((8 + 16) * sizeof(float))

/* Where a layer's heads are copies of one, the K/V heads go to the others. */
CONVERSION_TEST(cache_bytes_choose_kv_heads)
{
    struct opened a = open_mha(8, 0);
    struct planting p = {.kv_heads = {8, 8}, .base = {8, 1}, .gauge = true};
    struct opened b = plant(&a, &p);
    struct convert_spec spec = fit_to(&b, 0, true);
    struct convert out;
    size_t bytes;
    spec.cache_bytes = HEAD_BYTES * 5 + 63;
    expect_ok(convert_plan(&spec, &bytes, &err));
    expect_ok(convert_run(&spec, &out, &err));
    ck_assert_int_eq(config_kv_heads(&out.config, 0), 4);
    ck_assert_int_eq(config_kv_heads(&out.config, 1), 1);
    ck_assert_int_eq(out.config.n_kv_heads, 4);
    convert_free(&out);
    /* The bytes are too few for one head a layer, or enough for all. (tests/cli/cli.sh has bytes
     * without a text.) */
    for (int i = 0; i < 2; i++) {
        spec.cache_bytes = i ? HEAD_BYTES * 16 : HEAD_BYTES * 2 - 1;
        ck_assert_int_eq(convert_run(&spec, &out, &err), STATUS_USAGE);
        ck_assert_int_eq(convert_plan(&spec, &bytes, &err), STATUS_USAGE);
    }
}
