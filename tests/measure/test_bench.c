/* The benchmark's matrix, its refusals and its statistics; no test depends on a time. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoints.h"
#include "measure/bench.h"
#include "model/config_keys.h"
#include "support.h"

/* No test depends on a time, but all take some. */
#define BENCH_TEST(name) TEST(name, .seconds = 240)

static const struct int_list batches = {{1, 3, 17}, 3}, both = {{STORAGE_F32, STORAGE_F16}, 2};

static struct int_list only(int item)
{
    return (struct int_list){{item}, 1};
}

static struct bench_spec spec_of(const struct kernels *k)
{
    return (struct bench_spec){
        .config = {SIZES(2, 4, 4, 8, 64, 32, 50), .arch = arch_preset(text_of("gpt2")),
                   .d_model = 32, .norm_eps = 1e-5f},
        .axes = {[BENCH_VARIANTS] = {{4, 2, 1}, 3},
                 [BENCH_BATCHES] = {{1}, 1},
                 [BENCH_DEPTHS] = {{0, 17}, 2},
                 [BENCH_THREADS] = {{1, 2, 3, 8}, 1},
                 [BENCH_KV_TYPES] = {{STORAGE_F32}, 1},
                 [BENCH_TYPES] = {{STORAGE_F32}, 1}},
        .n = 3,
        .repeats = 2,
        .warmup = 1,
        .prompt = 8,
        .roofline_seconds = 0.001,
        .kernels = k,
    };
}

static const struct kernels *fastest(void)
{
    const struct kernels *k = NULL;
    expect_ok(kernels_choose(NULL, &k, &err));
    return k;
}

static void free_bench(void *b)
{
    bench_free(b);
    free(b);
}

/* Until the test ends. */
static struct bench *planned(const struct bench_spec *spec)
{
    struct bench *b = malloc(sizeof *b);
    expect_ok(bench_plan(spec, b, &err));
    released_by(free_bench, b);
    return b;
}

static struct bench run(const struct bench_spec *spec)
{
    struct bench *b = planned(spec);
    expect_ok(bench_run(b, &err));
    return *b;
}

static bool stop_at_once(void *arg)
{
    return --*(int *)arg < 0;
}

/* But for rounding. */
static void same(double found, double expected)
{
    ck_assert_double_eq_tol(found, expected, 1e-13 * fabs(expected));
}

/* Each setting once; a line is of rows that differ on one axis only. */
static void expect_lines(const struct bench *b, enum bench_axis x)
{
    ck_assert_int_eq(bench_x_axis(b->spec), x);
    for (int i = 0; i < b->n_rows; i++)
        for (int k = 0; k < i; k++) {
            int others = 0, on_x = b->rows[i].at[x] != b->rows[k].at[x];
            for (int a = 0; a < BENCH_AXES; a++)
                others += b->rows[i].at[a] != b->rows[k].at[a];
            ck_assert_int_gt(others, 0);
            ck_assert((b->rows[i].line == b->rows[k].line) == (others == on_x));
            ck_assert_int_lt(b->rows[i].line, b->n_lines);
        }
}

BENCH_TEST(every_combination_once)
{
    struct bench_spec spec = spec_of(fastest());
    spec.axes[BENCH_TYPES] = spec.axes[BENCH_KV_TYPES] = both;
    spec.axes[BENCH_THREADS].n = 2;
    spec.axes[BENCH_BATCHES] = batches;
    spec.axes[BENCH_BATCHES].n = 2;
    struct bench b = run(&spec);
    ck_assert_int_eq(b.n_rows, 3 * 2 * 2 * 2 * 2 * 2);
    ck_assert_int_eq(b.n_lines, b.n_rows / 2);
    expect_lines(&b, BENCH_DEPTHS);
    for (int i = 0; i < b.n_rows; i++) {
        const struct bench_row *r = &b.rows[i];
        ck_assert(r->model >= 0 && r->model < b.n_models);
        ck_assert_int_eq(r->samples, 6);
        ck_assert_int_eq(r->repeats, 2);
        ck_assert(r->p10_us > 0 && r->p10_us <= r->p50_us && r->p50_us <= r->p90_us &&
                  r->p90_us <= r->p99_us && r->p99_us <= r->max_us);
        ck_assert(r->prefill_tokens_per_s > 0 && r->step.predicted.tokens_per_s > 0);
        ck_assert(r->share_of_limit > 0 && r->share_of_limit <= 1.0 + 1e-9);
        ck_assert(!isnan(r->speedup) && r->predicted_speedup >= 1 - 1e-9);
        same(r->us_per_token * r->step.batch, r->p50_us);
        same(r->tokens_per_s * r->mean_us, r->step.batch * 1e6);
        same(r->step.predicted.tokens_per_s * r->step.predicted.us, r->step.batch * 1e6);
        same(r->share_of_limit * r->p50_us, r->step.predicted.us);
        same(r->step.predicted.us, cost_predict(&r->step.cost, r->step.batch, &r->step.limits).us);
        const struct roofline l = machine_limits(&b.machines[r->at[BENCH_THREADS]],
                                                 cost_step_bytes(&r->step.cost, r->step.batch));
        ck_assert(r->step.limits.bytes_per_s == l.bytes_per_s && l.fma_flops_per_s > 0);
    }
    ck_assert_int_eq(b.n_machines, 2);
}

