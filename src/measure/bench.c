#include "measure/bench.h"

#include <math.h>

#include "base/figures.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/times.h"

/* The most samples of one run: 800 MB of times. */
#define MAX_SAMPLES 100000000

/* --- the rows -------------------------------------------------------------------------------- */

static int item_of(const struct bench_spec *spec, const struct bench_row *row, enum bench_axis a)
{
    return spec->axes[a].items[row->at[a]];
}

/* The bytes that the row's step reads. */
static uint64_t row_bytes(const struct bench_row *row)
{
    return cost_step_bytes(&row->step.cost, row->step.batch);
}

static struct inspect_step row_step(const struct bench *b, const struct bench_row *row, int depth)
{
    const struct bench_spec *spec = b->spec;
    return inspect_step(&b->models[row->model].variant, item_of(spec, row, BENCH_KV_TYPES), depth,
                        item_of(spec, row, BENCH_BATCHES));
}

/* Positions that a sequence of the row needs: the timed token's, and the prompt's. */
static int row_context(const struct bench_spec *spec, const struct bench_row *row)
{
    const int own = row->step.depth + 1;
    return MAX(own, spec->prompt);
}

/* *shape is the checkpoint's, or the one of random weights. STATUS_BAD_FILE for a type that does
 * not run. */
static enum status check_settings(const struct bench_spec *spec, struct cost_shape *shape,
                                  struct err *e)
{
    const struct config *c = &spec->config;
    const struct int_list *variants = &spec->axes[BENCH_VARIANTS],
                          *depths = &spec->axes[BENCH_DEPTHS];
    for (int i = 0; i < variants->n; i++) {
        const int g = variants->items[i], most = c->n_kv_heads;
        if (g < 1 || g > most || most % g != 0)
            return err_usage(e, "%d K/V heads: expected a divisor of %d", g, most);
    }
    for (int i = 0; i < depths->n; i++) {
        const int depth = depths->items[i];
        if (depth < 0 || depth >= c->n_ctx)
            return err_usage(e, "depth %d: expected 0 to %d, one below the context of %d tokens",
                             depth, c->n_ctx - 1, c->n_ctx);
    }
    if (spec->prompt < 0 || spec->prompt > c->n_ctx)
        return err_usage(e, "a prompt of %d tokens: expected 0 to the context of %d", spec->prompt,
                         c->n_ctx);
    *shape = (struct cost_shape){.config = c};
    if (spec->gguf && !cost_shape_of_file(spec->gguf, c, shape))
        return err_bad_file(e, "the output matrix: expected type F32, F16, BF16, Q8_0 or Q4_0");
    return spec->gguf ? model_check(spec->gguf, e) : STATUS_OK;
}

/* Plans row i of all. The variant of its model is known. */
static void plan_row(struct bench *b, int i)
{
    const struct bench_spec *spec = b->spec;
    const struct int_list *axes = spec->axes;
    struct bench_row *row = &b->rows[i];
    for (int a = 0; a < BENCH_AXES; a++) {
        row->at[a] = i % axes[a].n;
        i /= axes[a].n;
    }
    for (int a = BENCH_AXES - 1; a >= 0; a--)
        if (a != (int)bench_x_axis(spec)) /* else it is what a line has in common */
            row->line = row->line * axes[a].n + row->at[a];
    row->model = row->at[BENCH_TYPES] * axes[BENCH_VARIANTS].n + row->at[BENCH_VARIANTS];
    row->type = b->models[row->model].variant.shape.storage;
    row->threads = item_of(spec, row, BENCH_THREADS);
    row->step = row_step(b, row, item_of(spec, row, BENCH_DEPTHS));
    row->prefill_tokens_per_s = NO_FIGURE;
}

/* What the row needs in the last group beside what is planned there already, and its base (NULL: it
 * has none to be measured beside), if that is not there. */
static uint64_t bytes_in_group(const struct bench *b, const struct bench_row *row,
                               const struct bench_row *base)
{
    const struct bench_model *m = &b->models[row->model];
    const uint64_t own = u64_sum(row_step(b, row, row_context(b->spec, row) - 1).allocated_bytes,
                                 m->group == b->n_groups ? 0 : m->variant.weights.memory_bytes);
    return base && base->group != b->n_groups ? u64_sum(own, bytes_in_group(b, base, NULL)) : own;
}

