#include "measure/bench.h"

#include <math.h>

#include "base/clock.h"
#include "base/rng.h"
#include "compute/pool.h"
#include "engine/session.h"

/* Processor time of all threads. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What cells are measured with. */
struct bench_state {
    const struct bench_spec *spec;
    int n_models, n_pools, n_sessions, batch; /* batch: the largest of a step */
    struct model **models; /* by struct bench_row's places; NULL: not yet there */
    struct pool **pools;
    struct session **sessions; /* by row */
    struct batch_row *rows;    /* [batch] that a step takes, and gives */
    float *logits;             /* [batch, n_vocab] */
    uint64_t *sorted;          /* scratch, a row's samples */
    int32_t *tokens;           /* of the prefill measurement */
    struct arena arena;
};

static void take_bench_state(struct bench_state *st)
{
    const struct bench_spec *spec = st->spec;
    struct arena *a = &st->arena;
    const uint64_t batch = (uint64_t)st->batch;
    st->models = arena_take(a, (uint64_t)st->n_models, sizeof(struct model *));
    st->pools = arena_take(a, (uint64_t)st->n_pools, sizeof(struct pool *));
    st->sessions = arena_take(a, (uint64_t)st->n_sessions, sizeof(struct session *));
    st->rows = arena_take(a, batch, sizeof *st->rows);
    st->logits = arena_take(a, batch * (uint64_t)spec->config.n_vocab, sizeof *st->logits);
    st->sorted = arena_take(a, (uint64_t)spec->n * (uint64_t)spec->repeats, sizeof *st->sorted);
    st->tokens = arena_take(a, (uint64_t)spec->prompt, sizeof *st->tokens);
}

/* close_bench_state is due on success. */
static enum status open_bench_state(struct bench_state *st, struct err *e)
{
    take_bench_state(st);
    TRY(arena_allocate(&st->arena, "the benchmark", e));
    take_bench_state(st);
    return STATUS_OK;
}

static void close_bench_state(struct bench_state *st)
{
    for (int i = 0; i < st->n_sessions; i++)
        session_free(st->sessions[i]);
    for (int i = 0; i < st->n_pools; i++)
        pool_free(st->pools[i]);
    for (int i = 0; i < st->n_models; i++)
        model_free(st->models[i]);
    arena_free(&st->arena);
}

/* --- one row at work ------------------------------------------------------------------------- */

/* The row's model, unless it is there. A latent variant is not made of the checkpoint: times do not
 * depend on weights. */
static enum status need_model(const struct bench_state *st, const struct bench_row *row,
                              struct err *e)
{
    const struct bench_spec *spec = st->spec;
    const struct config c = bench_row_config(spec, row);
    const struct model_options o = {
        .n_kv_heads = row->n_kv_heads, .convert = !row->as_file, .storage = row->type};
    struct model **model = &st->models[row->model];
    if (*model)
        return STATUS_OK;
    if (spec->gguf && spec->axes[BENCH_VARIANTS].items[row->at[BENCH_VARIANTS]] > 0)
        return model_create(spec->gguf, &o, spec->source, model, e);
    return model_create_random(&c, row->type, spec->seed, model, e);
}

/* The row's threads, likewise. With fewer than it says it would be measured as what it is not. */
static enum status need_pool(const struct bench_state *st, int at, struct err *e)
{
    struct pool **pool = &st->pools[at];
    const int threads = st->spec->axes[BENCH_THREADS].items[at];
    if (*pool)
        return STATUS_OK;
    TRY(pool_create(threads, pool, e));
    if (pool_n_threads(*pool) < threads)
        return err_set(e, STATUS_FAILED,
                       "only %d of %d threads could be started: a row of %d would be measured "
                       "with fewer; a smaller -t needs fewer",
                       pool_n_threads(*pool), threads, threads);
    return STATUS_OK;
}

static enum status open_session(const struct bench_state *st, const struct bench_row *row,
                                struct session **out, struct err *e)
{
    const struct session_params p = {.n_sequences = row->batch,
                                     .n_ctx = bench_row_context(st->spec, row),
                                     .kv_storage = row->kv_type,
                                     .kernels = st->spec->kernels};
    TRY(need_model(st, row, e));
    TRY(need_pool(st, row->at[BENCH_THREADS], e));
    return session_create(st->models[row->model], &p, st->pools[row->at[BENCH_THREADS]], out, e);
}

