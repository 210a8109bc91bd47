#include "measure/bench.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/figures.h"
#include "base/rng.h"
#include "compute/pool.h"
#include "model/kv_cache.h"

/* The most samples of one run: 800 MB of times. */
#define MAX_SAMPLES 100000000

/* --- the rows -------------------------------------------------------------------------------- */

static int item_of(const struct bench_spec *spec, const struct bench_row *row, enum bench_axis a)
{
    return spec->axes[a].items[row->at[a]];
}

static struct config row_config(const struct bench_spec *spec, const struct bench_row *row)
{
    struct config c = spec->config;
    const int item = item_of(spec, row, BENCH_VARIANTS);
    if (item < 0)
        config_set_latent(&c, -item);
    else
        c.n_kv_heads = item;
    return c;
}

/* Positions that a sequence of the row needs: the timed token's, and the prompt's. */
static int row_context(const struct bench_spec *spec, const struct bench_row *row)
{
    const int own = row->depth + 1;
    return own > spec->prompt ? own : spec->prompt;
}

/* That its step reads. */
static uint64_t row_bytes(const struct bench_row *row)
{
    return cost_step_bytes(&row->cost, row->batch);
}

static int largest_batch(const struct bench_spec *spec)
{
    const struct int_list *batches = &spec->axes[BENCH_BATCHES];
    int largest = 1;
    for (int i = 0; i < batches->n; i++)
        largest = batches->items[i] > largest ? batches->items[i] : largest;
    return largest;
}

/* *shape is the checkpoint's, or the one of random weights. STATUS_BAD_FILE for a type that does
 * not run. */
static enum status check_settings(const struct bench_spec *spec, struct cost_shape *shape,
                                  struct err *e)
{
    const struct config *c = &spec->config;
    const struct int_list *variants = &spec->axes[BENCH_VARIANTS],
                          *depths = &spec->axes[BENCH_DEPTHS], *types = &spec->axes[BENCH_TYPES];
    const int n_ctx = c->n_ctx, most = c->n_kv_heads;
    for (int i = 0; i < variants->n; i++) {
        const int g = variants->items[i];
        if (g < 0)
            TRY(config_check_rank(c, -g, e));
        else if (g < 1 || g > most || most % g != 0)
            return err_set(e, STATUS_USAGE, "%d K/V heads: expected a divisor of %d", g, most);
    }
    for (int i = 0; i < depths->n; i++)
        if (depths->items[i] < 0 || depths->items[i] >= n_ctx)
            return err_set(e, STATUS_USAGE,
                           "depth %d: expected 0 to %d, one below the context of %d tokens",
                           depths->items[i], n_ctx - 1, n_ctx);
    for (int i = 0; i < types->n; i++)
        if (types->items[i] != BENCH_AS_FILE)
            TRY(model_check_storage(c, (enum storage)types->items[i], e));
    if (spec->prompt < 0 || spec->prompt > n_ctx)
        return err_set(e, STATUS_USAGE, "a prompt of %d tokens: expected 0 to the context of %d",
                       spec->prompt, n_ctx);
    *shape = (struct cost_shape){.config = c};
    if (spec->gguf && !cost_shape_of_file(spec->gguf, c, shape))
        return err_bad_file(e, "the output matrix: expected type F32, F16, BF16, Q8_0 or Q4_0");
    return spec->gguf ? model_check(spec->gguf, e) : STATUS_OK;
}

/* Row i of all. */
static void plan_row(const struct bench_spec *spec, struct cost_shape shape, int i,
                     struct bench_row *row)
{
    for (int a = 0; a < BENCH_AXES; a++) {
        row->at[a] = i % spec->axes[a].n;
        i /= spec->axes[a].n;
    }
    for (int a = BENCH_AXES - 1; a >= 0; a--)
        if (a != (int)bench_x_axis(spec)) /* else it is what a line has in common */
            row->line = row->line * spec->axes[a].n + row->at[a];
    row->model = row->at[BENCH_TYPES] * spec->axes[BENCH_VARIANTS].n + row->at[BENCH_VARIANTS];
    row->batch = item_of(spec, row, BENCH_BATCHES);
    row->depth = item_of(spec, row, BENCH_DEPTHS);
    row->threads = item_of(spec, row, BENCH_THREADS);
    row->kv_type = (enum storage)item_of(spec, row, BENCH_KV_TYPES);
    const int type = item_of(spec, row, BENCH_TYPES);
    if (type != BENCH_AS_FILE)
        shape.storage = (enum storage)type;
    row->type = shape.storage;
    const struct config variant = row_config(spec, row);
    shape.config = &variant;
    row->n_kv_heads = shape.n_kv_heads = variant.n_kv_heads;
    config_variant_name(&variant, row->n_kv_heads, row->variant);
    row->cost = cost_of(&shape, row->kv_type, row->depth);
    row->prefill_tokens_per_s = (double)NAN;
}