/*
 * Puts the rows into groups, in their order but of each setting the base first. One that has no
 * room in the last group begins another, in which its base is measured again, so that it has that
 * beside it.
 */
static void plan_groups(struct bench *b, uint64_t logits_bytes)
{
    const struct int_list *variants = &b->spec->axes[BENCH_VARIANTS];
    const uint64_t most = b->spec->most_bytes ? b->spec->most_bytes : UINT64_MAX;
    const int n_kv_heads = b->spec->config.n_kv_heads;
    const struct bench_row *base = NULL; /* of the setting, as last placed */
    uint64_t bytes = logits_bytes;
    int at_base = 0; /* among the variants, if it is one */
    for (int v = 0; v < variants->n; v++)
        at_base = variants->items[v] == n_kv_heads ? v : at_base;
    b->n_groups = 1;
    for (int i = 0; i < b->n_rows; i++) {
        const int nth = i % variants->n, v = nth == 0 ? at_base : nth <= at_base ? nth - 1 : nth;
        struct bench_row *row = &b->rows[i - nth + v];
        base = nth == 0 ? NULL : base;
        if (bytes > logits_bytes && u64_sum(bytes, bytes_in_group(b, row, base)) > most) {
            b->n_groups++;
            bytes = logits_bytes;
        }
        bytes = u64_sum(bytes, bytes_in_group(b, row, base));
        b->bytes = MAX(bytes, b->bytes);
        if (base && base->group != b->n_groups) {
            struct bench_row *again = &b->rows[b->n_rows + b->n_again++];
            *again = *base;
            again->group = b->models[again->model].group = b->n_groups;
            base = again;
        }
        row->group = b->models[row->model].group = b->n_groups;
        base = variants->items[v] == n_kv_heads ? row : base;
    }
}

enum status bench_plan(const struct bench_spec *spec, struct bench *b, struct err *e)
{
    const struct int_list *axes = spec->axes, *variants = &axes[BENCH_VARIANTS],
                          *batches = &axes[BENCH_BATCHES], *types = &axes[BENCH_TYPES];
    struct cost_shape shape;
    double n_rows = 1;
    double *medians;
    uint64_t *times;
    *b = (struct bench){.spec = spec};
    TRY(check_settings(spec, &shape, e));
    for (int a = 0; a < BENCH_AXES; a++)
        n_rows *= axes[a].n;
    if (n_rows * spec->n * spec->repeats > MAX_SAMPLES)
        return err_usage(e, "%.0f rows of %d x %d samples: expected at most %d in all", n_rows,
                         spec->repeats, spec->n, MAX_SAMPLES);
    b->n_rows = n_rows;
    b->n_machines = axes[BENCH_THREADS].n;
    b->n_models = types->n * variants->n;
    b->n_lines = b->n_rows / axes[bench_x_axis(spec)].n;
    for (int i = 0; i < batches->n; i++) {
        b->most_sequences = MAX(batches->items[i], b->most_sequences);
    }
    const uint64_t n_times = spec->n * (uint64_t)spec->repeats;
    const uint64_t n_all = (uint64_t)n_rows * (spec->most_bytes ? 2 : 1); /* and the bases again */
    for (int pass = 0; pass < 2; pass++) {                                /* counts, then takes */
        if (pass > 0)
            TRY(arena_allocate(&b->arena, "the samples", e));
        b->rows = arena_take(&b->arena, n_all, sizeof *b->rows);
        times = arena_take(&b->arena, n_all * n_times, sizeof *times);
        medians = arena_take(&b->arena, n_all * spec->repeats, sizeof *medians);
        b->models = arena_take(&b->arena, b->n_models, sizeof *b->models);
        b->machines = arena_take(&b->arena, b->n_machines, sizeof *b->machines);
        b->pools = arena_take(&b->arena, b->n_machines, sizeof(struct pool *));
    }
    for (int m = 0; m < b->n_models; m++) {
        const int type = types->items[m / variants->n];
        struct inspect_variant *v = &b->models[m].variant;
        struct cost_shape of_type = shape;
        if (type != BENCH_AS_FILE)
            of_type.storage = type;
        inspect_variant(&of_type, variants->items[m % variants->n], v);
    }
    for (int i = 0; i < b->n_rows; i++)
        plan_row(b, i);
    plan_groups(b, b->most_sequences * (uint64_t)spec->config.n_vocab * sizeof(float));
    for (uint64_t i = 0; i < n_all; i++) {
        b->rows[i].times_ns = times + i * n_times;
        b->rows[i].medians_us = medians + i * spec->repeats;
    }
    return STATUS_OK;
}