static bool bench_stopped(const struct bench_spec *spec)
{
    return spec->stop && spec->stop(spec->arg);
}

/* Every sequence has its own seed, sequence 0 the run's whatever the batch. */
static uint64_t sequence_seed(const struct bench_spec *spec, int sequence)
{
    return spec->seed + (uint64_t)sequence;
}

/* A cache of the row's depth for each sequence, which takes seconds where they are many. */
static enum status fill_caches(const struct bench_spec *spec, const struct bench_row *row,
                               struct session *s)
{
    for (int q = 0; q < row->batch; q++) {
        if (q > 0 && bench_stopped(spec))
            return STATUS_INTERRUPTED;
        session_fill(s, q, row->depth, sequence_seed(spec, q));
    }
    return STATUS_OK;
}

/* The ith token that a sequence is fed: any will do, but not always the same embedding row. */
static int32_t bench_token(const struct bench_spec *spec, int sequence, int i)
{
    struct rng r;
    rng_seed(&r, sequence_seed(spec, sequence), (uint64_t)i);
    return (int32_t)(rng_u32(&r) % (uint32_t)spec->config.n_vocab);
}

/* One token of each sequence at the row's depth, and back. */
static enum status bench_step(const struct bench_state *st, const struct bench_row *row,
                              struct session *s, int i, uint64_t *took, struct err *e)
{
    for (int q = 0; q < row->batch; q++)
        st->rows[q] = (struct batch_row){.token = bench_token(st->spec, q, i),
                                         .sequence = q,
                                         .position = row->depth,
                                         .wants_logits = true};
    const uint64_t before = clock_ns();
    const enum status status = session_step(s, st->rows, row->batch, st->logits, e);
    *took = clock_ns() - before;
    for (int q = 0; q < row->batch; q++)
        session_rewind(s, q, row->depth);
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

/* --- a row on its own ------------------------------------------------------------------------ */

static struct bench_state state_of_one(const struct bench_spec *spec, const struct bench_row *row)
{
    return (struct bench_state){.spec = spec,
                                .n_models = row->model + 1,
                                .n_pools = row->at[BENCH_THREADS] + 1,
                                .n_sessions = 1,
                                .batch = row->batch};
}

static enum status load_row(struct bench_state *st, struct bench_row *row, struct err *e)
{
    uint64_t took;
    const uint64_t start = clock_ns();
    TRY(need_model(st, row, e));
    row->load_ms = (double)(clock_ns() - start) / 1e6;
    TRY(open_session(st, row, &st->sessions[0], e));
    TRY(fill_caches(st->spec, row, st->sessions[0]));
    for (int i = 0; i < 2; i++)
        TRY(bench_step(st, row, st->sessions[0], i, &took, e));
    return STATUS_OK;
}

enum status bench_load_row(const struct bench_spec *spec, struct bench_row *row, struct err *e)
{
    struct bench_state st = state_of_one(spec, row);
    TRY(open_bench_state(&st, e));
    const enum status s = load_row(&st, row, e);
    close_bench_state(&st);
    return s;
}

enum status bench_prefers_one_thread(const struct bench_spec *spec, const struct bench_row *first,
                                     bool *out, struct err *e)
{
    struct bench_state st = state_of_one(spec, first);
    *out = false;
    TRY(open_bench_state(&st, e));
    const enum status s = open_session(&st, first, &st.sessions[0], e);
    *out = s == STATUS_OK && session_prefers_one_thread(st.sessions[0], first->batch);
    close_bench_state(&st);
    return s;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* The limits are measured no longer than the samples take on a slow machine, so that a quick look
 * stays one; but for a moment at least for each working set. */
#define SLOW_BYTES_PER_S 1e9
#define LEAST_SECONDS    0.005

/* Of the machine, with every pool, for its rows' working sets. */
static enum status measure_limits(const struct bench_spec *spec, struct bench *b,
                                  struct pool *const *pools, struct err *e)
{
    for (int i = 0; i < b->n_rows; i++)
        machine_want(&b->machines[b->rows[i].at[BENCH_THREADS]], bench_row_bytes(&b->rows[i]));
    for (int p = 0; p < b->n_machines; p++) {
        struct machine *m = &b->machines[p];
        double slow = 0;
        for (int i = 0; i < b->n_rows; i++)
            if (b->rows[i].at[BENCH_THREADS] == p)
                slow += (double)spec->n * spec->repeats * (double)bench_row_bytes(&b->rows[i]);
        const double seconds =
            fmin(spec->roofline_seconds / b->n_machines,
                 fmax(LEAST_SECONDS * machine_n_wanted(m), slow / SLOW_BYTES_PER_S));
        TRY(machine_measure(m, spec->kernels, pools[p], seconds, e));
    }
    return STATUS_OK;
}

static enum status measure_prefill(const struct bench_spec *spec, struct bench_row *row,
                                   struct session *s, int32_t *tokens, struct err *e)
{
    double best = (double)INFINITY;
    for (int i = 0; i < spec->prompt; i++)
        tokens[i] = bench_token(spec, 0, i);
    for (int pass = 0; pass < 2; pass++) { /* the first one also warms up */
        const uint64_t before = clock_ns();
        TRY(session_feed(s, 0, tokens, spec->prompt, NULL, e));
        best = fmin(best, (double)(clock_ns() - before));
        session_rewind(s, 0, 0);
    }
    row->prefill_tokens_per_s = spec->prompt / best * 1e9;
    return STATUS_OK;
}

static enum status set_up_row(const struct bench_state *st, struct bench_row *row,
                              struct session **session, struct err *e)
{
    if (bench_stopped(st->spec))
        return STATUS_INTERRUPTED;
    TRY(open_session(st, row, session, e));
    const struct cost_shape shape = cost_shape_of_model(st->models[row->model]);
    row->cost = cost_of(&shape, row->kv_type, row->depth);
    if (st->spec->prompt)
        TRY(measure_prefill(st->spec, row, *session, st->tokens, e));
    return fill_caches(st->spec, row, *session);
}

static enum status measure_repeat(const struct bench_state *st, struct bench_row *row,
                                  struct session *s, struct err *e)
{
    const struct bench_spec *spec = st->spec;
    uint64_t start = 0, worked = 0, took;
    for (int i = -spec->warmup; i < spec->n; i++) {
        if (i == 0) {
            start = clock_ns();
            worked = cpu_ns();
        }
        if (bench_stopped(spec))
            return STATUS_INTERRUPTED;
        TRY(bench_step(st, row, s, i < 0 ? i + spec->warmup : i, &took, e));
        if (i >= 0)
            row->times_ns[row->samples++] = took;
    }
    const double share = (double)(cpu_ns() - worked) / (double)(clock_ns() - start) / row->threads;
    row->repeats++;
    row->cpu_share += (fmin(share, 1) - row->cpu_share) / row->repeats; /* the mean so far */
    row->logits_hash = hash_logits(st->logits, spec->config.n_vocab);
    return STATUS_OK;
}

/* Setting up is a turn of every row, and then each repeat. */
static enum status measure_rows(struct bench_state *st, struct bench *b, struct err *e)
{
    const struct bench_spec *spec = st->spec;
    const uint64_t n_rows = (uint64_t)b->n_rows, all = ((uint64_t)spec->repeats + 1) * n_rows;
    for (int i = 0; i < spec->axes[BENCH_THREADS].n; i++)
        TRY(need_pool(st, i, e));
    TRY(measure_limits(spec, b, st->pools, e));
    for (uint64_t done = 0; done < all; done++) {
        const uint64_t i = done % n_rows;
        if (spec->progress)
            spec->progress(spec->arg, done, all);
        if (done < n_rows)
            TRY(set_up_row(st, &b->rows[i], &st->sessions[i], e));
        else
            TRY(measure_repeat(st, &b->rows[i], st->sessions[i], e));
    }
    return STATUS_OK;
}

enum status bench_run(const struct bench_spec *spec, struct bench *b, struct err *e)
{
    struct bench_state st = {.spec = spec,
                             .n_models = b->n_models,
                             .n_pools = spec->axes[BENCH_THREADS].n,
                             .n_sessions = b->n_rows,
                             .batch = bench_largest_batch(spec)};
    TRY(open_bench_state(&st, e));
    const enum status s = measure_rows(&st, b, e);
    if (s == STATUS_OK || s == STATUS_INTERRUPTED) {
        for (int i = 0; i < b->n_rows; i++)
            bench_summarise(&b->rows[i], spec->n, st.sorted);
        bench_predict(b);
        bench_compare(b, spec->config.n_heads);
    }
    close_bench_state(&st);
    return s;
}
