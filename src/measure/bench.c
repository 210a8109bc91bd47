#include "measure/bench.h"

#include <math.h>

#include "base/figures.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/rng.h"
#include "base/times.h"
#include "model/kv_cache.h"
#include "model/selection.h"

/* The most samples of one run: 800 MB of times. */
#define MAX_SAMPLES 100000000

const char *const bench_stage_names[BENCH_STAGES] = {"load", "prefill", "caches", "roofline",
                                                     "steps"};

/* --- the plan -------------------------------------------------------------------------------- */

static int item_of(const struct bench_spec *spec, const struct bench_row *row, enum bench_axis a)
{
    return spec->axes[a].items[row->at[a]];
}

int bench_line(const struct bench_spec *spec, const struct bench_row *row)
{
    int line = 0;
    for (int a = BENCH_AXES - 1; a >= 0; a--)
        if (a != (int)bench_x_axis(spec))
            line = line * spec->axes[a].n + row->at[a];
    return line;
}

/* Positions that a sequence of the row needs: the timed token's, and the prompt's. */
static int row_context(const struct bench_spec *spec, const struct bench_row *row)
{
    return MAX(row->plan.depth + 1, spec->prompt);
}

/* Whether a subject can be measured at all settings. */
static enum status check_subject(const struct bench_spec *spec, const struct config *c,
                                 struct err *e)
{
    const struct int_list *variants = &spec->axes[BENCH_VARIANTS],
                          *depths = &spec->axes[BENCH_DEPTHS];
    for (int i = 0; i < variants->n; i++) {
        const int *g = &variants->items[i];
        if (*g != BENCH_AS_IS)
            TRY(heads_check("--kv-heads", c, g, 1, e));
    }
    for (int i = 0; i < depths->n; i++) {
        const int depth = depths->items[i];
        if (depth < 0 || depth > c->n_ctx)
            return err_usage(e, "depth %d: expected 0 to the context of %d tokens", depth,
                             c->n_ctx);
    }
    if (spec->prompt < 0 || spec->prompt > c->n_ctx)
        return err_usage(e, "a prompt of %d tokens: expected 0 to the context of %d", spec->prompt,
                         c->n_ctx);
    return STATUS_OK;
}

/* Plans the model of a subject with so many K/V heads and a type. */
static enum status plan_model(const struct bench_subject *of, int n_kv_heads, int type,
                              struct bench_model *m, struct err *e)
{
    struct cost_shape shape = {.config = &of->config};
    if (of->gguf && !cost_shape_of_file(of->gguf, &of->config, &shape))
        return err_bad_file(e, "the output matrix: expected type F32, F16, BF16, Q8_0 or Q4_0");
    if (of->gguf)
        TRY(model_check(of->gguf, e));
    *m = (struct bench_model){.subject = of};
    shape.converts = type != BENCH_AS_IS;
    if (shape.converts)
        shape.storage = type;
    inspect_variant(&shape, n_kv_heads == BENCH_AS_IS ? of->config.n_kv_heads : n_kv_heads,
                    &m->variant);
    return STATUS_OK;
}

static struct cost_plan row_plan(const struct bench *b, const struct bench_row *row, int depth)
{
    const struct inspect_variant *v = &row->model->variant;
    return cost_plan(&v->shape, &v->weights, kv_type_at(item_of(b->spec, row, BENCH_KV_TYPES)),
                     depth, item_of(b->spec, row, BENCH_BATCHES));
}