/* --- what rows are measured with ------------------------------------------------------------- */

static enum status need_buffers(struct bench *b, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    const uint64_t n = b->most_sequences;
    struct arena *a = &b->buffers;
    if (b->logits)
        return STATUS_OK;
    for (int pass = 0; pass < 2; pass++) { /* counts, then takes */
        if (pass > 0)
            TRY(arena_allocate(a, "the benchmark", e));
        b->step = arena_take(a, n, sizeof *b->step);
        b->sorted = arena_take(a, spec->n * (uint64_t)spec->repeats, sizeof *b->sorted);
        b->tokens = arena_take(a, spec->prompt, sizeof *b->tokens);
        b->logits = arena_take(a, n * spec->config.n_vocab, sizeof *b->logits);
    }
    return STATUS_OK;
}

/* Sessions, threads and models, until they are needed again. */
static void release_case(struct bench *b)
{
    for (int i = 0; i < b->n_rows + b->n_again; i++) {
        struct bench_row *row = &b->rows[i];
        session_free(row->session);
        row->session = NULL;
    }
    for (int i = 0; i < b->n_machines; i++) {
        pool_free(b->pools[i]);
        b->pools[i] = NULL;
    }
    for (int i = 0; i < b->n_models; i++) {
        struct bench_model *m = &b->models[i];
        model_free(m->model);
        m->model = NULL;
    }
}

void bench_free(struct bench *b)
{
    if (b->rows)
        release_case(b);
    arena_free(&b->buffers);
    arena_free(&b->arena);
    *b = (struct bench){0};
}

/* Every sequence has its own seed, sequence 0 the first whatever the batch. */
#define SEED 1u

/* The ith token that a sequence is fed: any will do, but not always the same embedding row. */
static int32_t bench_token(const struct bench_spec *spec, int sequence, int i)
{
    struct rng r;
    rng_seed(&r, SEED + (uint64_t)sequence, i);
    return rng_u32(&r) % spec->config.n_vocab;
}

/* With fewer threads than asked for a row would be measured as what it is not. */
static enum status expect_threads(const struct bench *b, int at, struct err *e)
{
    const int found = pool_n_threads(b->pools[at]),
              threads = b->spec->axes[BENCH_THREADS].items[at];
    if (found < threads)
        return err_failed(e,
                          "only %d of %d threads could be started: a row of %d would be measured "
                          "with fewer; a smaller -t needs fewer",
                          found, threads, threads);
    return STATUS_OK;
}

/* The threads, unless they are there. */
static enum status need_pool(const struct bench *b, int at, struct err *e)
{
    struct pool **pool = &b->pools[at];
    const int threads = b->spec->axes[BENCH_THREADS].items[at];
    if (*pool)
        return STATUS_OK;
    TRY(pool_create(threads, pool, e));
    return expect_threads(b, at, e);
}

/* New threads, if there are any. */
static enum status restart_pool(const struct bench *b, int at, struct err *e)
{
    if (pool_restart(b->pools[at]))
        return STATUS_OK;
    return expect_threads(b, at, e);
}

/* The row's session, and its model, unless that is there. */
static enum status open_session(const struct bench *b, struct bench_row *row, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    struct bench_model *m = &b->models[row->model];
    const int at = row->at[BENCH_THREADS];
    const struct model_options o = {.n_kv_heads = item_of(spec, row, BENCH_VARIANTS),
                                    .convert = item_of(spec, row, BENCH_TYPES) != BENCH_AS_FILE,
                                    .storage = row->type};
    const struct session_params p = {.n_sequences = row->step.batch,
                                     .n_ctx = row_context(spec, row),
                                     .kv_storage = item_of(spec, row, BENCH_KV_TYPES),
                                     .kernels = spec->kernels};
    const uint64_t start = clock_ns();
    if (!m->model) {
        TRY(spec->gguf ? model_create(spec->gguf, &o, spec->source, &m->model, e)
                       : model_create_random(&m->variant.config, row->type, SEED, &m->model, e));
        m->variant.shape = cost_shape_of_model(m->model); /* each matrix's own type */
        m->load_ms = (clock_ns() - start) / 1e6;
    }
    TRY(need_pool(b, at, e));
    return session_create(m->model, &p, b->pools[at], &row->session, e);
}