/* 2 layers, context of 18 positions in two panels of 16 keys, 4 heads of 8, which values pad to 16:
 * 2 x 4 x (32 x 8 + 18 x 16) floats a sequence. */
BENCH_TEST(memory_counts_every_sequence)
{
    struct bench_spec spec = spec_of(fastest());
    spec.axes[BENCH_VARIANTS] = only(4);
    spec.axes[BENCH_DEPTHS] = only(17);
    struct bench b = *planned(&spec);
    spec.axes[BENCH_BATCHES] = only(2);
    const struct bench c = *planned(&spec);
    const uint64_t sequence = 2 * 4 * (32 * 8 + 18 * 16) * 4, logits = 50 * 4;
    ck_assert_uint_eq(c.bytes, b.bytes + sequence + logits);

    /* More than can be counted. */
    spec.config.n_layers = CONFIG_MAX_LAYERS;
    spec.config.n_ctx = 1 << 30;
    spec.axes[BENCH_BATCHES].items[0] = INT_MAX;
    spec.axes[BENCH_DEPTHS].items[0] = (1 << 30) - 1;
    b = *planned(&spec);
    ck_assert_uint_eq(b.bytes, UINT64_MAX);
}

/* The hash proves that a speed-up changed nothing: any number of threads gives the same, and any
 * batch, because sequence 0 is the same in all, and any instruction set. */
BENCH_TEST(hash_does_not_depend_on_batch_and_threads)
{
    struct bench_spec spec = spec_of(fastest());
    spec.axes[BENCH_TYPES] = (struct int_list){{STORAGE_F32, STORAGE_Q8_0, STORAGE_Q4_0}, 3};
    spec.axes[BENCH_BATCHES] = batches;
    spec.axes[BENCH_THREADS].n = 4;
    const struct bench b = run(&spec);
    for (int i = 0; i < b.n_rows; i++)
        for (int k = 0; k < i; k++) {
            const struct bench_row *r = &b.rows[i], *o = &b.rows[k];
            if (r->step.n_kv_heads == o->step.n_kv_heads && r->step.depth == o->step.depth &&
                r->type == o->type)
                ck_assert_uint_eq(r->logits_hash, o->logits_hash);
        }
    ck_assert_uint_ne(b.rows[0].logits_hash, b.rows[1].logits_hash);

    struct bench_spec one = spec_of(&kernels_scalar);
    const struct bench scalar = run(&one);
    one.kernels = fastest();
    const struct bench fast = run(&one);
    for (int i = 0; i < fast.n_rows; i++)
        ck_assert_uint_eq(fast.rows[i].logits_hash, scalar.rows[i].logits_hash);
}

BENCH_TEST(a_checkpoint_and_its_variants)
{
    const struct checkpoint c = opened_checkpoint("tests/data/golden/mha.gguf", 0);
    struct bench_spec spec = spec_of(fastest());
    spec.gguf = c.gguf;
    spec.source = &c.file;
    expect_ok(config_read(c.gguf, &spec.config, &err));
    spec.axes[BENCH_TYPES] = only(BENCH_AS_FILE);
    struct bench b = run(&spec);
    ck_assert_int_eq(b.n_rows, 6);
    ck_assert_uint_gt(b.rows[0].step.cost.weight_bytes, b.rows[1].step.cost.weight_bytes);
    ck_assert_uint_gt(b.rows[1].step.cost.weight_bytes, b.rows[2].step.cost.weight_bytes);

    spec.axes[BENCH_BATCHES] = only(5);
    struct bench *five = planned(&spec);
    expect_ok(bench_load_row(five, 0, &err));
    ck_assert(five->rows[0].load_ms > 0);
    int left = 3; /* it stops before the fifth cache */
    spec.callbacks.stop = stop_at_once;
    spec.callbacks.arg = &left;
    ck_assert_int_eq(bench_load_row(five, 1, &err), STATUS_INTERRUPTED);
}

/* Samples that are taken where the run stops after `budget` steps that ask whether to: setting up
 * 2 rows of 3 sequences asks 1 + 2 times each, then 2 x 2 turns 1 + 3 times. */