/* Plans row i, and its model unless an earlier row has. */
static enum status plan_row(struct bench *b, int i, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    const struct int_list *axes = spec->axes;
    struct bench_row *row = &b->rows[i];
    int rest = i;
    for (int a = 0; a < BENCH_AXES; a++) {
        row->at[a] = rest % axes[a].n;
        rest /= axes[a].n;
    }
    const struct bench_subject *of = &spec->subjects[row->at[BENCH_SUBJECTS]];
    const int place = row->at[BENCH_TYPES] * axes[BENCH_SUBJECTS].n + row->at[BENCH_SUBJECTS];
    row->model = &b->models[place * axes[BENCH_VARIANTS].n + row->at[BENCH_VARIANTS]];
    if (!row->model->subject)
        TRY(err_in(e,
                   plan_model(of, item_of(spec, row, BENCH_VARIANTS),
                              item_of(spec, row, BENCH_TYPES), row->model, e),
                   "%s", of->name));
    row->type = row->model->variant.shape.storage;
    row->threads = item_of(spec, row, BENCH_THREADS);
    row->n = spec->n;
    /* Who asks for a depth of the whole context means the deepest that a step can have. */
    row->plan = row_plan(b, row, MIN(item_of(spec, row, BENCH_DEPTHS), of->config.n_ctx - 1));
    row->prefill_tokens_per_s = row->prefill_share = NO_FIGURE;
    return STATUS_OK;
}

static int largest_vocabulary(const struct bench_spec *spec)
{
    int most = 0;
    for (int i = 0; i < spec->axes[BENCH_SUBJECTS].n; i++)
        most = MAX(spec->subjects[i].config.n_vocab, most);
    return most;
}

/* The bytes of all models and caches together, and of the largest step's logits. */
static uint64_t count_bytes(const struct bench *b)
{
    uint64_t bytes = b->most_sequences * (uint64_t)largest_vocabulary(b->spec) * sizeof *b->logits;
    for (int i = 0; i < b->n_models; i++)
        bytes = u64_sum(bytes, b->models[i].variant.weights.memory_bytes);
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        bytes = u64_sum(bytes, row_plan(b, row, row_context(b->spec, row) - 1).allocated_bytes);
    }
    return bytes;
}

/* Takes, or on the first of two calls counts, what the rows are kept in. */
static void take_rows(struct bench *b)
{
    const struct bench_spec *spec = b->spec;
    const uint64_t n_rows = b->n_rows, n_times = spec->n * (uint64_t)spec->repeats;
    struct arena *a = &b->arena;
    ARENA_TAKE(b->rows, a, n_rows);
    ARENA_TAKE(b->models, a, b->n_models);
    ARENA_TAKE(b->machines, a, b->n_pools);
    ARENA_TAKE(b->pools, a, b->n_pools);
    uint64_t *times;
    double *medians;
    ARENA_TAKE(times, a, n_rows * n_times);
    ARENA_TAKE(medians, a, n_rows * spec->repeats);
    for (uint64_t i = 0; b->rows && i < n_rows; i++) {
        b->rows[i].times_ns = times + i * n_times;
        b->rows[i].medians_us = medians + i * spec->repeats;
    }
}

enum status bench_plan(const struct bench_spec *spec, struct bench *b, struct err *e)
{
    const struct int_list *axes = spec->axes;
    double n_rows = 1;
    *b = (struct bench){.spec = spec};
    for (int i = 0; i < axes[BENCH_SUBJECTS].n; i++)
        TRY(err_in(e, check_subject(spec, &spec->subjects[i].config, e), "%s",
                   spec->subjects[i].name));
    for (int a = 0; a < BENCH_AXES; a++)
        n_rows *= axes[a].n;
    if (n_rows * spec->repeats * spec->n > MAX_SAMPLES)
        return err_usage(e, "%.0f rows of %d x %d samples: expected at most %d in all", n_rows,
                         spec->repeats, spec->n, MAX_SAMPLES);
    b->n_rows = n_rows;
    b->n_pools = axes[BENCH_THREADS].n;
    b->n_models = axes[BENCH_TYPES].n * axes[BENCH_SUBJECTS].n * axes[BENCH_VARIANTS].n;
    for (int i = 0; i < axes[BENCH_BATCHES].n; i++)
        b->most_sequences = MAX(axes[BENCH_BATCHES].items[i], b->most_sequences);
    take_rows(b);
    TRY(arena_allocate(&b->arena, "the samples", e));
    take_rows(b);
    enum status s = STATUS_OK;
    for (int i = 0; i < b->n_rows && s == STATUS_OK; i++)
        s = plan_row(b, i, e);
    if (s == STATUS_OK)
        b->bytes = count_bytes(b);
    else
        bench_free(b);
    return s;
}