/* Its session, the prefill measurement of `prompt` tokens, and a cache of its depth for each
 * sequence. */
static enum status set_up_row(const struct bench *b, struct bench_row *row, int prompt,
                              struct err *e)
{
    double best = HUGE_VAL;
    TRY(open_session(b, row, e));
    row->load_ms = b->models[row->model].load_ms;
    row->step = row_step(b, row, row->step.depth);
    if (prompt > 0)
        for (int pass = 0; pass < 2; pass++) { /* the first one also warms up */
            const uint64_t before = clock_ns();
            TRY(session_feed(row->session, 0, b->tokens, prompt, NULL, e));
            best = fmin(best, clock_ns() - before);
            session_rewind(row->session, 0, 0);
            row->prefill_tokens_per_s = prompt / best * 1e9;
        }
    for (int q = 0; q < row->step.batch; q++) {
        if (callbacks_stop(&b->spec->callbacks))
            return STATUS_INTERRUPTED;
        session_fill(row->session, q, row->step.depth, SEED + q);
    }
    return STATUS_OK;
}

/* One token, the nth, of each sequence at the row's depth, and back. */
static enum status step_row(const struct bench *b, const struct bench_row *row, int nth,
                            uint64_t *took, struct err *e)
{
    const int depth = row->step.depth, batch = row->step.batch;
    for (int q = 0; q < batch; q++)
        b->step[q] = (struct batch_row){.token = bench_token(b->spec, q, nth),
                                        .sequence = q,
                                        .position = depth,
                                        .wants_logits = true};
    const uint64_t before = clock_ns();
    const enum status s = session_step(row->session, b->step, batch, b->logits, e);
    *took = clock_ns() - before;
    for (int q = 0; q < batch; q++)
        session_rewind(row->session, q, depth);
    return s;
}

enum status bench_load_row(struct bench *b, int i, struct err *e)
{
    uint64_t took;
    TRY(need_buffers(b, e));
    TRY(set_up_row(b, &b->rows[i], 0, e));
    for (int nth = 0; nth < 2; nth++)
        TRY(step_row(b, &b->rows[i], nth, &took, e));
    return STATUS_OK;
}

/* An odd number. */
#define TRIALS 5

enum status bench_prefers_one_thread(struct bench *b, bool *out, struct err *e)
{
    const struct bench_row *row = b->rows;
    int one = 0, all = 0; /* trials that were in favour of one thread, and of all */
    enum status s = open_session(b, b->rows, e);
    while (s == STATUS_OK && one <= TRIALS / 2 && all <= TRIALS / 2) {
        const bool prefers_one = session_prefers_one_thread(row->session, row->step.batch);
        one += prefers_one;
        all += !prefers_one;
        s = restart_pool(b, row->at[BENCH_THREADS], e);
    }
    *out = one > all;
    release_case(b);
    return s;
}

/* --- measuring ------------------------------------------------------------------------------- */

/* The limits are measured no longer than the samples take on a slow machine, but for a moment at
 * least for each working set. */
#define SLOW_BYTES_PER_S 1e9
#define LEAST_SECONDS    0.005

/* Measures the machine's limits with every pool, for its rows' working sets. */
static enum status measure_limits(const struct bench *b, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    for (int p = 0; p < b->n_machines; p++) {
        struct machine *m = &b->machines[p];
        double slow = 0;
        for (int i = 0; i < b->n_rows; i++) {
            const struct bench_row *row = &b->rows[i];
            if (row->at[BENCH_THREADS] != p)
                continue;
            machine_want(m, row_bytes(row));
            slow += (double)spec->n * spec->repeats * row_bytes(row);
        }
        const double seconds =
            fmin(spec->roofline_seconds / b->n_machines,
                 fmax(LEAST_SECONDS * machine_n_wanted(m), slow / SLOW_BYTES_PER_S));
        TRY(need_pool(b, p, e));
        TRY(machine_measure(m, spec->kernels, b->pools[p], seconds, e));
    }
    return STATUS_OK;
}

