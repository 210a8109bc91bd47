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

static bool bench_stopped(const struct bench_spec *spec)
{
    return spec->stop && spec->stop(spec->arg);
}

/* With fewer threads than can be started a row would be measured as what it is not. */
static enum status start_row_pool(int threads, struct pool **out, struct err *e)
{
    TRY(pool_create(threads, out, e));
    if (pool_n_threads(*out) < threads)
        return err_set(e, STATUS_FAILED,
                       "only %d of %d threads could be started: a row of %d would be measured "
                       "with fewer; a smaller -t needs fewer",
                       pool_n_threads(*out), threads, threads);
    return STATUS_OK;
}

/* --- one row at work ------------------------------------------------------------------------- */

/* Variants of a negative number are not made of the checkpoint: times do not depend on weights. */
static enum status build_row_model(const struct bench_spec *spec, const struct bench_row *row,
                                   struct model **out, struct err *e)
{
    const struct gguf *own = spec->converted ? spec->converted[row->variant] : NULL;
    const struct config c = bench_variant(spec, row->variant);
    const struct model_options o = {
        .n_kv_heads = own ? 0 : row->n_kv_heads, .convert = !row->as_file, .storage = row->type};
    if (own)
        return model_create(own, &o, NULL, out, e);
    if (spec->gguf && spec->kv_heads.items[row->variant] > 0)
        return model_create(spec->gguf, &o, spec->source, out, e);
    return model_create_random(&c, row->type, spec->seed, out, e);
}