static void take_rows(struct bench *b)
{
    const uint64_t n_rows = (uint64_t)b->n_rows,
                   n_times = (uint64_t)b->spec->n * (uint64_t)b->spec->repeats;
    b->rows = arena_take(&b->arena, n_rows, sizeof *b->rows);
    uint64_t *times = arena_take(&b->arena, n_rows * n_times, sizeof *times);
    b->machines = arena_take(&b->arena, (uint64_t)b->n_machines, sizeof *b->machines);
    b->models = arena_take(&b->arena, (uint64_t)b->n_models, sizeof(struct model *));
    b->pools = arena_take(&b->arena, (uint64_t)b->n_machines, sizeof(struct pool *));
    b->sessions = arena_take(&b->arena, n_rows, sizeof(struct session *));
    for (uint64_t i = 0; b->rows && i < n_rows; i++)
        b->rows[i].times_ns = times + i * n_times;
}

enum status bench_plan(const struct bench_spec *spec, struct bench *b, struct err *e)
{
    struct cost_shape shape;
    *b = (struct bench){.spec = spec};
    TRY(check_settings(spec, &shape, e));
    double n_rows = 1;
    for (int a = 0; a < BENCH_AXES; a++)
        n_rows *= spec->axes[a].n;
    if (n_rows * spec->n * spec->repeats > MAX_SAMPLES)
        return err_set(e, STATUS_USAGE, "%.0f rows of %d x %d samples: expected at most %d in all",
                       n_rows, spec->repeats, spec->n, MAX_SAMPLES);
    b->n_rows = b->n_sessions = (int)n_rows;
    b->n_machines = spec->axes[BENCH_THREADS].n;
    b->n_models = spec->axes[BENCH_TYPES].n * spec->axes[BENCH_VARIANTS].n;
    b->n_lines = b->n_rows / spec->axes[bench_x_axis(spec)].n;
    take_rows(b);
    TRY(arena_allocate(&b->arena, "the samples", e));
    take_rows(b);
    for (int i = 0; i < b->n_rows; i++)
        plan_row(spec, shape, i, &b->rows[i]);
    return STATUS_OK;
}

uint64_t bench_memory(const struct bench *b)
{
    const struct config *c = &b->spec->config;
    uint64_t bytes = (uint64_t)largest_batch(b->spec) * (uint64_t)c->n_vocab * sizeof(float);
    int n_models = 0; /* counted: they first appear in their order */
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        const struct config variant = row_config(b->spec, row);
        const struct kv_shape cache = {
            .n_sequences = row->batch, .cap = row_context(b->spec, row), .storage = row->kv_type};
        size_t cache_bytes;
        if (row->model == n_models) {
            n_models++;
            bytes = u64_sum(bytes, row->cost.weight_bytes);
            bytes = u64_sum(bytes, matrix_bytes(c->n_vocab, c->d_model, row->type));
        }
        bytes = u64_sum(bytes,
                        kv_cache_bytes(&variant, &cache, &cache_bytes) ? cache_bytes : UINT64_MAX);
    }
    return bytes;
}

/* --- what rows are measured with ------------------------------------------------------------- */

static void take_buffers(struct bench *b)
{
    const struct bench_spec *spec = b->spec;
    const uint64_t batch = (uint64_t)largest_batch(spec);
    struct arena *a = &b->buffers;
    b->step = arena_take(a, batch, sizeof *b->step);
    b->logits = arena_take(a, batch * (uint64_t)spec->config.n_vocab, sizeof *b->logits);
    b->sorted = arena_take(a, (uint64_t)spec->n * (uint64_t)spec->repeats, sizeof *b->sorted);
    b->tokens = arena_take(a, (uint64_t)spec->prompt, sizeof *b->tokens);
}