/* Processor time of all threads. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + now.tv_nsec;
}

static enum status measure_repeat(const struct bench *b, struct bench_row *row, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    uint64_t start = 0, worked = 0, took;
    for (int nth = -spec->warmup; nth < spec->n; nth++) {
        if (nth == 0) {
            start = clock_ns();
            worked = cpu_ns();
        }
        if (callbacks_stop(&spec->callbacks))
            return STATUS_INTERRUPTED;
        TRY(step_row(b, row, nth < 0 ? nth + spec->warmup : nth, &took, e));
        if (nth >= 0)
            row->times_ns[row->samples++] = took;
    }
    const double share = (cpu_ns() - worked) / (double)(clock_ns() - start) / row->threads;
    row->repeats++;
    row->cpu_share += (fmin(share, 1) - row->cpu_share) / row->repeats; /* the mean so far */
    row->logits_hash = hash_bytes(HASH_START, b->logits, spec->config.n_vocab * sizeof *b->logits);
    return STATUS_OK;
}

enum status bench_run(struct bench *b, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    const int n_rows = b->n_rows, n_all = n_rows + b->n_again;
    int done = 0, n = 0;
    enum status s = STATUS_OK;
    TRY(need_buffers(b, e));
    TRY(measure_limits(b, e));
    for (int t = 0; t < spec->prompt; t++)
        b->tokens[t] = bench_token(spec, 0, t);
    for (int group = 1; group <= b->n_groups && s == STATUS_OK; group++) {
        for (int round = 0; round <= spec->repeats && s == STATUS_OK; round++) {
            const bool sets_up = round == 0;
            for (int p = 0; p < b->n_machines && !sets_up && s == STATUS_OK; p++)
                s = restart_pool(b, p, e);
            for (int i = 0; i < n_all && s == STATUS_OK; i++) {
                struct bench_row *row = &b->rows[i];
                if (row->group != group)
                    continue;
                callbacks_progress(&spec->callbacks, done++, (spec->repeats + 1) * n_all);
                s = sets_up ? set_up_row(b, row, spec->prompt, e) : measure_repeat(b, row, e);
            }
        }
        if (s == STATUS_OK || s == STATUS_INTERRUPTED)
            release_case(b);
    }
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        return s;
    b->n_rows = 0;
    for (int i = 0; i < n_all; i++)
        if (b->rows[i].samples > 0) {
            b->n_rows += i < n_rows;
            b->rows[n++] = b->rows[i];
        }
    b->n_again = n - b->n_rows;
    for (int i = 0; i < n; i++) {
        struct bench_row *row = &b->rows[i];
        bench_summarise(row, spec->n, b->sorted);
    }
    bench_predict(b);
    bench_compare(b, spec->config.n_kv_heads);
    bench_judge(b);
    return s;
}

/* --- what was measured ----------------------------------------------------------------------- */

static void sort_copy(uint64_t *out, const uint64_t *times, int n)
{
    memcpy(out, times, n * sizeof *out);
    stats_sort(out, n);
}

void bench_summarise(struct bench_row *row, int n, uint64_t *sorted)
{
    const int samples = row->samples;
    double sum = 0;
    row->p50_low_us = row->p50_high_us = NO_FIGURE; /* which fmin and fmax leave out */
    for (int r = 0; r < row->repeats; r++) {
        sort_copy(sorted, row->times_ns + r * n, n);
        row->medians_us[r] = stats_percentile(sorted, n, 0.5) / 1e3;
        row->p50_low_us = fmin(row->p50_low_us, row->medians_us[r]);
        row->p50_high_us = fmax(row->p50_high_us, row->medians_us[r]);
    }
    row->spread = row->repeats > 1 ? (row->p50_high_us - row->p50_low_us) / row->p50_low_us : 0;
    sort_copy(sorted, row->times_ns, samples);
    for (int i = 0; i < samples; i++)
        sum += sorted[i];
    static const double shares[] = {0.1, 0.5, 0.9, 0.99, 1};
    double *const us[] = {&row->p10_us, &row->p50_us, &row->p90_us, &row->p99_us, &row->max_us};
    for (int i = 0; i < 5; i++)
        *us[i] = (double)stats_percentile(sorted, (size_t)samples, shares[i]) / 1e3;
    row->mean_us = sum / samples / 1e3;
    row->us_per_token = row->p50_us / row->step.batch;
    row->tokens_per_s = row->step.batch * 1e6 / row->mean_us;
    row->gb_per_s = row_bytes(row) / row->p50_us / 1e3;
}