static int samples_before(int budget)
{
    int samples = 0;
    budget -= 2 * 3;
    for (int turn = 0; turn < 4; turn++)
        for (int i = 0; i < 1 + 3; i++)
            samples += --budget >= 0 && i > 0;
    return samples;
}

BENCH_TEST(stopping_keeps_what_was_measured)
{
    for (int budget = 0; budget < 30; budget++) {
        int left = budget, samples = 0;
        struct bench_spec spec = spec_of(fastest());
        spec.axes[BENCH_VARIANTS].n = 2;
        spec.axes[BENCH_DEPTHS].n = 1;
        spec.axes[BENCH_BATCHES] = only(3);
        spec.callbacks.stop = stop_at_once;
        spec.callbacks.arg = &left;
        struct bench *b = planned(&spec);
        ck_assert_int_eq(bench_run(b, NULL), budget < 6 + 16 ? STATUS_INTERRUPTED : STATUS_OK);
        for (int i = 0; i < b->n_rows; i++) {
            samples += b->rows[i].samples;
            ck_assert(b->rows[i].p50_us > 0);
        }
        ck_assert_int_eq(samples, samples_before(budget));
    }
}

/* All rows fit; two variants of one setting; none beside another but its MHA. */
BENCH_TEST(groups_fit_the_memory_beside_mha)
{
    struct bench_spec spec = spec_of(fastest());
    const struct bench whole = run(&spec);
    ck_assert_int_eq(whole.n_groups, 1);
    ck_assert_int_eq(whole.n_again, 0);
    for (int share = 1; share <= 16; share++) {
        spec.most_bytes = whole.bytes * (uint64_t)share / 16;
        const struct bench *planned_only = planned(&spec);
        ck_assert(share < 16 ? planned_only->n_groups > 1 : planned_only->n_groups == 1);
        const int again = planned_only->n_again;
        ck_assert(share > 6 || again > 0); /* a setting has three rows of six */
        const struct bench b = run(&spec);
        ck_assert_int_eq(b.n_rows, whole.n_rows);
        ck_assert_int_eq(b.n_again, again);
        for (int i = 0; i < b.n_rows; i++) {
            const struct bench_row *row = &b.rows[i];
            ck_assert_int_eq(row->samples, spec.n * spec.repeats);
            ck_assert(row->speedup_low <= row->speedup && row->speedup <= row->speedup_high);
            ck_assert_uint_eq(row->logits_hash, whole.rows[i].logits_hash);
            int beside = 0;
            for (const struct bench_row *mha = b.rows; mha < b.rows + b.n_rows + b.n_again; mha++)
                beside += mha->group == row->group && mha->step.n_kv_heads == 4 &&
                          mha->step.depth == row->step.depth;
            ck_assert_int_eq(beside, 1);
        }
    }
}

BENCH_TEST(summary_of_known_samples)
{
    uint64_t times[] = {1000, 3000, 2000, 2000, 6000, 4000}, sorted[6];
    double medians[2], faster[] = {1, 1.6};
    struct bench_row rows[2] = {
        {.step = {.n_kv_heads = 4, .batch = 1, .cost = {.weight_bytes = 900, .kv_bytes = 100}},
         .times_ns = times,
         .medians_us = medians,
         .samples = 6,
         .repeats = 2}};
    bench_summarise(&rows[0], 3, sorted);
    same(rows[0].p50_us, 2);
    same(rows[0].max_us, 6);
    same(rows[0].mean_us, 3);
    same(rows[0].tokens_per_s, 1e6 / 3);
    same(rows[0].gb_per_s, 0.5);
    same(rows[0].spread, 1); /* medians 2 and 4 */
    ck_assert(medians[0] == 2 && medians[1] == 4 && rows[0].p50_low_us == 2);
    same(rows[0].p50_high_us, 4);

    rows[1] = rows[0];
    rows[1].step.n_kv_heads = 1;
    rows[1].step.cost.weight_bytes = 400;
    rows[1].p50_us = 1;
    rows[1].medians_us = faster; /* 2 / 1 and 4 / 1.6 */
    rows[0].step.predicted.us = 0.75;
    rows[1].step.predicted.us = 0.5;
    struct bench b = {.rows = rows, .n_rows = 2};
    bench_compare(&b, 4);
    same(rows[0].speedup, 1);
    same(rows[1].speedup, 2);
    ck_assert(rows[1].speedup_low == 2 && rows[1].speedup_high == 2.5);
    ck_assert(rows[0].speedup_low == 1 && rows[0].speedup_high == 1);
    same(rows[1].predicted_speedup, 2);
    bench_judge(&b);
    ck_assert(rows[1].verdict == BENCH_FASTEST && rows[0].verdict == BENCH_SLOWER);
    faster[1] = 4; /* as long as the other's in one repeat */
    bench_judge(&b);
    ck_assert(rows[1].verdict == BENCH_TOSS_UP && rows[0].verdict == BENCH_TOSS_UP);
    rows[0].group = 1; /* medians 2 to 4, and those of another time 1 to 4 */
    bench_judge(&b);
    ck_assert(rows[1].verdict == BENCH_TOSS_UP);
    rows[1].p50_high_us = 1.9;
    bench_judge(&b);
    ck_assert(rows[1].verdict == BENCH_FASTEST && rows[0].verdict == BENCH_SLOWER);
    rows[1].repeats = 1;
    bench_judge(&b);
    ck_assert(rows[1].verdict == BENCH_UNJUDGED && rows[0].verdict == BENCH_UNJUDGED);
    rows[0].step.depth = 1; /* each the only one of its depth */
    rows[1].repeats = 2;
    bench_judge(&b);
    ck_assert(rows[1].verdict == BENCH_FASTEST && rows[0].verdict == BENCH_FASTEST);
    rows[0].step.depth = rows[0].group = 0;
    bench_compare(&b, 8); /* no row of the base */
    ck_assert(isnan(rows[1].speedup) && isnan(rows[1].predicted_speedup));

    /* A batch of 5: 900 + 5 x 100 bytes in 2 us; what is predicted is no ratio of bytes. */
    rows[0].step.batch = rows[1].step.batch = 5;
    bench_summarise(&rows[0], 3, sorted);
    same(rows[0].us_per_token, 0.4);
    same(rows[0].tokens_per_s, 5e6 / 3);
    same(rows[0].gb_per_s, 0.7);
    bench_compare(&b, 4);
    same(rows[1].predicted_speedup, 1.5);
    rows[0].at[BENCH_BATCHES] = 1; /* not the same setting */
    bench_compare(&b, 4);
    ck_assert(isnan(rows[1].speedup) && isnan(rows[1].predicted_speedup));
}

