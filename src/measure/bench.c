#include "measure/bench.h"

#include <math.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/session.h"
#include "measure/bench_rows.h"
#include "measure/bench_stats.h"

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

/* Whether the variant is not made of the checkpoint: times do not depend on weights. */
static bool is_random(const struct bench_spec *spec, const struct bench_row *row)
{
    return spec->kv_heads.items[row->variant] < 0;
}

static enum status build_row_model(const struct bench_spec *spec, const struct bench_row *row,
                                   struct model **out, struct err *e)
{
    const struct gguf *own = spec->converted ? spec->converted[row->variant] : NULL;
    if (own) {
        const struct model_options o = {.convert = !row->as_file, .storage = row->type};
        return model_create(own, &o, NULL, out, e);
    }
    const struct config c = bench_variant(spec, row->variant);
    if (spec->gguf && !is_random(spec, row)) {
        const struct model_options o = {
            .n_kv_heads = row->n_kv_heads,
            .convert = !row->as_file,
            .storage = row->type,
        };
        return model_create(spec->gguf, &o, spec->source, out, e);
    }
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

/* A few steps of a model that is loaded. */
static enum status try_row(const struct bench_spec *spec, const struct bench_row *row,
                           const struct model *m, struct pool *pool, struct err *e)
{
    struct session *s = NULL;
    struct step_room room;
    struct arena arena = {0};
    take_step_room(&room, spec, row->batch, &arena);
    enum status status = arena_allocate(&arena, "the logits", e);
    if (status == STATUS_OK) {
        take_step_room(&room, spec, row->batch, &arena);
        status = build_session(spec, row, m, pool, &s, e);
    }
    if (status == STATUS_OK)
        status = fill_caches(spec, row, s);
    uint64_t took;
    for (int i = 0; i < 2 && status == STATUS_OK; i++)
        status = bench_step(spec, row, &room, s, i, &took, e);
    session_free(s);
    arena_free(&arena);
    return status;
}

enum status bench_load_row(const struct bench_spec *spec, struct bench_row *row, struct err *e)
{
    struct model *m = NULL;
    struct pool *pool = NULL;
    const uint64_t start = clock_ns();
    enum status status = build_row_model(spec, row, &m, e);
    row->load_ms = (double)(clock_ns() - start) / 1e6;
    if (status == STATUS_OK)
        status = start_row_pool(row->threads, &pool, e);
    if (status == STATUS_OK)
        status = try_row(spec, row, m, pool, e);
    pool_free(pool);
    model_free(m);
    return status;
}

enum status bench_prefers_one_thread(const struct bench_spec *spec, const struct bench_row *first,
                                     bool *out, struct err *e)
{
    struct model *m = NULL;
    struct pool *pool = NULL;
    struct session *session = NULL;
    enum status s = build_row_model(spec, first, &m, e);
    if (s == STATUS_OK)
        s = start_row_pool(first->threads, &pool, e);
    if (s == STATUS_OK)
        s = build_session(spec, first, m, pool, &session, e);
    *out = s == STATUS_OK && session_prefers_one_thread(session, first->batch);
    session_free(session);
    pool_free(pool);
    model_free(m);
    return s;
}

/* --- the whole ------------------------------------------------------------------------------- */

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
    const struct cost_shape shape = cost_shape_of_model(*model);
    row->cost.weight_bytes = cost_weights(&shape).step_bytes;
    row->cost.flops = cost_flops(&shape, row->depth);
    enum status s = build_session(spec, row, *model, st->pools[row->pool], session, e);
    if (s == STATUS_OK && spec->prompt)
        s = measure_prefill(spec, row, *session, st->tokens, e);
    return s == STATUS_OK ? fill_caches(spec, row, *session) : s;
}

/* Setting up is a turn of every row, too. */
static void tell_turn(const struct bench_spec *spec, const struct bench *b, int turn, int row)
{
    const uint64_t n_rows = (uint64_t)b->n_rows;
    if (spec->progress)
        spec->progress(spec->arg, (uint64_t)turn * n_rows + (uint64_t)row,
                       ((uint64_t)spec->repeats + 1) * n_rows);
}

static enum status set_up(const struct bench_spec *spec, struct bench *b,
                          const struct bench_state *st, struct err *e)
{
    enum status s = STATUS_OK;
    for (int i = 0; i < spec->prompt; i++)
        st->tokens[i] = token_at(spec, 0, i);
    for (int i = 0; i < b->n_rows && s == STATUS_OK; i++) {
        tell_turn(spec, b, 0, i);
        s = bench_stopped(spec) ? STATUS_INTERRUPTED
                                : set_up_row(spec, &b->rows[i], st, &st->sessions[i], e);
    }
    return s;
}

static enum status measure_repeat(const struct bench_spec *spec, struct bench_row *row,
                                  const struct step_room *room, struct session *s, struct err *e)
{
    uint64_t took;
    for (int i = 0; i < spec->warmup; i++) {
        if (bench_stopped(spec))
            return STATUS_INTERRUPTED;
        TRY(bench_step(spec, row, room, s, i, &took, e));
    }
    uint64_t *times = row->times_ns + row->samples;
    const uint64_t start = clock_ns(), worked = cpu_ns();
    for (int i = 0; i < spec->n; i++) {
        if (bench_stopped(spec))
            return STATUS_INTERRUPTED;
        TRY(bench_step(spec, row, room, s, i, &times[i], e));
        row->samples++;
    }
    const double share = (double)(cpu_ns() - worked) / (double)(clock_ns() - start) / row->threads;
    row->repeats++;
    row->cpu_share += (fmin(share, 1) - row->cpu_share) / row->repeats; /* the mean so far */
    row->logits_hash = hash_logits(room->logits, spec->config.n_vocab);
    return STATUS_OK;
}

static enum status measure_all(const struct bench_spec *spec, struct bench *b,
                               const struct bench_state *st, struct err *e)
{
    for (int r = 0; r < spec->repeats; r++) {
        for (int i = 0; i < b->n_rows; i++) {
            tell_turn(spec, b, r + 1, i);
            TRY(measure_repeat(spec, &b->rows[i], &st->room, st->sessions[i], e));
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
    take_step_room(&st->room, spec, bench_largest_batch(spec), a);
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
        s = start_row_pool(spec->threads.items[i], &st.pools[i], e);
    if (s == STATUS_OK)
        s = bench_measure_limits(spec, b, st.pools, e);
    if (s == STATUS_OK)
        s = set_up(spec, b, &st, e);
    if (s == STATUS_OK)
        s = measure_all(spec, b, &st, e);
    if (s == STATUS_OK || s == STATUS_INTERRUPTED) {
        for (int i = 0; i < b->n_rows; i++)
            bench_summarise(&b->rows[i], spec->n, st.sorted);
        bench_predict(b);
        bench_compare(b, spec->config.n_heads);
    }
    bench_free_state(spec, b, &st);
    return s;
}
