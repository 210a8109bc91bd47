#include "measure/bench.h"

#include <math.h>

#include "base/clock.h"
#include "base/rng.h"
#include "compute/roofline.h"
#include "engine/session.h"
#include "measure/bench_stats.h"
#include "model/cost.h"

/* The most samples of one run: 800 MB of times. */
#define MAX_SAMPLES 100000000

/* The part of the time for the limits that goes to the FMA peak. */
#define FMA_SHARE 0.1

/* --- planning -------------------------------------------------------------------------------- */

static enum status check_kv_heads(const struct bench_spec *spec, struct err *e)
{
    const int most = spec->config.n_kv_heads;
    for (int i = 0; i < spec->kv_heads.n; i++) {
        const int g = spec->kv_heads.items[i];
        if (g < 1 || g > most || most % g != 0)
            return err_set(e, STATUS_USAGE, "%d K/V heads: expected a divisor of %d", g, most);
    }
    return STATUS_OK;
}

static enum status check_settings(const struct bench_spec *spec, struct err *e)
{
    const int n_ctx = spec->config.n_ctx;
    for (int i = 0; i < spec->depths.n; i++)
        if (spec->depths.items[i] < 0 || spec->depths.items[i] >= n_ctx)
            return err_set(e, STATUS_USAGE,
                           "depth %d: expected 0 to %d, one below the context of %d tokens",
                           spec->depths.items[i], n_ctx - 1, n_ctx);
    for (int i = 0; i < spec->threads.n; i++)
        if (spec->threads.items[i] < 1 || spec->threads.items[i] > POOL_MAX_THREADS)
            return err_set(e, STATUS_USAGE, "%d threads: expected 1 to %d", spec->threads.items[i],
                           POOL_MAX_THREADS);
    for (int i = 0; i < spec->types.n; i++) {
        if (spec->types.items[i] == BENCH_AS_FILE)
            continue;
        const enum status s =
            model_check_storage(&spec->config, (enum storage)spec->types.items[i], e);
        if (s != STATUS_OK)
            return s;
    }
    if (spec->prompt < 0 || spec->prompt > n_ctx)
        return err_set(e, STATUS_USAGE, "a prompt of %d tokens: expected 0 to the context of %d",
                       spec->prompt, n_ctx);
    if (spec->n < 1 || spec->repeats < 1 || spec->warmup < 0)
        return err_set(e, STATUS_USAGE,
                       "%d samples, %d repeats, %d warm-up steps: expected 1 or more, 1 or more, "
                       "0 or more",
                       spec->n, spec->repeats, spec->warmup);
    return STATUS_OK;
}

/* The checkpoint's shape, or the one of random weights. STATUS_BAD_FILE for a type that does not
 * run. */
static enum status base_shape(const struct bench_spec *spec, struct cost_shape *shape,
                              struct err *e)
{
    *shape = (struct cost_shape){.config = &spec->config, .biases = true};
    if (spec->gguf && !cost_shape_of_file(spec->gguf, &spec->config, shape))
        return err_set(e, STATUS_BAD_FILE,
                       "the output matrix: expected type F32, F16, BF16, Q8_0 or Q4_0");
    return STATUS_OK;
}

static void plan_row(const struct bench_spec *spec, struct cost_shape shape, struct bench_row *row)
{
    shape.n_kv_heads = row->n_kv_heads;
    shape.storage = row->type;
    row->weight_bytes = cost_weight_bytes(&shape);
    row->kv_bytes = cost_kv_bytes(&spec->config, row->n_kv_heads, row->kv_type, row->depth);
    row->prefill_tokens_per_s = (double)NAN;
}