static enum status need_buffers(struct bench *b, struct err *e)
{
    if (b->logits)
        return STATUS_OK;
    take_buffers(b);
    TRY(arena_allocate(&b->buffers, "the benchmark", e));
    take_buffers(b);
    return STATUS_OK;
}

/* Sessions, threads and models, until they are needed again. */
static void free_sessions(struct bench *b)
{
    for (int i = 0; i < b->n_sessions; i++) {
        session_free(b->sessions[i]);
        b->sessions[i] = NULL;
    }
    for (int i = 0; i < b->n_machines; i++) {
        pool_free(b->pools[i]);
        b->pools[i] = NULL;
    }
    for (int i = 0; i < b->n_models; i++) {
        model_free(b->models[i]);
        b->models[i] = NULL;
    }
}

void bench_free(struct bench *b)
{
    if (b->rows)
        free_sessions(b);
    arena_free(&b->buffers);
    arena_free(&b->arena);
    *b = (struct bench){0};
}

/* The row's model, unless it is there. A latent variant is not made of the checkpoint: times do not
 * depend on weights. */
static enum status need_model(const struct bench *b, const struct bench_row *row, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    const struct config c = row_config(spec, row);
    const struct model_options o = {.n_kv_heads = row->n_kv_heads,
                                    .convert = item_of(spec, row, BENCH_TYPES) != BENCH_AS_FILE,
                                    .storage = row->type};
    struct model **model = &b->models[row->model];
    if (*model)
        return STATUS_OK;
    if (spec->gguf && item_of(spec, row, BENCH_VARIANTS) > 0)
        return model_create(spec->gguf, &o, spec->source, model, e);
    return model_create_random(&c, row->type, spec->seed, model, e);
}

