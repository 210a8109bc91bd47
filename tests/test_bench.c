/* The benchmark's matrix, its refusals and its statistics; no test depends on a time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoints.h"
#include "measure/bench.h"
#include "measure/bench_stats.h"
#include "model/checkpoint.h"
#include "support.h"

static const int kv_heads[] = {4, 2, 1}, depths[] = {0, 17}, threads[] = {1, 2, 3, 8};
static const int f32[] = {STORAGE_F32}, both[] = {STORAGE_F32, STORAGE_F16};

static struct bench_spec spec_of(const struct kernels *k)
{
    return (struct bench_spec){
        .config = {.arch = arch_at(0),
                   .n_layers = 2,
                   .n_heads = 4,
                   .n_kv_heads = 4,
                   .head_dim = 8,
                   .d_model = 32,
                   .d_ff = 64,
                   .n_ctx = 32,
                   .n_vocab = 50,
                   .norm_eps = 1e-5f},
        .kv_heads = {kv_heads, 3},
        .types = {f32, 1},
        .kv_types = {f32, 1},
        .threads = {threads, 1},
        .depths = {depths, 2},
        .n = 3,
        .repeats = 2,
        .warmup = 1,
        .prompt = 8,
        .roofline_seconds = 0.001,
        .seed = 1,
        .kernels = k,
    };
}

static const struct kernels *fastest(void)
{
    const struct kernels *k = NULL;
    ck_assert_int_eq(kernels_choose(NULL, &k, NULL), STATUS_OK);
    return k;
}

static struct bench run(const struct bench_spec *spec)
{
    struct bench b;
    struct err e = {{0}};
    ck_assert_msg(bench_plan(spec, &b, &e) == STATUS_OK, "%s", e.text);
    ck_assert_msg(bench_run(spec, &b, &e) == STATUS_OK, "%s", e.text);
    return b;
}

START_TEST(every_combination_once)
{
    struct bench_spec spec = spec_of(fastest());
    spec.types = spec.kv_types = (struct bench_list){both, 2};
    spec.threads.n = 2;
    struct bench b = run(&spec);
    ck_assert_int_eq(b.n_rows, 3 * 2 * 2 * 2 * 2);
    for (int i = 0; i < b.n_rows; i++) {
        const struct bench_row *r = &b.rows[i];
        for (int k = 0; k < i; k++) {
            const struct bench_row *o = &b.rows[k];
            ck_assert(o->n_kv_heads != r->n_kv_heads || o->type != r->type ||
                      o->kv_type != r->kv_type || o->threads != r->threads || o->depth != r->depth);
        }
        ck_assert_int_eq(r->samples, 6);
        ck_assert_int_eq(r->repeats, 2);
        ck_assert(r->p10_us > 0 && r->p10_us <= r->p50_us && r->p50_us <= r->p90_us &&
                  r->p90_us <= r->p99_us && r->p99_us <= r->max_us);
        ck_assert(r->prefill_tokens_per_s > 0 && r->limit_tokens_per_s > 0);
        ck_assert(r->share_of_limit > 0 && r->share_of_limit <= 1.0 + 1e-9);
        ck_assert(!isnan(r->speedup) && r->predicted_speedup >= 1);
    }
    ck_assert(b.read_bytes_per_s > 0 && b.flops_per_s > 0);
    bench_free(&b);
}
END_TEST

/* The hash proves that a speed-up changed nothing: any number of threads gives the same. */
START_TEST(hash_does_not_depend_on_threads)
{
    struct bench_spec spec = spec_of(fastest());
    spec.threads.n = 4;
    struct bench b = run(&spec);
    for (int i = 0; i < b.n_rows; i++)
        for (int k = 0; k < b.n_rows; k++)
            if (b.rows[i].n_kv_heads == b.rows[k].n_kv_heads && b.rows[i].depth == b.rows[k].depth)
                ck_assert_uint_eq(b.rows[i].logits_hash, b.rows[k].logits_hash);
    ck_assert_uint_ne(b.rows[0].logits_hash, b.rows[1].logits_hash);
    bench_free(&b);

    spec.kernels = &kernels_scalar;
    spec.threads.n = 1;
    struct bench scalar = run(&spec);
    spec.kernels = fastest();
    b = run(&spec);
    for (int i = 0; i < b.n_rows; i++)
        ck_assert_uint_eq(b.rows[i].logits_hash, scalar.rows[i].logits_hash);
    bench_free(&b);
    bench_free(&scalar);
}
END_TEST

START_TEST(a_checkpoint_and_its_variants)
{
    struct checkpoint c;
    struct err e = {{0}};
    ck_assert_int_eq(checkpoint_open("tests/data/golden/mha.gguf", 0, &c, &e), STATUS_OK);
    static const int as_file[] = {BENCH_AS_FILE};
    struct bench_spec spec = spec_of(fastest());
    spec.gguf = c.gguf;
    spec.source = &c.file;
    ck_assert_int_eq(config_read(c.gguf, &spec.config, &e), STATUS_OK);
    spec.types = (struct bench_list){as_file, 1};
    struct bench b = run(&spec);
    ck_assert_int_eq(b.n_rows, 6);
    ck_assert_uint_gt(b.rows[0].weight_bytes, b.rows[1].weight_bytes);
    ck_assert_uint_gt(b.rows[1].weight_bytes, b.rows[2].weight_bytes);

    struct bench_row row = b.rows[0];
    ck_assert_msg(bench_load_row(&spec, &row, &e) == STATUS_OK, "%s", e.text);
    ck_assert(row.load_ms > 0);
    bench_free(&b);
    checkpoint_close(&c);
}
END_TEST