static void plan_rows(const struct bench_spec *spec, const struct cost_shape *base, struct bench *b)
{
    const int n_variants = spec->kv_heads.n;
    struct bench_row *row = b->rows;
    for (int type = 0; type < spec->types.n; type++)
        for (int kv = 0; kv < spec->kv_types.n; kv++)
            for (int t = 0; t < spec->threads.n; t++, b->n_lines += n_variants)
                for (int d = 0; d < spec->depths.n; d++)
                    for (int g = 0; g < n_variants; g++, row++) {
                        const int wanted = spec->types.items[type];
                        row->type = wanted == BENCH_AS_FILE ? base->storage : (enum storage)wanted;
                        row->as_file = wanted == BENCH_AS_FILE;
                        row->kv_type = (enum storage)spec->kv_types.items[kv];
                        row->threads = spec->threads.items[t];
                        row->depth = spec->depths.items[d];
                        row->n_kv_heads = spec->kv_heads.items[g];
                        row->model = type * n_variants + g;
                        row->variant = g;
                        row->pool = t;
                        row->line = b->n_lines + g;
                        plan_row(spec, *base, row);
                    }
}

static void bench_take_rows(const struct bench_spec *spec, struct bench *b)
{
    const uint64_t n_rows = (uint64_t)b->n_rows,
                   n_times = (uint64_t)spec->n * (uint64_t)spec->repeats;
    b->rows = arena_take(&b->arena, n_rows, sizeof *b->rows);
    uint64_t *times = arena_take(&b->arena, n_rows * n_times, sizeof *times);
    for (uint64_t i = 0; b->rows && i < n_rows; i++)
        b->rows[i].times_ns = times + i * n_times;
}

enum status bench_plan(const struct bench_spec *spec, struct bench *b, struct err *e)
{
    *b = (struct bench){0};
    enum status s = check_kv_heads(spec, e);
    if (s == STATUS_OK)
        s = check_settings(spec, e);
    struct cost_shape shape;
    if (s == STATUS_OK)
        s = base_shape(spec, &shape, e);
    if (s != STATUS_OK)
        return s;
    const double n_rows = (double)spec->kv_heads.n * spec->types.n * spec->kv_types.n *
                          spec->threads.n * spec->depths.n;
    const double samples = n_rows * spec->n * spec->repeats;
    if (samples > MAX_SAMPLES)
        return err_set(e, STATUS_USAGE, "%.0f rows of %d x %d samples: expected at most %d in all",
                       n_rows, spec->repeats, spec->n, MAX_SAMPLES);
    b->n_rows = (int)n_rows;
    b->n_models = spec->types.n * spec->kv_heads.n;
    bench_take_rows(spec, b);
    s = arena_allocate(&b->arena, "the samples", e);
    if (s != STATUS_OK)
        return s;
    bench_take_rows(spec, b);
    plan_rows(spec, &shape, b);
    return STATUS_OK;
}

void bench_free(struct bench *b)
{
    arena_free(&b->arena);
    *b = (struct bench){0};
}

/* With fewer threads than can be started a row would be measured as what it is not. */
static enum status start_row_pool(const struct bench_spec *spec, int threads, struct pool **out,
                                  struct err *e)
{
    const int most = spec->most_threads;
    const int n = most && threads > most ? most : threads;
    const enum status s = pool_create(n, out, e);
    if (s == STATUS_OK && pool_n_threads(*out) < n)
        return err_set(e, STATUS_FAILED,
                       "only %d of %d threads could be started: a row of %d would be measured "
                       "with fewer; a smaller -t needs fewer",
                       pool_n_threads(*out), n, threads);
    return s;
}

/* Positions a row's session needs: the timed token's, and the prompt's. */
static int row_context(const struct bench_spec *spec, const struct bench_row *row)
{
    const int own = row->depth + 1;
    return own > spec->prompt ? own : spec->prompt;
}

uint64_t bench_memory(const struct bench_spec *spec, const struct bench *b)
{
    const struct config *c = &spec->config;
    uint64_t bytes = 0;
    int n_models = 0; /* counted: they first appear in their order */
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        if (row->model == n_models) {
            n_models++;
            bytes += row->weight_bytes + matrix_bytes(c->n_vocab, c->d_model, row->type);
        }
        bytes += cost_kv_bytes(c, row->n_kv_heads, row->kv_type, row_context(spec, row));
    }
    return bytes;
}