/* The threads, likewise. With fewer than it says a row would be measured as what it is not. */
static enum status need_pool(const struct bench *b, int at, struct err *e)
{
    struct pool **pool = &b->pools[at];
    const int threads = b->spec->axes[BENCH_THREADS].items[at];
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

/* The session of row i. */
static enum status open_session(const struct bench *b, int i, struct err *e)
{
    const struct bench_row *row = &b->rows[i];
    const int threads = row->at[BENCH_THREADS];
    const struct session_params p = {.n_sequences = row->batch,
                                     .n_ctx = row_context(b->spec, row),
                                     .kv_storage = row->kv_type,
                                     .kernels = b->spec->kernels};
    TRY(need_model(b, row, e));
    TRY(need_pool(b, threads, e));
    return session_create(b->models[row->model], &p, b->pools[threads], &b->sessions[i], e);
}

static bool is_stopped(const struct bench_spec *spec)
{
    return spec->stop && spec->stop(spec->arg);
}

/* Every sequence has its own seed, sequence 0 the run's whatever the batch. */
static uint64_t sequence_seed(const struct bench_spec *spec, int sequence)
{
    return spec->seed + (uint64_t)sequence;
}

/* A cache of the row's depth for each sequence, which takes seconds where they are many. */
static enum status fill_caches(const struct bench *b, int i)
{
    for (int q = 0; q < b->rows[i].batch; q++) {
        if (q > 0 && is_stopped(b->spec))
            return STATUS_INTERRUPTED;
        session_fill(b->sessions[i], q, b->rows[i].depth, sequence_seed(b->spec, q));
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

/* One token, the nth, of each sequence at the row's depth, and back. */
static enum status step_row(const struct bench *b, int i, int nth, uint64_t *took, struct err *e)
{
    const struct bench_row *row = &b->rows[i];
    struct session *s = b->sessions[i];
    for (int q = 0; q < row->batch; q++)
        b->step[q] = (struct batch_row){.token = bench_token(b->spec, q, nth),
                                        .sequence = q,
                                        .position = row->depth,
                                        .wants_logits = true};
    const uint64_t before = clock_ns();
    const enum status status = session_step(s, b->step, row->batch, b->logits, e);
    *took = clock_ns() - before;
    for (int q = 0; q < row->batch; q++)
        session_rewind(s, q, row->depth);
    return status;
}

enum status bench_load_row(struct bench *b, int i, struct err *e)
{
    uint64_t took;
    TRY(need_buffers(b, e));
    const uint64_t start = clock_ns();
    TRY(need_model(b, &b->rows[i], e));
    b->rows[i].load_ms = (double)(clock_ns() - start) / 1e6;
    TRY(open_session(b, i, e));
    TRY(fill_caches(b, i));
    for (int nth = 0; nth < 2; nth++)
        TRY(step_row(b, i, nth, &took, e));
    return STATUS_OK;
}

enum status bench_prefers_one_thread(struct bench *b, bool *out, struct err *e)
{
    TRY(need_buffers(b, e));
    const enum status s = open_session(b, 0, e);
    *out = s == STATUS_OK && session_prefers_one_thread(b->sessions[0], b->rows[0].batch);
    free_sessions(b);
    return s;
}

/* --- measuring ------------------------------------------------------------------------------- */

/* The limits are measured no longer than the samples take on a slow machine, so that a quick look
 * stays one; but for a moment at least for each working set. */
#define SLOW_BYTES_PER_S 1e9
#define LEAST_SECONDS    0.005

/* Of the machine, with every pool, for its rows' working sets. */
static enum status measure_limits(const struct bench *b, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    for (int p = 0; p < b->n_machines; p++) {
        struct machine *m = &b->machines[p];
        double slow = 0;
        for (int i = 0; i < b->n_rows; i++) {
            if (b->rows[i].at[BENCH_THREADS] != p)
                continue;
            machine_want(m, row_bytes(&b->rows[i]));
            slow += (double)spec->n * spec->repeats * (double)row_bytes(&b->rows[i]);
        }
        const double seconds =
            fmin(spec->roofline_seconds / b->n_machines,
                 fmax(LEAST_SECONDS * machine_n_wanted(m), slow / SLOW_BYTES_PER_S));
        TRY(need_pool(b, p, e));
        TRY(machine_measure(m, spec->kernels, b->pools[p], seconds, e));
    }
    return STATUS_OK;
}

/* Its session, the prefill measurement, its caches. */
static enum status set_up_row(const struct bench *b, int i, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    struct bench_row *row = &b->rows[i];
    int32_t *tokens = b->tokens;
    double best = (double)INFINITY;
    if (is_stopped(spec))
        return STATUS_INTERRUPTED;
    TRY(open_session(b, i, e));
    const struct cost_shape shape = cost_shape_of_model(b->models[row->model]);
    row->cost = cost_of(&shape, row->kv_type, row->depth);
    for (int t = 0; t < spec->prompt; t++)
        tokens[t] = bench_token(spec, 0, t);
    for (int pass = 0; pass < 2 && spec->prompt > 0; pass++) { /* the first one also warms up */
        const uint64_t before = clock_ns();
        TRY(session_feed(b->sessions[i], 0, tokens, spec->prompt, NULL, e));
        best = fmin(best, (double)(clock_ns() - before));
        session_rewind(b->sessions[i], 0, 0);
        row->prefill_tokens_per_s = spec->prompt / best * 1e9;
    }
    return fill_caches(b, i);
}

/* Processor time of all threads. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t hash_logits(const float *logits, int n)
{
    const unsigned char *bytes = (const unsigned char *)logits;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < (size_t)n * sizeof *logits; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static enum status measure_repeat(const struct bench *b, int i, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    struct bench_row *row = &b->rows[i];
    uint64_t start = 0, worked = 0, took;
    for (int nth = -spec->warmup; nth < spec->n; nth++) {
        if (nth == 0) {
            start = clock_ns();
            worked = cpu_ns();
        }
        if (is_stopped(spec))
            return STATUS_INTERRUPTED;
        TRY(step_row(b, i, nth < 0 ? nth + spec->warmup : nth, &took, e));
        if (nth >= 0)
            row->times_ns[row->samples++] = took;
    }
    const double share = (double)(cpu_ns() - worked) / (double)(clock_ns() - start) / row->threads;
    row->repeats++;
    row->cpu_share += (fmin(share, 1) - row->cpu_share) / row->repeats; /* the mean so far */
    row->logits_hash = hash_logits(b->logits, spec->config.n_vocab);
    return STATUS_OK;
}

enum status bench_run(struct bench *b, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    const int n_rows = b->n_rows, turns = (spec->repeats + 1) * n_rows;
    enum status s = STATUS_OK;
    TRY(need_buffers(b, e));
    TRY(measure_limits(b, e));
    /* Setting up is a turn of every row, and then each repeat. */
    for (int turn = 0; turn < turns && s == STATUS_OK; turn++) {
        if (spec->progress)
            spec->progress(spec->arg, (uint64_t)turn, (uint64_t)turns);
        s = turn < n_rows ? set_up_row(b, turn, e) : measure_repeat(b, turn % n_rows, e);
    }
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        return s;
    b->n_rows = 0;
    for (int i = 0; i < n_rows; i++)
        if (b->rows[i].samples > 0)
            b->rows[b->n_rows++] = b->rows[i];
    for (int i = 0; i < b->n_rows; i++)
        bench_summarise(&b->rows[i], spec->n, b->sorted);
    bench_predict(b);
    bench_compare(b, spec->config.n_heads);
    return s;
}

/* --- what was measured ----------------------------------------------------------------------- */

static void sort_copy(uint64_t *out, const uint64_t *times, int n)
{
    memcpy(out, times, (size_t)n * sizeof *out);
    stats_sort(out, (size_t)n);
}

void bench_summarise(struct bench_row *row, int n, uint64_t *sorted)
{
    const int samples = row->samples;
    double least = (double)INFINITY, largest = 0, sum = 0;
    for (int r = 0; r < row->repeats; r++) {
        sort_copy(sorted, row->times_ns + (size_t)r * (size_t)n, n);
        const double median = (double)stats_percentile(sorted, (size_t)n, 0.5);
        least = fmin(least, median);
        largest = fmax(largest, median);
    }
    row->spread = row->repeats > 1 ? (largest - least) / least : 0;
    sort_copy(sorted, row->times_ns, samples);
    for (int i = 0; i < samples; i++)
        sum += (double)sorted[i];
    const struct {
        double *us, share;
    } percentiles[] = {
        {&row->p10_us, 0.1}, {&row->p50_us, 0.5}, {&row->p90_us, 0.9}, {&row->p99_us, 0.99}};
    for (size_t i = 0; i < sizeof percentiles / sizeof *percentiles; i++)
        *percentiles[i].us =
            (double)stats_percentile(sorted, (size_t)samples, percentiles[i].share) / 1e3;
    row->max_us = (double)sorted[samples - 1] / 1e3;
    row->mean_us = sum / samples / 1e3;
    row->us_per_token = row->p50_us / row->batch;
    row->tokens_per_s = row->batch * 1e6 / row->mean_us;
    row->gb_per_s = (double)row_bytes(row) / row->p50_us / 1e3;
}

void bench_predict(struct bench *b)
{
    /* What a row reached is no more than the limits: a disturbance while they were measured does no
     * harm. */
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        struct machine *m = &b->machines[row->at[BENCH_THREADS]];
        const struct cost_flops *f = &row->cost.flops;
        const double steps_per_s = 1e6 / row->p50_us, rows_per_s = row->batch * steps_per_s;
        machine_raise(m, row_bytes(row),
                      &(struct roofline){(double)row_bytes(row) * steps_per_s,
                                         (double)(f->floats + f->attention) * rows_per_s,
                                         (double)f->quants * rows_per_s});
        /* Products and attention may still take longer, one after the other. */
        const struct roofline l = machine_limits(m, row_bytes(row));
        const double over = cost_predict(&row->cost, row->batch, &l).us / row->p50_us;
        if (over > 1)
            machine_raise(m, row_bytes(row),
                          &(struct roofline){l.bytes_per_s * over, l.fma_flops_per_s * over,
                                             l.dot_flops_per_s * over});
    }
    for (int i = 0; i < b->n_machines; i++)
        machine_settle(&b->machines[i]);
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        row->limits = machine_limits(&b->machines[row->at[BENCH_THREADS]], row_bytes(row));
        row->predicted = cost_predict(&row->cost, row->batch, &row->limits);
        row->share_of_limit = row->predicted.us / row->p50_us;
    }
}

void bench_compare(struct bench *b, int n_heads)
{
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        row->speedup = row->predicted_speedup = (double)NAN;
        for (int k = 0; k < b->n_rows; k++) {
            const struct bench_row *mha = &b->rows[k];
            bool same = mha->n_kv_heads == n_heads; /* at the same setting */
            for (int a = 0; a < BENCH_AXES; a++)
                same &= a == BENCH_VARIANTS || mha->at[a] == row->at[a];
            if (!same)
                continue;
            /* Of one sequence bytes are the limit, and need no measurement. */
            row->predicted_speedup = row->batch == 1
                                         ? (double)row_bytes(mha) / (double)row_bytes(row)
                                         : mha->predicted.us / row->predicted.us;
            row->speedup = mha->p50_us / row->p50_us;
            break;
        }
    }
}