static void assert_refused(const struct bench_spec *spec, const char *word)
{
    struct bench b;
    struct err e = {{0}};
    ck_assert_int_eq(bench_plan(spec, &b, &e), STATUS_USAGE);
    ck_assert_msg(strstr(e.text, word), "no \"%s\" in: %s", word, e.text);
}

START_TEST(refusals)
{
    const struct bench_spec good = spec_of(fastest());
    static const int three[] = {3}, zero[] = {0}, eight[] = {8}, deep[] = {32}, minus[] = {-1},
                     many[] = {100000};
    struct bench_spec s = good;
    s.kv_heads = (struct bench_list){three, 1};
    assert_refused(&s, "divisor of 4");
    s.kv_heads.items = zero;
    assert_refused(&s, "divisor of 4");
    s.kv_heads.items = eight;
    assert_refused(&s, "divisor of 4");
    s = good;
    s.depths = (struct bench_list){deep, 1};
    assert_refused(&s, "depth 32");
    s.depths.items = minus;
    assert_refused(&s, "depth -1");
    s = good;
    s.threads = (struct bench_list){many, 1};
    assert_refused(&s, "100000 threads");
    s = good;
    s.prompt = 33;
    assert_refused(&s, "33");
    s = good;
    s.n = 0;
    assert_refused(&s, "0 samples");
    s = good;
    s.n = 1000000;
    s.repeats = 10000;
    assert_refused(&s, "at most");
}
END_TEST

static bool stop_at_once(void *arg)
{
    return --*(int *)arg < 0;
}

START_TEST(stopping_keeps_what_was_measured)
{
    for (int budget = 0; budget < 60; budget++) {
        int left = budget;
        struct bench_spec spec = spec_of(fastest());
        spec.stop = stop_at_once;
        spec.arg = &left;
        struct bench b;
        ck_assert_int_eq(bench_plan(&spec, &b, NULL), STATUS_OK);
        const enum status s = bench_run(&spec, &b, NULL);
        /* 6 rows are set up, then 2 x 6 x 3 samples taken. */
        ck_assert_int_eq(s, budget < 6 + 36 ? STATUS_INTERRUPTED : STATUS_OK);
        int samples = 0;
        for (int i = 0; i < b.n_rows; i++) {
            samples += b.rows[i].samples;
            ck_assert(b.rows[i].samples == 0 || b.rows[i].p50_us > 0);
        }
        const int expected = budget < 6 ? 0 : budget < 42 ? budget - 6 : 36;
        ck_assert_int_eq(samples, expected);
        bench_free(&b);
    }
}
END_TEST

START_TEST(summary_of_known_samples)
{
    uint64_t times[] = {1000, 3000, 2000, 2000, 6000, 4000}, sorted[6];
    struct bench_row rows[2] = {{.n_kv_heads = 4,
                                 .weight_bytes = 900,
                                 .kv_bytes = 100,
                                 .times_ns = times,
                                 .samples = 6,
                                 .repeats = 2}};
    bench_summarise(&rows[0], 3, sorted);
    ck_assert_double_eq_tol(rows[0].p50_us, 2, 1e-12);
    ck_assert_double_eq_tol(rows[0].max_us, 6, 1e-12);
    ck_assert_double_eq_tol(rows[0].mean_us, 3, 1e-12);
    ck_assert_double_eq_tol(rows[0].tokens_per_s, 1e6 / 3, 1e-6);
    ck_assert_double_eq_tol(rows[0].gb_per_s, 0.5, 1e-12);
    ck_assert_double_eq_tol(rows[0].spread, 1, 1e-12); /* medians 2 and 4 */

    rows[1] = rows[0];
    rows[1].n_kv_heads = 1;
    rows[1].weight_bytes = 400;
    rows[1].p50_us = 1;
    struct bench b = {.rows = rows, .n_rows = 2};
    bench_compare(&b, 4);
    ck_assert_double_eq_tol(rows[0].speedup, 1, 1e-12);
    ck_assert_double_eq_tol(rows[1].speedup, 2, 1e-12);
    ck_assert_double_eq_tol(rows[1].predicted_speedup, 2, 1e-12);
    bench_compare(&b, 8); /* no MHA row */
    ck_assert(isnan(rows[1].speedup) && isnan(rows[1].predicted_speedup));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bench");
    TCase *t = tcase_create("bench");
    tcase_set_timeout(t, 240);
    tcase_add_test(t, every_combination_once);
    tcase_add_test(t, hash_does_not_depend_on_threads);
    tcase_add_test(t, a_checkpoint_and_its_variants);
    tcase_add_test(t, refusals);
    tcase_add_test(t, stopping_keeps_what_was_measured);
    tcase_add_test(t, summary_of_known_samples);
    suite_add_tcase(s, t);
    return run_suite(s);
}