/* --- one row at work ------------------------------------------------------------------------- */

static enum status build_row_model(const struct bench_spec *spec, const struct bench_row *row,
                                   struct model **out, struct err *e)
{
    const struct gguf *own = spec->converted ? spec->converted[row->variant] : NULL;
    if (own) {
        const struct model_options o = {.convert = !row->as_file, .storage = row->type};
        return model_create(own, &o, NULL, out, e);
    }
    if (spec->gguf) {
        const struct model_options o = {
            .n_kv_heads = row->n_kv_heads,
            .convert = !row->as_file,
            .storage = row->type,
        };
        return model_create(spec->gguf, &o, spec->source, out, e);
    }
    struct config c = spec->config;
    c.n_kv_heads = row->n_kv_heads;
    return model_create_random(&c, row->type, spec->seed, out, e);
}

static enum status build_session(const struct bench_spec *spec, const struct bench_row *row,
                                 const struct model *m, struct pool *pool, struct session **out,
                                 struct err *e)
{
    const struct session_params p = {
        .n_ctx = row_context(spec, row), .kv_storage = row->kv_type, .kernels = spec->kernels};
    return session_create(m, &p, pool, out, e);
}

/* The ith token that is fed: any will do, but not always the same embedding row. */
static int32_t token_at(const struct bench_spec *spec, int i)
{
    struct rng r;
    rng_seed(&r, spec->seed, (uint64_t)i);
    return (int32_t)(rng_u32(&r) % (uint32_t)spec->config.n_vocab);
}

/* One token at the row's depth, and back. */
static enum status bench_step(const struct bench_spec *spec, const struct bench_row *row,
                              struct session *s, int i, uint64_t *took, struct err *e)
{
    const int32_t token = token_at(spec, i);
    const uint64_t before = clock_ns();
    const enum status status = session_feed(s, 0, &token, 1, NULL, e);
    *took = clock_ns() - before;
    session_rewind(s, 0, row->depth);
    return status;
}