/* Measured: 1 GB/s of 4,096 and of 16,384 bytes, 10 and 40 GFLOP/s. */
static struct machine hand_machine(void)
{
    return (struct machine){
        .fma_flops_per_s = 10e9, .dot_flops_per_s = 40e9, .bytes_per_s = {[12] = 1e9, [14] = 1e9}};
}

static struct bench_row predicted_row(int batch)
{
    return (struct bench_row){
        .threads = 1,
        .samples = 1,
        .step = {.batch = batch,
                 .cost = {.weight_bytes = 4000,
                          .kv_bytes = 1000,
                          .flops = {.floats = 1000, .quants = 32000, .attention = 2000}}},
    };
}

/* A row that is faster than the limits raises those of all that can do no worse: that read as many
 * bytes or fewer with as many threads. */
BENCH_TEST(limits_are_never_exceeded)
{
    struct bench_row rows[3] = {predicted_row(1), predicted_row(10), predicted_row(1)};
    rows[0].p50_us = 2; /* 5,000 bytes: 2.5 GB/s */
    rows[1].p50_us = 38;
    rows[1].step.cost.kv_bytes = 2000; /* 24,000 bytes */
    rows[2].p50_us = 10;
    rows[2].at[BENCH_THREADS] = 1;
    struct machine m[2] = {hand_machine(), hand_machine()};
    m[0].bytes_per_s[13] = m[0].bytes_per_s[15] = 1e9;
    struct bench b = {.rows = rows, .n_rows = 3, .machines = m, .n_machines = 2};
    bench_predict(&b);
    same(rows[0].share_of_limit, 1);
    same(rows[0].step.limits.bytes_per_s, 2.5e9);
    same(rows[1].step.limits.bytes_per_s, 1e9); /* more bytes */
    same(rows[1].step.predicted.us, 29);
    same(rows[2].step.limits.bytes_per_s, 1e9); /* other threads */

    /* Ten sequences in 10 us: 14,000 bytes are 1.4 GB/s, 30,000 operations 3 and 320,000 32
     * GFLOP/s. Of the products that is 1 + 8 us, of the caches 7.14: 1.614 times too much, so all
     * limits are so much higher. */
    struct bench_row fast[2] = {predicted_row(10), predicted_row(1)};
    fast[0].p50_us = 10;
    fast[1].p50_us = 20;
    m[0] = hand_machine();
    b = (struct bench){.rows = fast, .n_rows = 2, .machines = m, .n_machines = 1};
    bench_predict(&b);
    const double over = (9 + 10 / 1.4) / 10;
    same(fast[0].step.predicted.us, 10);
    same(fast[0].step.limits.bytes_per_s, 1.4e9 * over);
    same(fast[0].step.limits.fma_flops_per_s, 10e9 * over);
    same(fast[1].step.limits.dot_flops_per_s, 40e9 * over);
    same(fast[1].step.limits.bytes_per_s, 1.4e9 * over); /* the same class */
}