/* --- what rows are measured with ------------------------------------------------------------- */

static void take_buffers(struct bench *b)
{
    const struct bench_spec *spec = b->spec;
    const uint64_t n = b->most_sequences;
    struct arena *a = &b->buffers;
    ARENA_TAKE(b->step, a, n);
    ARENA_TAKE(b->sorted, a, spec->n * (uint64_t)spec->repeats);
    ARENA_TAKE(b->tokens, a, spec->prompt);
    ARENA_TAKE(b->head, a, 2 * CONFIG_MAX_WIDTH);
    ARENA_TAKE(b->logits, a, n * largest_vocabulary(spec));
}

static void release_rows(struct bench *b)
{
    for (int i = 0; i < b->n_rows; i++) {
        session_free(b->rows[i].session);
        b->rows[i].session = NULL;
    }
    for (int i = 0; i < b->n_pools; i++) {
        pool_free(b->pools[i]);
        b->pools[i] = NULL;
    }
    for (int i = 0; i < b->n_models; i++) {
        model_free(b->models[i].model);
        b->models[i].model = NULL;
    }
}

void bench_free(struct bench *b)
{
    if (b->rows)
        release_rows(b);
    arena_free(&b->buffers);
    arena_free(&b->arena);
    *b = (struct bench){0};
}

/* Ends a stage, or a part of one. */
static void end_stage(struct bench *b, enum bench_stage stage)
{
    const uint64_t now = clock_ns();
    b->stage_ns[stage] += now - b->stage_began_ns;
    b->stage_began_ns = now;
}

/* Every sequence has its own seed, sequence 0 the first whatever the batch. */
#define SEED 1u

/* The ith token that a sequence is fed: any will do, but not always the same embedding row. */
static int32_t bench_token(const struct config *c, int sequence, int i)
{
    struct rng r;
    rng_seed(&r, SEED + (uint64_t)sequence, i);
    return rng_u32(&r) % c->n_vocab;
}

/* Starts the threads of all rows, in place of those there are. With fewer threads than asked for
 * a row would be measured as what it is not. */
static enum status start_threads(struct bench *b, struct err *e)
{
    for (int p = 0; p < b->n_pools; p++) {
        const int threads = b->spec->axes[BENCH_THREADS].items[p];
        if (b->pools[p])
            pool_restart(b->pools[p]);
        else
            TRY(pool_create(threads, &b->pools[p], e));
        const int found = pool_n_threads(b->pools[p]);
        if (found < threads)
            return err_failed(e, "only %d of %d threads could be started; a smaller -t needs fewer",
                              found, threads);
    }
    return STATUS_OK;
}

static enum status load_model(struct bench_model *m, struct pool *pool, struct err *e)
{
    const struct bench_subject *of = m->subject;
    const struct inspect_variant *v = &m->variant;
    const struct model_options o = {.random_kv_heads = v->config.n_kv_heads,
                                    .convert = v->shape.converts,
                                    .storage = v->shape.storage,
                                    .pool = pool};
    const uint64_t start = clock_ns();
    if (of->gguf)
        TRY(err_in(e, model_create(of->gguf, &o, of->source, &m->model, e), "%s", of->name));
    else
        TRY(model_create_random(&v->config, v->shape.storage, SEED, &m->model, e));
    m->load_ms = (clock_ns() - start) / 1e6;
    return STATUS_OK;
}

void bench_fill(struct session *s, const struct config *c, const struct kernels *kernels,
                int sequence, int n, uint64_t seed, float *scratch)
{
    const int k_dim = c->head_dim, v_dim = config_value_dim(c), first = session_len(s, sequence);
    float *k = scratch, *v = scratch + k_dim;
    for (int position = first; position < n; position++) {
        struct rng r;
        rng_seed(&r, seed, position);
        for (int l = 0; l < c->n_layers; l++)
            for (int g = 0; g < config_kv_heads(c, l); g++) {
                for (int i = 0; i < k_dim || i < v_dim; i++) {
                    const float key = (float)(int32_t)rng_u32(&r) * 0x1p-31f;
                    const float value = (float)(int32_t)rng_u32(&r) * 0x1p-31f;
                    if (i < k_dim)
                        k[i] = key;
                    if (i < v_dim)
                        v[i] = value;
                }
                kv_cache_put(session_cache(s), kernels, (struct kv_slot){sequence, l, g}, position,
                             k, v);
            }
    }
    session_extend(s, sequence, n);
}

