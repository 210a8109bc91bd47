/* Tests of the benchmark's matrix, its refusals and its statistics; none depends on a time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoints.h"
#include "kernel_data.h"
#include "measure/verdicts.h"
#include "model/config_keys.h"
#include "support.h"

/* No test depends on a time, but all take some. */
#define BENCH_TEST(name) TEST(name, .seconds = 240)

static const struct int_list batches = {{1, 3, 17}, 3}, both = {{STORAGE_F32, STORAGE_F16}, 2};
static const struct int_list caches = {{0, (CACHE_TYPES + 1) * CACHE_F16}, 2}; /* kv_type_item */

static struct int_list only(int item)
{
    return (struct int_list){{item}, 1};
}

/* 2 layers, 4 heads of 8. */
static struct bench_subject small;

static struct bench_spec spec_of(const struct kernels *k)
{
    small = (struct bench_subject){.name = "small",
                                   .config = {SIZES(2, 4, 4, 8, 64, 32, 50),
                                              .arch = arch_preset(text_of("gpt2")), .d_model = 32,
                                              .norm_eps = 1e-5f}};
    return (struct bench_spec){
        .subjects = &small,
        .axes = {[BENCH_VARIANTS] = {{4, 2, 1}, 3},
                 [BENCH_SUBJECTS] = {{0}, 1},
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

RELEASER(free_bench, bench_free)

/* Until the test ends. */
static struct bench *planned(const struct bench_spec *spec)
{
    struct bench *b = allocated(sizeof *b);
    expect_ok(bench_plan(spec, b, &err));
    return released_by(free_bench, b);
}

static struct bench run(const struct bench_spec *spec)
{
    struct bench *b = planned(spec);
    expect_ok(bench_run(b, &err));
    bench_conclude(b);
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

/* Each setting has one row; the rows of a line differ on one axis only. */
static void expect_lines(const struct bench *b, enum bench_axis x)
{
    ck_assert_int_eq(bench_x_axis(b->spec), x);
    for (int i = 0; i < b->n_rows; i++)
        for (int k = 0; k < i; k++) {
            int others = 0, on_x = b->rows[i].at[x] != b->rows[k].at[x];
            for (int a = 0; a < BENCH_AXES; a++)
                others += b->rows[i].at[a] != b->rows[k].at[a];
            ck_assert_int_gt(others, 0);
            ck_assert((bench_line(b->spec, &b->rows[i]) == bench_line(b->spec, &b->rows[k])) ==
                      (others == on_x));
        }
}

BENCH_TEST(every_combination_once)
{
    struct bench_spec spec = spec_of(fastest_kernels());
    spec.axes[BENCH_TYPES] = both;
    spec.axes[BENCH_KV_TYPES] = caches;
    spec.axes[BENCH_THREADS].n = 2;
    spec.axes[BENCH_BATCHES] = batches;
    spec.axes[BENCH_BATCHES].n = 2;
    struct bench b = run(&spec);
    ck_assert_int_eq(b.n_rows, 3 * 2 * 2 * 2 * 2 * 2);
    expect_lines(&b, BENCH_DEPTHS);
    for (int i = 0; i < b.n_rows; i++) {
        const struct bench_row *r = &b.rows[i];
        ck_assert(r->model >= b.models && r->model < b.models + b.n_models);
        ck_assert_int_eq(r->model->variant.config.n_kv_heads, r->plan.n_kv_heads);
        ck_assert_int_eq(r->samples, 6);
        ck_assert_int_eq(r->repeats, 2);
        ck_assert(r->p10_us > 0 && r->p10_us <= r->p50_us && r->p50_us <= r->p90_us &&
                  r->p90_us <= r->p99_us && r->p99_us <= r->max_us);
        ck_assert(r->prefill_tokens_per_s > 0 && r->plan.predicted.tokens_per_s > 0);
        ck_assert(r->share_of_limit > 0 && r->share_of_limit <= 1.0 + 1e-9);
        ck_assert(r->prefill_share > 0 && r->prefill_share <= 1.0 + 1e-9);
        ck_assert(!isnan(r->speedup) && r->predicted_speedup >= 1 - 1e-9);
        same(r->us_per_token * r->plan.batch, r->p50_us);
        same(r->tokens_per_s * r->mean_us, r->plan.batch * 1e6);
        same(r->plan.predicted.tokens_per_s * r->plan.predicted.us, r->plan.batch * 1e6);
        same(r->share_of_limit * r->p50_us, r->plan.predicted.us);
        const struct roofline l =
            machine_limits(&b.machines[r->at[BENCH_THREADS]], r->plan.step_bytes);
        ck_assert(r->plan.limits.bytes_per_s == l.bytes_per_s && l.fma_flops_per_s > 0);
    }
    ck_assert_int_eq(b.n_pools, 2);
    ck_assert_uint_gt(b.peak_rss_bytes, b.rows[0].plan.memory_bytes);
}

/* 2 layers, 18 positions in two panels of 16 keys, 4 heads of 8, whose values are padded to 16: 2 x
 * 4 x (32 x 8 + 18 x 16) floats a sequence. */
BENCH_TEST(memory_counts_every_sequence)
{
    struct bench_spec spec = spec_of(fastest_kernels());
    spec.axes[BENCH_VARIANTS] = only(4);
    spec.axes[BENCH_DEPTHS] = only(17);
    struct bench b = *planned(&spec);
    spec.axes[BENCH_BATCHES] = only(2);
    const struct bench c = *planned(&spec);
    const uint64_t sequence = 2 * 4 * (32 * 8 + 18 * 16) * 4, logits = 50 * 4;
    ck_assert_uint_eq(c.bytes, b.bytes + sequence + logits);
    spec.axes[BENCH_KV_TYPES] = caches; /* one more row, of half the cache, by the same model */
    ck_assert_uint_eq(planned(&spec)->bytes, c.bytes + sequence);
    spec.axes[BENCH_KV_TYPES] = only(0);
}

/* The hash proves that a speed-up changed nothing. It is the same for any number of threads, any
 * instruction set and any batch, because sequence 0 is the same in all. */
BENCH_TEST(hash_does_not_depend_on_batch_and_threads)
{
    struct bench_spec spec = spec_of(fastest_kernels());
    spec.axes[BENCH_TYPES] = (struct int_list){{STORAGE_F32, STORAGE_Q8_0, STORAGE_Q4_0}, 3};
    spec.axes[BENCH_BATCHES] = batches;
    spec.axes[BENCH_THREADS].n = 4;
    const struct bench b = run(&spec);
    for (int i = 0; i < b.n_rows; i++)
        for (int k = 0; k < i; k++) {
            const struct bench_row *r = &b.rows[i], *o = &b.rows[k];
            if (r->plan.n_kv_heads == o->plan.n_kv_heads && r->plan.depth == o->plan.depth &&
                r->type == o->type)
                ck_assert_uint_eq(r->logits_hash, o->logits_hash);
        }
    ck_assert_uint_ne(b.rows[0].logits_hash, b.rows[1].logits_hash);

    struct bench_spec one = spec_of(&kernels_scalar);
    const struct bench scalar = run(&one);
    one.kernels = fastest_kernels();
    const struct bench fast = run(&one);
    for (int i = 0; i < fast.n_rows; i++)
        ck_assert_uint_eq(fast.rows[i].logits_hash, scalar.rows[i].logits_hash);
}

/* Every repeat of a row has the steps that settled its median in the first, and no more than n. The
 * hash is of the first. */
BENCH_TEST(settled_rows_take_fewer_steps)
{
    struct bench_spec spec = spec_of(fastest_kernels());
    spec.axes[BENCH_VARIANTS] = only(4);
    spec.axes[BENCH_DEPTHS] = only(17);
    const struct bench few = run(&spec);
    spec.axes[BENCH_BATCHES] = only(512); /* a long step */
    spec.n = 64;
    spec.settles = true;
    const struct bench b = run(&spec);
    ck_assert(b.rows->n >= 10 && b.rows->n <= 64);
    ck_assert_int_eq(b.rows->samples, 2 * b.rows->n);
    ck_assert_uint_eq(b.rows->logits_hash, few.rows->logits_hash);
}

/* The checkpoints are compared as they are; the first is the base of both. */
BENCH_TEST(several_checkpoints)
{
    static const char *const names[] = {"mha", "mqa-f16"};
    struct bench_subject subjects[2];
    struct bench_spec spec = spec_of(fastest_kernels());
    for (int i = 0; i < 2; i++) {
        char path[100];
        snprintf(path, sizeof path, "tests/data/golden/%s.gguf", names[i]);
        const struct checkpoint c = opened_checkpoint(path, 0);
        subjects[i] = (struct bench_subject){.name = names[i], .gguf = c.gguf};
        expect_ok(config_read(c.gguf, &subjects[i].config, &err));
    }
    spec.subjects = subjects;
    spec.axes[BENCH_SUBJECTS] = (struct int_list){{0, 1}, 2};
    spec.axes[BENCH_VARIANTS] = spec.axes[BENCH_TYPES] = only(BENCH_AS_IS);
    const struct bench b = run(&spec);
    ck_assert_int_eq(b.n_rows, 4);
    expect_lines(&b, BENCH_DEPTHS);
    for (int i = 0; i < 4; i++) {
        const struct bench_row *row = &b.rows[i], *base = &b.rows[i - i % 2];
        ck_assert_str_eq(row->model->subject->name, names[i % 2]);
        ck_assert_int_eq(row->plan.n_kv_heads, subjects[i % 2].config.n_kv_heads);
        ck_assert_int_eq(row->plan.depth, i < 2 ? 0 : 17);
        same(row->speedup, base->p50_us / row->p50_us);
        ck_assert(row->model->load_ms > 0);
    }
    spec.axes[BENCH_VARIANTS] = only(4); /* of which the second one has one */
    struct bench refused;
    ck_assert_int_eq(bench_plan(&spec, &refused, &err), STATUS_USAGE);
}

/* The run stops when it has asked `budget` times whether to. Setting up 2 rows of 3 sequences asks
 * 1 + 2 times each, then 2 x 2 turns ask 1 + 3 times. */
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
        struct bench_spec spec = spec_of(fastest_kernels());
        spec.axes[BENCH_VARIANTS].n = 2;
        spec.axes[BENCH_DEPTHS].n = 1;
        spec.axes[BENCH_BATCHES] = only(3);
        spec.callbacks.stop = stop_at_once;
        spec.callbacks.arg = &left;
        struct bench *b = planned(&spec);
        ck_assert_int_eq(bench_run(b, NULL), budget < 6 + 16 ? STATUS_INTERRUPTED : STATUS_OK);
        bench_conclude(b);
        for (int i = 0; i < b->n_rows; i++) {
            samples += b->rows[i].samples;
            ck_assert(b->rows[i].p50_us > 0);
        }
        ck_assert_int_eq(samples, samples_before(budget));
    }
}

/* Two rows at one depth, MHA and MQA, have two repeats of three samples; their medians are 2 and 4
 * us. */
struct pair {
    uint64_t times[6], sorted[6];
    double medians[2], faster[2];
    struct bench_row rows[2];
    struct bench_spec spec;
    struct bench b;
};

static void take_pair(struct pair *p)
{
    static const uint64_t times[] = {1000, 3000, 2000, 2000, 6000, 4000};
    *p = (struct pair){.faster = {1, 1.6}, .spec = spec_of(&kernels_scalar)};
    memcpy(p->times, times, sizeof times);
    p->b = (struct bench){.spec = &p->spec, .rows = p->rows, .n_rows = 1, .sorted = p->sorted};
    p->rows[0] = (struct bench_row){
        .plan = {.n_kv_heads = 4, .batch = 1, .weight_bytes = 900, .step_bytes = 1000},
        .n = 3,
        .times_ns = p->times,
        .medians_us = p->medians,
        .samples = 6,
        .repeats = 2,
        .cpu_share = 1};
    bench_summarise(&p->b);
    p->rows[1] = p->rows[0];
    p->rows[1].plan.n_kv_heads = 1;
    p->rows[1].plan.step_bytes = 500;
    p->rows[1].p50_us = 1;
    p->rows[1].mean_us = 1.2;
    p->rows[1].medians_us = p->faster;
    p->rows[0].plan.predicted.us = 0.75;
    p->rows[1].plan.predicted.us = 0.5;
    p->b.n_rows = 2;
}

BENCH_TEST(summary_of_known_samples)
{
    struct pair p;
    struct bench_row *rows = p.rows;
    take_pair(&p);
    same(rows[0].p50_us, 2);
    same(rows[0].max_us, 6);
    same(rows[0].mean_us, 3);
    same(rows[0].tokens_per_s, 1e6 / 3);
    same(rows[0].gb_per_s, 0.5);
    same(rows[0].spread, 1); /* medians 2 and 4 */
    ck_assert(p.medians[0] == 2 && p.medians[1] == 4);
    same(p.b.cpu_share, 1);

    bench_compare(&p.b);
    same(rows[0].speedup, 1);
    same(rows[1].speedup, 2);
    ck_assert(!rows[0].like_base && !rows[1].like_base);
    same(rows[1].predicted_speedup, 2);

    /* A batch of 5 reads 900 + 5 x 100 bytes in 2 us; its prediction is no ratio of bytes. */
    rows[0].plan.batch = rows[1].plan.batch = 5;
    rows[0].plan.step_bytes = 1400;
    p.b.n_rows = 1;
    bench_summarise(&p.b);
    p.b.n_rows = 2;
    same(rows[0].us_per_token, 0.4);
    same(rows[0].tokens_per_s, 5e6 / 3);
    same(rows[0].gb_per_s, 0.7);
    bench_compare(&p.b);
    same(rows[1].predicted_speedup, 1.5);
    rows[0].at[BENCH_BATCHES] = 1; /* not the same setting */
    bench_compare(&p.b);
    ck_assert(isnan(rows[1].speedup) && isnan(rows[1].predicted_speedup));
    rows[0].at[BENCH_BATCHES] = 0;
    small.config.n_kv_heads = 8; /* no row of the base */
    bench_compare(&p.b);
    ck_assert(isnan(rows[1].speedup) && isnan(rows[1].predicted_speedup));
}

/* The cases say when MQA is the fastest, and when it cannot be told apart from MHA. */
BENCH_TEST(verdicts)
{
    static const struct {
        double faster;                     /* its median in the second repeat */
        double mean_us, cpu_share[2], run; /* its mean; shares of the rows, and of the whole run */
        int depth, repeats;
        enum bench_verdict mha, mqa;
    } cases[] = {
        {1.6, 1.2, {1, 1}, 1, 0, 2, BENCH_SLOWER, BENCH_FASTEST},
        {4, 1.2, {1, 1}, 1, 0, 2, BENCH_TOSS_UP, BENCH_TOSS_UP},     /* as long in one repeat */
        {3.95, 1.2, {1, 1}, 1, 0, 2, BENCH_TOSS_UP, BENCH_TOSS_UP},  /* not by much less */
        {1.6, 7, {1, 1}, 1, 0, 2, BENCH_TOSS_UP, BENCH_TOSS_UP},     /* the mean says otherwise */
        {1.6, 1.2, {0.7, 1}, 1, 0, 2, BENCH_SLOWER, BENCH_FASTEST},  /* 2.8 x 0.7 is still more */
        {1.6, 1.2, {0.4, 1}, 1, 0, 2, BENCH_TOSS_UP, BENCH_TOSS_UP}, /* as slow because disturbed */
        {1.6, 1.2, {1, 0.3}, 1, 0, 2, BENCH_SLOWER, BENCH_FASTEST},  /* faster although disturbed */
        {1.6, 1.2, {1, 1}, 0.49, 0, 2, BENCH_UNJUDGED, BENCH_UNJUDGED},
        {1.6, 1.2, {1, 1}, 1, 0, 1, BENCH_UNJUDGED, BENCH_UNJUDGED},
        {1.6, 1.2, {1, 1}, 1, 1, 2, BENCH_FASTEST, BENCH_FASTEST}, /* each alone at its depth */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct pair p;
        take_pair(&p);
        p.faster[1] = cases[i].faster;
        p.rows[1].mean_us = cases[i].mean_us;
        for (int k = 0; k < 2; k++)
            p.rows[k].cpu_share = cases[i].cpu_share[k];
        p.rows[1].repeats = cases[i].repeats;
        p.rows[0].plan.depth = cases[i].depth;
        p.b.cpu_share = cases[i].run;
        bench_compare(&p.b);
        bench_judge(&p.b);
        ck_assert_msg(p.rows[0].verdict == cases[i].mha && p.rows[1].verdict == cases[i].mqa,
                      "case %zu: %d, %d", i, p.rows[0].verdict, p.rows[1].verdict);
        ck_assert_int_eq(p.rows[1].like_base, cases[i].mqa == BENCH_TOSS_UP);
        if (i == 0 || i == 5 || i == 6)
            ck_assert_int_eq(p.rows[1].unsure, i == 5);
    }
}

/* Limits choose between MHA, which loses nothing, and MQA, whose cache is half as large and which
 * is faster. */
BENCH_TEST(choices)
{
    static const struct {
        struct bench_limits limits;
        double run;
        int mqa_depth;
        bool mha, mqa;
        const char *beyond[2];
    } cases[] = {
        {{{0.5, 0, 0}}, 1, 0, false, true, {"", ""}},
        {{{0.1, 0, 0}}, 1, 0, true, false, {"", "loss"}},
        {{{0, 1.5, 0}}, 1, 0, false, true, {"time", ""}},
        {{{0, 1.5, 500}}, 1, 0, false, true, {"time, cache", ""}},
        {{{0.1, 0, 499}}, 1, 0, false, false, {"cache", "loss, cache"}},
        {{{0.5, 0, 0}}, 1, 1, true, true, {"", ""}}, /* each alone at its depth */
        {{{0.5, 0, 0}}, 0.5, 0, false, true, {"", ""}},
        {{{0.5, 0, 0}}, 0.49, 0, false, true, {"", ""}}, /* needs no times */
        {{{0, 1.5, 0}}, 0.49, 1, false, false, {"time", ""}},
        {{{0, 0, 0}}, 1, 0, false, false, {"", ""}}, /* no limit */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct pair p;
        take_pair(&p);
        p.rows[0].plan.allocated_bytes = 1000;
        p.rows[1].plan.allocated_bytes = 500;
        p.rows[1].loss.lost = 0.2;
        p.rows[1].plan.depth = cases[i].mqa_depth;
        p.b.cpu_share = cases[i].run;
        bench_choose(&p.b, &cases[i].limits);
        ck_assert_msg(p.rows[0].chosen == cases[i].mha && p.rows[1].chosen == cases[i].mqa,
                      "case %zu", i);
        for (int k = 0; k < 2; k++)
            ck_assert_str_eq(p.rows[k].beyond, cases[i].beyond[k]);
        if (i == 4) /* MHA has 2.004 times the cache; MQA 2 times the loss and 1.002 the cache */
            ck_assert_ptr_eq(bench_nearest(&p.b), &p.rows[1]);
    }
}

/* The measured limits: 1 GB/s for 8,192 to 32,768 bytes, 10 and 40 GFLOP/s. */
static struct machine hand_machine(void)
{
    return (struct machine){.fma_flops_per_s = 10e9,
                            .dot_flops_per_s = 40e9,
                            .bytes_per_s = {[13] = 1e9, [14] = 1e9, [15] = 1e9}};
}

static struct bench_row predicted_row(int batch)
{
    return (struct bench_row){
        .threads = 1,
        .samples = 1,
        .plan = {.batch = batch,
                 .weight_bytes = 4000,
                 .kv_bytes = 1000,
                 .step_bytes = 4000 + 1000 * (uint64_t)batch,
                 .each = {.floats = 1000, .quants = 32000, .attention = 2000}},
    };
}

/* A row that is faster than its limit raises the limits of all rows that can do no worse: those
 * that read as many bytes or fewer with as many threads. */
BENCH_TEST(limits_are_never_exceeded)
{
    struct bench_row rows[3] = {predicted_row(1), predicted_row(10), predicted_row(1)};
    rows[0].p50_us = 2; /* 5,000 bytes: 2.5 GB/s */
    rows[1].p50_us = 38;
    rows[1].plan.kv_bytes = 2000;
    rows[1].plan.step_bytes = 24000;
    rows[2].p50_us = 10;
    rows[2].at[BENCH_THREADS] = 1;
    struct machine m[2] = {hand_machine(), hand_machine()};
    struct bench b = {.rows = rows, .n_rows = 3, .machines = m, .n_pools = 2};
    bench_predict(&b);
    same(rows[0].share_of_limit, 1);
    same(rows[0].plan.limits.bytes_per_s, 2.5e9);
    same(rows[1].plan.limits.bytes_per_s, 1e9); /* more bytes */
    same(rows[1].plan.predicted.us, 29);
    same(rows[2].plan.limits.bytes_per_s, 1e9); /* other threads */

    /* Ten sequences in 10 us: 14,000 bytes are 1.4 GB/s, 30,000 operations 3 and 320,000 32
     * GFLOP/s. Of the products that is 1 + 8 us, of the caches 7.14: 1.614 times too much, so all
     * limits are so much higher. */
    struct bench_row fast[2] = {predicted_row(10), predicted_row(1)};
    fast[0].p50_us = 10;
    fast[1].p50_us = 20;
    m[0] = hand_machine();
    b = (struct bench){.rows = fast, .n_rows = 2, .machines = m, .n_pools = 1};
    bench_predict(&b);
    const double over = (9 + 10 / 1.4) / 10;
    same(fast[0].plan.predicted.us, 10);
    same(fast[0].plan.limits.bytes_per_s, 1.4e9 * over);
    same(fast[0].plan.limits.fma_flops_per_s, 10e9 * over);
    same(fast[1].plan.limits.dot_flops_per_s, 40e9 * over);
    same(fast[1].plan.limits.bytes_per_s, 1.4e9 * over); /* fewer bytes */
}