static uint64_t hash_logits(const float *logits, int n)
{
    const unsigned char *bytes = (const unsigned char *)logits;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < (size_t)n * sizeof *logits; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

enum status bench_load_row(const struct bench_spec *spec, struct bench_row *row, struct err *e)
{
    struct model *m = NULL;
    struct pool *pool = NULL;
    struct session *s = NULL;
    const uint64_t start = clock_ns();
    enum status status = build_row_model(spec, row, &m, e);
    row->load_ms = (double)(clock_ns() - start) / 1e6;
    if (status == STATUS_OK)
        status = start_row_pool(spec, row->threads, &pool, e);
    if (status == STATUS_OK)
        status = build_session(spec, row, m, pool, &s, e);
    if (status == STATUS_OK)
        session_fill(s, 0, row->depth, spec->seed);
    uint64_t took;
    for (int i = 0; i < 2 && status == STATUS_OK; i++)
        status = bench_step(spec, row, s, i, &took, e);
    session_free(s);
    pool_free(pool);
    model_free(m);
    return status;
}

/* --- the whole ------------------------------------------------------------------------------- */

static bool bench_stopped(const struct bench_spec *spec)
{
    return spec->stop && spec->stop(spec->arg);
}

struct limits {
    double bytes_per_s, flops_per_s;
};

/* What a run works with. */
struct bench_state {
    struct model **models;     /* [n_models] */
    struct pool **pools;       /* [spec.threads.n] */
    struct session **sessions; /* [n_rows] */
    struct limits *limits;     /* [n_rows], as measured */
    uint64_t *sorted;          /* scratch, a row's samples */
    int32_t *tokens;           /* of the prefill measurement */
    struct arena arena;
};

static enum status measure_limits(const struct bench_spec *spec, const struct bench *b,
                                  const struct bench_state *st, struct err *e)
{
    const double seconds = spec->roofline_seconds / b->n_rows;
    enum status s = STATUS_OK;
    for (int i = 0; i < b->n_rows && s == STATUS_OK; i++) {
        const struct bench_row *row = &b->rows[i];
        struct pool *pool = st->pools[row->pool];
        st->limits[i].flops_per_s = roofline_fma(spec->kernels, pool, seconds * FMA_SHARE);
        s = roofline_read(spec->kernels, pool, (size_t)(row->weight_bytes + row->kv_bytes),
                          seconds * (1 - FMA_SHARE), &st->limits[i].bytes_per_s, e);
    }
    return s;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The best of a row's own measurement and all that cannot be better: with as many threads, of at
 * least as many bytes; and what such rows themselves reached. So a disturbance while the machine
 * was measured does no harm. */
static struct limits best_limits(const struct bench_spec *spec, const struct bench *b, int i,
                                 const struct limits *measured)
{
    const struct bench_row *row = &b->rows[i];
    struct limits best = measured[i];
    for (int k = 0; k < b->n_rows; k++) {
        const struct bench_row *other = &b->rows[k];
        if (other->threads != row->threads)
            continue;
        const double steps_per_s = other->samples ? 1e6 / other->p50_us : 0;
        const uint64_t bytes = other->weight_bytes + other->kv_bytes;
        const uint64_t flops = cost_flops(&spec->config, other->n_kv_heads, other->depth);
        best.flops_per_s = larger(best.flops_per_s, measured[k].flops_per_s);
        best.flops_per_s = larger(best.flops_per_s, steps_per_s * (double)flops);
        if (bytes < row->weight_bytes + row->kv_bytes)
            continue;
        best.bytes_per_s = larger(best.bytes_per_s, measured[k].bytes_per_s);
        best.bytes_per_s = larger(best.bytes_per_s, steps_per_s * (double)bytes);
    }
    return best;
}

static void apply_limits(const struct bench_spec *spec, struct bench *b,
                         const struct limits *measured)
{
    uint64_t largest = 0;
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        const uint64_t bytes = row->weight_bytes + row->kv_bytes;
        const struct limits best = best_limits(spec, b, i, measured);
        const double by_bytes = best.bytes_per_s / (double)bytes;
        const double by_flops =
            best.flops_per_s / (double)cost_flops(&spec->config, row->n_kv_heads, row->depth);
        row->limit_tokens_per_s = by_bytes < by_flops ? by_bytes : by_flops;
        if (row->samples)
            row->share_of_limit = 1e6 / row->p50_us / row->limit_tokens_per_s;
        if (row->threads == b->rows[0].threads && bytes > largest) {
            largest = bytes;
            b->read_bytes_per_s = best.bytes_per_s;
            b->flops_per_s = best.flops_per_s;
        }
    }
}

static enum status measure_prefill(const struct bench_spec *spec, struct bench_row *row,
                                   struct session *s, int32_t *tokens, struct err *e)
{
    double best = (double)INFINITY;
    for (int pass = 0; pass < 2; pass++) { /* the first one also warms up */
        const uint64_t before = clock_ns();
        const enum status status = session_feed(s, 0, tokens, spec->prompt, NULL, e);
        const double took = (double)(clock_ns() - before);
        session_rewind(s, 0, 0);
        if (status != STATUS_OK)
            return status;
        best = took < best ? took : best;
    }
    row->prefill_tokens_per_s = spec->prompt / best * 1e9;
    return STATUS_OK;
}

static enum status set_up_row(const struct bench_spec *spec, struct bench_row *row,
                              const struct bench_state *st, struct session **session, struct err *e)
{
    struct model **model = &st->models[row->model];
    TRY(*model ? STATUS_OK : build_row_model(spec, row, model, e));
    row->weight_bytes = cost_model_bytes(*model);
    enum status s = build_session(spec, row, *model, st->pools[row->pool], session, e);
    if (s == STATUS_OK && spec->prompt)
        s = measure_prefill(spec, row, *session, st->tokens, e);
    if (s == STATUS_OK)
        session_fill(*session, 0, row->depth, spec->seed);
    return s;
}

static enum status set_up(const struct bench_spec *spec, struct bench *b,
                          const struct bench_state *st, struct err *e)
{
    enum status s = STATUS_OK;
    for (int i = 0; i < spec->prompt; i++)
        st->tokens[i] = token_at(spec, i);
    for (int i = 0; i < b->n_rows && s == STATUS_OK; i++)
        s = bench_stopped(spec) ? STATUS_INTERRUPTED
                                : set_up_row(spec, &b->rows[i], st, &st->sessions[i], e);
    return s;
}

static enum status measure_repeat(const struct bench_spec *spec, struct bench_row *row,
                                  struct session *s, struct err *e)
{
    uint64_t took;
    for (int i = 0; i < spec->warmup; i++) {
        TRY(bench_step(spec, row, s, i, &took, e));
    }
    uint64_t *times = row->times_ns + row->samples;
    for (int i = 0; i < spec->n; i++) {
        if (bench_stopped(spec))
            return STATUS_INTERRUPTED;
        TRY(bench_step(spec, row, s, i, &times[i], e));
        row->samples++;
    }
    row->repeats++;
    row->logits_hash = hash_logits(session_logits(s), spec->config.n_vocab);
    return STATUS_OK;
}

static enum status measure_all(const struct bench_spec *spec, struct bench *b,
                               const struct bench_state *st, struct err *e)
{
    for (int r = 0; r < spec->repeats; r++) {
        for (int i = 0; i < b->n_rows; i++) {
            if (spec->progress)
                spec->progress(spec->arg, r * b->n_rows + i, spec->repeats * b->n_rows);
            TRY(measure_repeat(spec, &b->rows[i], st->sessions[i], e));
        }
    }
    return STATUS_OK;
}

static void bench_take_state(const struct bench_spec *spec, const struct bench *b,
                             struct bench_state *st)
{
    struct arena *a = &st->arena;
    const uint64_t n_rows = (uint64_t)b->n_rows,
                   n_times = (uint64_t)spec->n * (uint64_t)spec->repeats;
    st->models = arena_take(a, (uint64_t)b->n_models, sizeof *st->models);
    st->pools = arena_take(a, (uint64_t)spec->threads.n, sizeof *st->pools);
    st->sessions = arena_take(a, n_rows, sizeof *st->sessions);
    st->limits = arena_take(a, n_rows, sizeof *st->limits);
    st->sorted = arena_take(a, n_times, sizeof *st->sorted);
    st->tokens = arena_take(a, (uint64_t)spec->prompt, sizeof *st->tokens);
}

static void bench_free_state(const struct bench_spec *spec, const struct bench *b,
                             struct bench_state *st)
{
    for (int i = 0; i < b->n_rows; i++)
        session_free(st->sessions[i]);
    for (int i = 0; i < spec->threads.n; i++)
        pool_free(st->pools[i]);
    for (int i = 0; i < b->n_models; i++)
        model_free(st->models[i]);
    arena_free(&st->arena);
}

enum status bench_run(const struct bench_spec *spec, struct bench *b, struct err *e)
{
    struct bench_state st = {0};
    bench_take_state(spec, b, &st);
    enum status s = arena_allocate(&st.arena, "the benchmark", e);
    if (s != STATUS_OK)
        return s;
    bench_take_state(spec, b, &st);
    for (int i = 0; i < spec->threads.n && s == STATUS_OK; i++)
        s = start_row_pool(spec, spec->threads.items[i], &st.pools[i], e);
    if (s == STATUS_OK)
        s = measure_limits(spec, b, &st, e);
    if (s == STATUS_OK)
        s = set_up(spec, b, &st, e);
    if (s == STATUS_OK)
        s = measure_all(spec, b, &st, e);
    if (s == STATUS_OK || s == STATUS_INTERRUPTED) {
        for (int i = 0; i < b->n_rows; i++)
            bench_summarise(&b->rows[i], spec->n, st.sorted);
        bench_compare(b, spec->config.n_heads);
        apply_limits(spec, b, st.limits);
    }
    bench_free_state(spec, b, &st);
    return s;
}