/* Measures the prefill of one sequence: the better of two runs; the first also warms up. */
static enum status measure_prefill(const struct bench *b, struct bench_row *row, struct err *e)
{
    const int n = b->spec->prompt;
    double best = HUGE_VAL;
    for (int t = 0; t < n; t++)
        b->tokens[t] = bench_token(&row->model->subject->config, 0, t);
    for (int pass = 0; pass < 2; pass++) {
        const uint64_t before = clock_ns();
        TRY(session_feed(row->session, 0, b->tokens, n, b->logits, false, e));
        best = fmin(best, clock_ns() - before);
        session_rewind(row->session, 0, 0);
    }
    row->prefill_tokens_per_s = n / best * 1e9;
    return STATUS_OK;
}

/* Makes the row's model, unless another row has, and its session, measures the prefill, and fills
 * a cache of its depth for each sequence. */
static enum status set_up_row(struct bench *b, struct bench_row *row, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    const struct session_params p = {.n_sequences = row->plan.batch,
                                     .n_ctx = row_context(spec, row),
                                     .kv_type = kv_type_at(item_of(spec, row, BENCH_KV_TYPES)),
                                     .kernels = spec->kernels};
    if (!row->model->model)
        TRY(load_model(row->model, b->pools[row->at[BENCH_THREADS]], e));
    const struct model *m = row->model->model;
    row->plan = row_plan(b, row, row->plan.depth);
    TRY(session_create(m, &p, b->pools[row->at[BENCH_THREADS]], &row->session, e));
    end_stage(b, BENCH_LOAD);
    if (spec->prompt > 0)
        TRY(measure_prefill(b, row, e));
    end_stage(b, BENCH_PREFILL);
    for (int q = 0; q < row->plan.batch; q++) {
        if (callbacks_stop(&spec->callbacks))
            return STATUS_INTERRUPTED;
        bench_fill(row->session, &m->config, spec->kernels, q, row->plan.depth, SEED + q, b->head);
    }
    end_stage(b, BENCH_FILL);
    return STATUS_OK;
}

/* Reports the next row of a round; round 0 sets the rows up. */
static void report_progress(const struct bench *b, int round, int i)
{
    callbacks_progress(&b->spec->callbacks, round * b->n_rows + i,
                       (b->spec->repeats + 1) * b->n_rows);
}

static enum status set_up_rows(struct bench *b, struct err *e)
{
    TRY(start_threads(b, e));
    for (int i = 0; i < b->n_rows; i++) {
        report_progress(b, 0, i);
        TRY(set_up_row(b, &b->rows[i], e));
    }
    b->peak_rss_bytes = peak_memory();
    return STATUS_OK;
}

/* --- measuring ------------------------------------------------------------------------------- */

/* Measures the machine's limits with every pool, for its rows' working sets. */
static enum status measure_limits(struct bench *b, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    for (int i = 0; i < b->n_rows; i++)
        machine_want(&b->machines[b->rows[i].at[BENCH_THREADS]], b->rows[i].plan.step_bytes);
    for (int p = 0; p < b->n_pools; p++)
        TRY(machine_measure(&b->machines[p], spec->kernels, b->pools[p], spec->roofline_seconds,
                            e));
    return STATUS_OK;
}

/* Times a step of the nth token of each sequence at the row's depth, and takes the positions back.
 */
