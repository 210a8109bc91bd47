/*
 * The rows of a benchmark: which there are, what each costs and takes, and from samples to figures.
 */
#include "measure/bench.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/stats.h"
#include "model/kv_cache.h"
#include "model/model.h"

/* The most samples of one run: 800 MB of times. */
#define MAX_SAMPLES 100000000

/* --- settings -------------------------------------------------------------------------------- */

struct config bench_row_config(const struct bench_spec *spec, const struct bench_row *row)
{
    struct config c = spec->config;
    const int item = spec->axes[BENCH_VARIANTS].items[row->at[BENCH_VARIANTS]];
    if (item < 0)
        config_set_latent(&c, -item);
    else
        c.n_kv_heads = item;
    return c;
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
        return err_set(e, STATUS_BAD_FILE,
                       "the output matrix: expected type F32, F16, BF16, Q8_0 or Q4_0");
    return spec->gguf ? model_check(spec->gguf, e) : STATUS_OK;
}

/* Row i of all. */
static void plan_row(const struct bench_spec *spec, struct cost_shape shape, int i,
                     struct bench_row *row)
{
    int value[BENCH_AXES];
    for (int a = 0; a < BENCH_AXES; a++) {
        row->at[a] = i % spec->axes[a].n;
        i /= spec->axes[a].n;
        value[a] = spec->axes[a].items[row->at[a]];
    }
    for (int a = BENCH_AXES - 1; a >= 0; a--)
        if (a != (int)bench_x_axis(spec)) /* else it is what a line has in common */
            row->line = row->line * spec->axes[a].n + row->at[a];
    row->model = row->at[BENCH_TYPES] * spec->axes[BENCH_VARIANTS].n + row->at[BENCH_VARIANTS];
    row->batch = value[BENCH_BATCHES];
    row->depth = value[BENCH_DEPTHS];
    row->threads = value[BENCH_THREADS];
    row->kv_type = (enum storage)value[BENCH_KV_TYPES];
    row->as_file = value[BENCH_TYPES] == BENCH_AS_FILE;
    if (!row->as_file)
        shape.storage = (enum storage)value[BENCH_TYPES];
    row->type = shape.storage;
    const struct config variant = bench_row_config(spec, row);
    shape.config = &variant;
    row->n_kv_heads = shape.n_kv_heads = variant.n_kv_heads;
    config_variant_name(&variant, row->n_kv_heads, row->variant);
    row->cost = cost_of(&shape, row->kv_type, row->depth);
    row->prefill_tokens_per_s = (double)NAN;
}

static void take_bench_rows(const struct bench_spec *spec, struct bench *b)
{
    const uint64_t n_rows = (uint64_t)b->n_rows,
                   n_times = (uint64_t)spec->n * (uint64_t)spec->repeats;
    b->rows = arena_take(&b->arena, n_rows, sizeof *b->rows);
    uint64_t *times = arena_take(&b->arena, n_rows * n_times, sizeof *times);
    b->machines = arena_take(&b->arena, (uint64_t)b->n_machines, sizeof *b->machines);
    for (uint64_t i = 0; b->rows && i < n_rows; i++)
        b->rows[i].times_ns = times + i * n_times;
}

enum status bench_plan(const struct bench_spec *spec, struct bench *b, struct err *e)
{
    struct cost_shape shape;
    *b = (struct bench){0};
    TRY(check_settings(spec, &shape, e));
    double n_rows = 1;
    for (int a = 0; a < BENCH_AXES; a++)
        n_rows *= spec->axes[a].n;
    if (n_rows * spec->n * spec->repeats > MAX_SAMPLES)
        return err_set(e, STATUS_USAGE, "%.0f rows of %d x %d samples: expected at most %d in all",
                       n_rows, spec->repeats, spec->n, MAX_SAMPLES);
    b->n_rows = (int)n_rows;
    b->n_machines = spec->axes[BENCH_THREADS].n;
    b->n_models = spec->axes[BENCH_TYPES].n * spec->axes[BENCH_VARIANTS].n;
    b->n_lines = b->n_rows / spec->axes[bench_x_axis(spec)].n;
    take_bench_rows(spec, b);
    TRY(arena_allocate(&b->arena, "the samples", e));
    take_bench_rows(spec, b);
    for (int i = 0; i < b->n_rows; i++)
        plan_row(spec, shape, i, &b->rows[i]);
    return STATUS_OK;
}

void bench_free(struct bench *b)
{
    arena_free(&b->arena);
    *b = (struct bench){0};
}

/* --- memory ---------------------------------------------------------------------------------- */

int bench_row_context(const struct bench_spec *spec, const struct bench_row *row)
{
    const int own = row->depth + 1;
    return own > spec->prompt ? own : spec->prompt;
}

uint64_t bench_row_bytes(const struct bench_row *row)
{
    return cost_step_bytes(&row->cost, row->batch);
}