void bench_predict(struct bench *b)
{
    /* What a row reached is no more than the limits. */
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        struct machine *m = &b->machines[row->at[BENCH_THREADS]];
        const uint64_t bytes = row_bytes(row);
        const struct cost_flops *f = &row->step.cost.flops;
        const double steps_per_s = 1e6 / row->p50_us, rows_per_s = row->step.batch * steps_per_s;
        machine_raise(m, bytes,
                      &(struct roofline){bytes * steps_per_s,
                                         (f->floats + f->attention + f->weights) * rows_per_s,
                                         f->quants * rows_per_s});
        /* Products and attention may still take longer, one after the other. */
        const struct roofline l = machine_limits(m, bytes);
        const double over = cost_predict(&row->step.cost, row->step.batch, &l).us / row->p50_us;
        if (over > 1)
            machine_raise(m, bytes,
                          &(struct roofline){l.bytes_per_s * over, l.fma_flops_per_s * over,
                                             l.dot_flops_per_s * over});
    }
    for (int i = 0; i < b->n_machines; i++) {
        struct machine *m = &b->machines[i];
        machine_settle(m);
    }
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        const struct roofline limits =
            machine_limits(&b->machines[row->at[BENCH_THREADS]], row_bytes(row));
        inspect_predict(&row->step, &limits);
        row->share_of_limit = row->step.predicted.us / row->p50_us;
    }
}

void bench_compare(struct bench *b, int n_kv_heads)
{
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        row->speedup = row->predicted_speedup = NO_FIGURE;
        row->speedup_low = row->speedup_high = NO_FIGURE;
        for (int k = 0; k < b->n_rows + b->n_again; k++) {
            const struct bench_row *base = &b->rows[k];
            bool same = base->step.n_kv_heads == n_kv_heads; /* at the same setting */
            for (int a = 0; a < BENCH_AXES; a++)
                same &= a == BENCH_VARIANTS || base->at[a] == row->at[a];
            if (!same)
                continue;
            /* Of one sequence bytes are the limit, and need no measurement. */
            if (base < b->rows + b->n_rows)
                row->predicted_speedup = row->step.batch == 1
                                             ? row_bytes(base) / (double)row_bytes(row)
                                             : base->step.predicted.us / row->step.predicted.us;
            if (base->group != row->group) /* it was not measured in the same repeats */
                continue;
            const int repeats = MIN(row->repeats, base->repeats);
            row->speedup = base->p50_us / row->p50_us;
            if (repeats > 1)
                row->speedup_low = row->speedup_high = row->speedup;
            if (repeats > 1)
                for (int r = 0; r < repeats; r++) {
                    const double of_repeat = base->medians_us[r] / row->medians_us[r];
                    row->speedup_low = fmin(row->speedup_low, of_repeat);
                    row->speedup_high = fmax(row->speedup_high, of_repeat);
                }
        }
    }
}

static bool same_place(const struct bench_row *a, const struct bench_row *b)
{
    return a->step.depth == b->step.depth && a->step.batch == b->step.batch;
}

/* Whether the slower row's time is beyond the faster one's in every repeat that both have. */
static bool told_apart(const struct bench_row *faster, const struct bench_row *slower)
{
    if (faster->group != slower->group)
        return slower->p50_low_us > faster->p50_high_us;
    for (int r = 0; r < MIN(faster->repeats, slower->repeats); r++)
        if (slower->medians_us[r] <= faster->medians_us[r])
            return false;
    return true;
}

void bench_judge(struct bench *b)
{
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        const struct bench_row *fastest = row;
        int rivals = 0; /* rows that are not told apart from the fastest one */
        for (int k = 0; k < b->n_rows; k++) {
            const struct bench_row *other = &b->rows[k];
            if (same_place(row, other) && other->p50_us < fastest->p50_us)
                fastest = other;
        }
        for (int k = 0; k < b->n_rows; k++) {
            const struct bench_row *other = &b->rows[k];
            rivals += other != fastest && same_place(row, other) && !told_apart(fastest, other);
        }
        if (row->repeats < 2 || fastest->repeats < 2)
            row->verdict = BENCH_UNJUDGED;
        else if (row == fastest)
            row->verdict = rivals > 0 ? BENCH_TOSS_UP : BENCH_FASTEST;
        else
            row->verdict = told_apart(fastest, row) ? BENCH_SLOWER : BENCH_TOSS_UP;
    }
}