static enum status build_session(const struct bench_spec *spec, const struct bench_row *row,
                                 const struct model *m, struct pool *pool, struct session **out,
                                 struct err *e)
{
    const struct session_params p = {.n_sequences = row->batch,
                                     .n_ctx = bench_row_context(spec, row),
                                     .kv_storage = row->kv_type,
                                     .kernels = spec->kernels,
                                     .without = spec->without};
    return session_create(m, &p, pool, out, e);
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
static int32_t token_at(const struct bench_spec *spec, int sequence, int i)
{
    struct rng r;
    rng_seed(&r, sequence_seed(spec, sequence), (uint64_t)i);
    return (int32_t)(rng_u32(&r) % (uint32_t)spec->config.n_vocab);
}

/* What a step takes and gives. */
struct step_room {
    struct batch_row *rows; /* [batch] */
    float *logits;          /* [batch, n_vocab] */
};

static void take_step_room(struct step_room *room, const struct bench_spec *spec, int batch,
                           struct arena *a)
{
    const uint64_t n = (uint64_t)batch;
    room->rows = arena_take(a, n, sizeof *room->rows);
    room->logits = arena_take(a, n * (uint64_t)spec->config.n_vocab, sizeof *room->logits);
}

/* One token of each sequence at the row's depth, and back. */
static enum status bench_step(const struct bench_spec *spec, const struct bench_row *row,
                              const struct step_room *room, struct session *s, int i,
                              uint64_t *took, struct err *e)
{
    for (int q = 0; q < row->batch; q++)
        room->rows[q] = (struct batch_row){.token = token_at(spec, q, i),
                                           .sequence = q,
                                           .position = row->depth,
                                           .wants_logits = true};
    const uint64_t before = clock_ns();
    const enum status status = session_step(s, room->rows, row->batch, room->logits, e);
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

/* A row on its own. */
struct row_alone {
    struct model *model;
    struct pool *pool;
    struct session *session;
    struct step_room room;
    struct arena arena;
};

/* Fills in its load_ms; row_close is due in every case. */
static enum status row_open(const struct bench_spec *spec, struct bench_row *row,
                            struct row_alone *a, struct err *e)
{
    const uint64_t start = clock_ns();
    TRY(build_row_model(spec, row, &a->model, e));
    row->load_ms = (double)(clock_ns() - start) / 1e6;
    TRY(start_row_pool(row->threads, &a->pool, e));
    take_step_room(&a->room, spec, row->batch, &a->arena);
    TRY(arena_allocate(&a->arena, "the logits", e));
    take_step_room(&a->room, spec, row->batch, &a->arena);
    return build_session(spec, row, a->model, a->pool, &a->session, e);
}

static void row_close(struct row_alone *a)
{
    session_free(a->session);
    arena_free(&a->arena);
    pool_free(a->pool);
    model_free(a->model);
}

enum status bench_load_row(const struct bench_spec *spec, struct bench_row *row, struct err *e)
{
    struct row_alone a = {.model = NULL};
    uint64_t took;
    enum status s = row_open(spec, row, &a, e);
    if (s == STATUS_OK)
        s = fill_caches(spec, row, a.session);
    for (int i = 0; i < 2 && s == STATUS_OK; i++)
        s = bench_step(spec, row, &a.room, a.session, i, &took, e);
    row_close(&a);
    return s;
}

enum status bench_prefers_one_thread(const struct bench_spec *spec, const struct bench_row *first,
                                     bool *out, struct err *e)
{
    struct row_alone a = {.model = NULL};
    struct bench_row row = *first;
    const enum status s = row_open(spec, &row, &a, e);
    *out = s == STATUS_OK && session_prefers_one_thread(a.session, row.batch);
    row_close(&a);
    return s;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* The limits are measured no longer than the samples take on a slow machine, so that a quick look
 * stays one; but for a moment at least for each working set. */
#define SLOW_BYTES_PER_S 1e9
#define LEAST_SECONDS    0.005

/* What a run works with. */
struct bench_state {
    struct model **models;     /* [n_models] */
    struct pool **pools;       /* [spec.threads.n] */
    struct session **sessions; /* [n_rows] */
    struct step_room room;     /* of the largest batch */
    uint64_t *sorted;          /* scratch, a row's samples */
    int32_t *tokens;           /* of the prefill measurement */
    struct arena arena;
};

static void take_state(const struct bench_spec *spec, const struct bench *b, struct bench_state *st)
{
    struct arena *a = &st->arena;
    st->models = arena_take(a, (uint64_t)b->n_models, sizeof *st->models);
    st->pools = arena_take(a, (uint64_t)spec->threads.n, sizeof *st->pools);
    st->sessions = arena_take(a, (uint64_t)b->n_rows, sizeof *st->sessions);
    take_step_room(&st->room, spec, bench_largest_batch(spec), a);
    st->sorted = arena_take(a, (uint64_t)spec->n * (uint64_t)spec->repeats, sizeof *st->sorted);
    st->tokens = arena_take(a, (uint64_t)spec->prompt, sizeof *st->tokens);
}

/* Of the machine, with every pool, for its rows' working sets. */
static enum status measure_limits(const struct bench_spec *spec, struct bench *b,
                                  struct pool *const *pools, struct err *e)
{
    for (int i = 0; i < b->n_rows; i++)
        machine_want(&b->machines[b->rows[i].pool], bench_row_bytes(&b->rows[i]));
    for (int p = 0; p < b->n_machines; p++) {
        struct machine *m = &b->machines[p];
        double slow = 0;
        for (int i = 0; i < b->n_rows; i++)
            if (b->rows[i].pool == p)
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
        tokens[i] = token_at(spec, 0, i);
    for (int pass = 0; pass < 2; pass++) { /* the first one also warms up */
        const uint64_t before = clock_ns();
        TRY(session_feed(s, 0, tokens, spec->prompt, NULL, e));
        best = fmin(best, (double)(clock_ns() - before));
        session_rewind(s, 0, 0);
    }
    row->prefill_tokens_per_s = spec->prompt / best * 1e9;
    return STATUS_OK;
}

static enum status set_up_row(const struct bench_spec *spec, struct bench_row *row,
                              const struct bench_state *st, struct session **session, struct err *e)
{
    struct model **model = &st->models[row->model];
    if (bench_stopped(spec))
        return STATUS_INTERRUPTED;
    if (!*model)
        TRY(build_row_model(spec, row, model, e));
    const struct cost_shape shape = cost_shape_of_model(*model);
    row->cost.weight_bytes = cost_weights(&shape).step_bytes;
    row->cost.flops = cost_flops(&shape, row->depth);
    TRY(build_session(spec, row, *model, st->pools[row->pool], session, e));
    if (spec->prompt)
        TRY(measure_prefill(spec, row, *session, st->tokens, e));
    return fill_caches(spec, row, *session);
}

static enum status measure_repeat(const struct bench_spec *spec, struct bench_row *row,
                                  const struct step_room *room, struct session *s, struct err *e)
{
    uint64_t start = 0, worked = 0, took;
    for (int i = -spec->warmup; i < spec->n; i++) {
        if (i == 0) {
            start = clock_ns();
            worked = cpu_ns();
        }
        if (bench_stopped(spec))
            return STATUS_INTERRUPTED;
        TRY(bench_step(spec, row, room, s, i < 0 ? i + spec->warmup : i, &took, e));
        if (i >= 0)
            row->times_ns[row->samples++] = took;
    }
    const double share = (double)(cpu_ns() - worked) / (double)(clock_ns() - start) / row->threads;
    row->repeats++;
    row->cpu_share += (fmin(share, 1) - row->cpu_share) / row->repeats; /* the mean so far */
    row->logits_hash = hash_logits(room->logits, spec->config.n_vocab);
    return STATUS_OK;
}

/* Setting up is a turn of every row, and then each repeat. */
static enum status measure_rows(const struct bench_spec *spec, struct bench *b,
                                struct bench_state *st, struct err *e)
{
    const uint64_t n_rows = (uint64_t)b->n_rows, all = ((uint64_t)spec->repeats + 1) * n_rows;
    for (int i = 0; i < spec->threads.n; i++)
        TRY(start_row_pool(spec->threads.items[i], &st->pools[i], e));
    TRY(measure_limits(spec, b, st->pools, e));
    for (uint64_t done = 0; done < all; done++) {
        const uint64_t i = done % n_rows;
        if (spec->progress)
            spec->progress(spec->arg, done, all);
        if (done < n_rows)
            TRY(set_up_row(spec, &b->rows[i], st, &st->sessions[i], e));
        else
            TRY(measure_repeat(spec, &b->rows[i], &st->room, st->sessions[i], e));
    }
    return STATUS_OK;
}

enum status bench_run(const struct bench_spec *spec, struct bench *b, struct err *e)
{
    struct bench_state st = {0};
    take_state(spec, b, &st);
    TRY(arena_allocate(&st.arena, "the benchmark", e));
    take_state(spec, b, &st);
    const enum status s = measure_rows(spec, b, &st, e);
    if (s == STATUS_OK || s == STATUS_INTERRUPTED) {
        for (int i = 0; i < b->n_rows; i++)
            bench_summarise(&b->rows[i], spec->n, st.sorted);
        bench_predict(b);
        bench_compare(b, spec->config.n_heads);
    }
    for (int i = 0; i < b->n_rows; i++)
        session_free(st.sessions[i]);
    for (int i = 0; i < spec->threads.n; i++)
        pool_free(st.pools[i]);
    for (int i = 0; i < b->n_models; i++)
        model_free(st.models[i]);
    arena_free(&st.arena);
    return s;
}