int bench_largest_batch(const struct bench_spec *spec)
{
    const struct int_list *batches = &spec->axes[BENCH_BATCHES];
    int largest = 1;
    for (int i = 0; i < batches->n; i++)
        largest = batches->items[i] > largest ? batches->items[i] : largest;
    return largest;
}

uint64_t bench_memory(const struct bench_spec *spec, const struct bench *b)
{
    const struct config *c = &spec->config;
    uint64_t bytes = (uint64_t)bench_largest_batch(spec) * (uint64_t)c->n_vocab * sizeof(float);
    int n_models = 0; /* counted: they first appear in their order */
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        const struct config variant = bench_row_config(spec, row);
        const struct kv_shape cache = {.n_sequences = row->batch,
                                       .cap = bench_row_context(spec, row),
                                       .storage = row->kv_type};
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

/* --- what was measured ----------------------------------------------------------------------- */

static void sort_copy(uint64_t *out, const uint64_t *times, int n)
{
    memcpy(out, times, (size_t)n * sizeof *out);
    stats_sort(out, (size_t)n);
}

static double sample_percentile_us(const uint64_t *sorted, int n, double p)
{
    return (double)stats_percentile(sorted, (size_t)n, p) / 1e3;
}

void bench_summarise(struct bench_row *row, int n, uint64_t *sorted)
{
    const int samples = row->samples;
    double least = (double)INFINITY, largest = 0, sum = 0;
    if (samples == 0)
        return;
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
    row->p10_us = sample_percentile_us(sorted, samples, 0.1);
    row->p50_us = sample_percentile_us(sorted, samples, 0.5);
    row->p90_us = sample_percentile_us(sorted, samples, 0.9);
    row->p99_us = sample_percentile_us(sorted, samples, 0.99);
    row->max_us = (double)sorted[samples - 1] / 1e3;
    row->mean_us = sum / samples / 1e3;
    row->us_per_token = row->p50_us / row->batch;
    row->tokens_per_s = row->batch * 1e6 / row->mean_us;
    row->gb_per_s = (double)bench_row_bytes(row) / row->p50_us / 1e3;
}

/* What a row reached is no more than the limits: a disturbance while they were measured does no
 * harm. */
static void raise_to_reached(struct machine *m, const struct bench_row *row)
{
    const struct cost_flops *f = &row->cost.flops;
    const double steps_per_s = 1e6 / row->p50_us, rows_per_s = row->batch * steps_per_s;
    machine_raise(m, bench_row_bytes(row),
                  &(struct roofline){(double)bench_row_bytes(row) * steps_per_s,
                                     (double)(f->floats + f->attention) * rows_per_s,
                                     (double)f->quants * rows_per_s});
    /* Products and attention may still take longer, one after the other. */
    const struct roofline l = machine_limits(m, bench_row_bytes(row));
    const double over = cost_predict(&row->cost, row->batch, &l).us / row->p50_us;
    if (over > 1)
        machine_raise(m, bench_row_bytes(row),
                      &(struct roofline){l.bytes_per_s * over, l.fma_flops_per_s * over,
                                         l.dot_flops_per_s * over});
}

void bench_predict(struct bench *b)
{
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].samples)
            raise_to_reached(&b->machines[b->rows[i].at[BENCH_THREADS]], &b->rows[i]);
    for (int i = 0; i < b->n_machines; i++)
        machine_settle(&b->machines[i]);
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        row->limits = machine_limits(&b->machines[row->at[BENCH_THREADS]], bench_row_bytes(row));
        row->predicted = cost_predict(&row->cost, row->batch, &row->limits);
        if (row->samples)
            row->share_of_limit = row->predicted.us / row->p50_us;
    }
}

/* The row of the same setting that has n_heads K/V heads; NULL: there is none. */
static const struct bench_row *find_mha(const struct bench *b, const struct bench_row *row,
                                        int n_heads)
{
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *m = &b->rows[i];
        bool same = m->n_kv_heads == n_heads;
        for (int a = 0; a < BENCH_AXES; a++)
            same &= a == BENCH_VARIANTS || m->at[a] == row->at[a];
        if (same)
            return m;
    }
    return NULL;
}

void bench_compare(struct bench *b, int n_heads)
{
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        const struct bench_row *mha = find_mha(b, row, n_heads);
        row->speedup = row->predicted_speedup = (double)NAN;
        if (!mha)
            continue;
        /* Of one sequence bytes are the limit, and need no measurement. */
        row->predicted_speedup = row->batch == 1 ? (double)cost_step_bytes(&mha->cost, 1) /
                                                       (double)cost_step_bytes(&row->cost, 1)
                                                 : mha->predicted.us / row->predicted.us;
        if (mha->samples && row->samples)
            row->speedup = mha->p50_us / row->p50_us;
    }
}