static enum status step_row(const struct bench *b, struct bench_row *row, int nth, uint64_t *took,
                            struct err *e)
{
    const int depth = row->plan.depth, batch = row->plan.batch;
    for (int q = 0; q < batch; q++)
        b->step[q] = (struct batch_row){.token = bench_token(&row->model->subject->config, q, nth),
                                        .sequence = q,
                                        .position = depth,
                                        .wants_logits = true};
    const uint64_t before = clock_ns();
    const enum status s = session_step(row->session, b->step, batch, b->logits, e);
    *took = clock_ns() - before;
    for (int q = 0; q < batch; q++)
        session_rewind(row->session, q, depth);
    if (nth == 0)
        row->logits_hash = hash_bytes(HASH_START, b->logits,
                                      row->model->subject->config.n_vocab * sizeof *b->logits);
    return s;
}

/* A row that may settle takes so many samples and so long at least, and then no longer than this:
 * its repeats differ by more than the error that is left. */
#define LEAST_SAMPLES 10
#define LEAST_NS      100000000
#define MOST_NS       150000000

/* The standard error of a median that counts as settled, as a share of it. */
#define SETTLED 0.01

/* Whether the samples so far, of a row's first repeat, which took so long, are enough. The rank of
 * the true median among n samples has a standard error of sqrt(n) / 2. */
static bool is_settled(const struct bench *b, const struct bench_row *row, uint64_t took)
{
    const int n = row->samples, error = ceil(sqrt(n) / 2);
    if (n < LEAST_SAMPLES || took < LEAST_NS)
        return false;
    memcpy(b->sorted, row->times_ns, n * sizeof *b->sorted);
    stats_sort(b->sorted, n);
    return took > MOST_NS ||
           b->sorted[n / 2 + error] - b->sorted[n / 2 - error] <= 2 * SETTLED * b->sorted[n / 2];
}

/* Takes the steps that are not timed, then the samples, both from the same first token on. */
static enum status measure_row(const struct bench *b, struct bench_row *row, struct err *e)
{
    const struct bench_spec *spec = b->spec;
    uint64_t took;
    for (int nth = 0; nth < spec->warmup; nth++) {
        if (callbacks_stop(&spec->callbacks))
            return STATUS_INTERRUPTED;
        TRY(step_row(b, row, nth, &took, e));
    }
    const uint64_t start = clock_ns(), worked = clock_cpu_ns();
    for (int nth = 0; nth < row->n; nth++) {
        if (callbacks_stop(&spec->callbacks))
            return STATUS_INTERRUPTED;
        TRY(step_row(b, row, nth, &took, e));
        row->times_ns[row->samples++] = took;
        if (spec->settles && row->repeats == 0 && is_settled(b, row, clock_ns() - start))
            row->n = row->samples;
    }
    const double share = (clock_cpu_ns() - worked) / (double)(clock_ns() - start) / row->threads;
    row->repeats++;
    row->cpu_share += (fmin(share, 1) - row->cpu_share) / row->repeats; /* the mean so far */
    return STATUS_OK;
}

/* Measures all rows once in every repeat; each repeat begins with new threads. */
static enum status measure_repeats(struct bench *b, struct err *e)
{
    for (int repeat = 1; repeat <= b->spec->repeats; repeat++) {
        TRY(start_threads(b, e));
        for (int i = 0; i < b->n_rows; i++) {
            report_progress(b, repeat, i);
            TRY(measure_row(b, &b->rows[i], e));
        }
    }
    return STATUS_OK;
}

/* Drops the rows without a sample. */
static void keep_measured(struct bench *b)
{
    int n = 0;
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].samples > 0)
            b->rows[n++] = b->rows[i];
    b->n_rows = n;
}

static enum status measure(struct bench *b, struct err *e)
{
    take_buffers(b);
    TRY(arena_allocate(&b->buffers, "the benchmark", e));
    take_buffers(b);
    b->stage_began_ns = clock_ns();
    TRY(set_up_rows(b, e));
    TRY(measure_limits(b, e));
    end_stage(b, BENCH_ROOFLINE);
    const enum status s = measure_repeats(b, e);
    end_stage(b, BENCH_STEPS);
    return s;
}

enum status bench_run(struct bench *b, struct err *e)
{
    const enum status s = measure(b, e);
    release_rows(b);
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        return s;
    keep_measured(b);
    return s;
}
