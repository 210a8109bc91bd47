/*
 * The matrix of a benchmark's settings: which rows there are, what each costs, what memory all
 * take.
 */
#include <math.h>

#include "compute/pool.h"
#include "measure/bench_rows.h"
#include "model/kv_cache.h"
#include "model/model.h"

/* The most samples of one run: 800 MB of times. */
#define MAX_SAMPLES 100000000

/* --- settings -------------------------------------------------------------------------------- */

struct config bench_variant(const struct bench_spec *spec, int variant)
{
    struct config c = spec->config;
    const int item = spec->kv_heads.items[variant];
    if (item < 0)
        config_set_latent(&c, -item);
    else
        c.n_kv_heads = item;
    return c;
}

static enum status check_kv_heads(const struct bench_spec *spec, struct err *e)
{
    const int most = spec->config.n_kv_heads;
    for (int i = 0; i < spec->kv_heads.n; i++) {
        const int g = spec->kv_heads.items[i];
        if (g < 0) {
            TRY(config_check_rank(&spec->config, -g, e));
            continue;
        }
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
    for (int i = 0; i < spec->batches.n; i++)
        if (spec->batches.items[i] < 1)
            return err_set(e, STATUS_USAGE, "a batch of %d sequences: expected 1 or more",
                           spec->batches.items[i]);
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
    *shape = (struct cost_shape){.config = &spec->config};
    if (spec->gguf && !cost_shape_of_file(spec->gguf, &spec->config, shape))
        return err_set(e, STATUS_BAD_FILE,
                       "the output matrix: expected type F32, F16, BF16, Q8_0 or Q4_0");
    return spec->gguf ? model_check(spec->gguf, e) : STATUS_OK;
}

/* The item of an axis that a row number has, the number then being one among the other axes. */
static int take_item(const struct bench_list *axis, int *number)
{
    const int item = *number % axis->n;
    *number /= axis->n;
    return item;
}

/* Row i of all: variants change fastest, then batches, depths, threads and types. */
static void plan_row(const struct bench_spec *spec, struct cost_shape shape, int i,
                     struct bench_row *row)
{
    row->variant = take_item(&spec->kv_heads, &i);
    const int batch = take_item(&spec->batches, &i), depth = take_item(&spec->depths, &i);
    /* Of the settings that a line has in common. */
    row->line = (i * spec->batches.n + (bench_is_over_batch(spec) ? 0 : batch)) * spec->kv_heads.n +
                row->variant;
    row->pool = take_item(&spec->threads, &i);
    const int kv_type = take_item(&spec->kv_types, &i), type = take_item(&spec->types, &i);
    row->model = type * spec->kv_heads.n + row->variant;
    const struct config variant = bench_variant(spec, row->variant);
    row->n_kv_heads = shape.n_kv_heads = variant.n_kv_heads;
    shape.config = &variant;
    row->batch = spec->batches.items[batch];
    row->depth = spec->depths.items[depth];
    row->threads = spec->threads.items[row->pool];
    row->kv_type = (enum storage)spec->kv_types.items[kv_type];
    row->as_file = spec->types.items[type] == BENCH_AS_FILE;
    if (!row->as_file)
        shape.storage = (enum storage)spec->types.items[type];
    row->type = shape.storage;
    row->cost.weight_bytes = cost_weights(&shape).step_bytes;
    row->cost.kv_bytes = cost_kv_bytes(&variant, row->n_kv_heads, row->kv_type, row->depth);
    row->cost.flops = cost_flops(&shape, row->depth);
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
                          spec->threads.n * spec->depths.n * spec->batches.n;
    const double samples = n_rows * spec->n * spec->repeats;
    if (samples > MAX_SAMPLES)
        return err_set(e, STATUS_USAGE, "%.0f rows of %d x %d samples: expected at most %d in all",
                       n_rows, spec->repeats, spec->n, MAX_SAMPLES);
    b->n_rows = (int)n_rows;
    b->n_machines = spec->threads.n;
    b->n_models = spec->types.n * spec->kv_heads.n;
    b->n_lines = b->n_rows / (bench_is_over_batch(spec) ? spec->batches.n : spec->depths.n);
    take_bench_rows(spec, b);
    s = arena_allocate(&b->arena, "the samples", e);
    if (s != STATUS_OK)
        return s;
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

int bench_largest_batch(const struct bench_spec *spec)
{
    int largest = 1;
    for (int i = 0; i < spec->batches.n; i++)
        if (spec->batches.items[i] > largest)
            largest = spec->batches.items[i];
    return largest;
}

static uint64_t added(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t row_cache_bytes(const struct bench_spec *spec, const struct bench_row *row)
{
    const struct config c = bench_variant(spec, row->variant);
    const struct kv_shape shape = {
        .n_sequences = row->batch, .cap = bench_row_context(spec, row), .storage = row->kv_type};
    size_t bytes;
    return kv_cache_bytes(&c, &shape, &bytes) ? bytes : UINT64_MAX;
}

uint64_t bench_memory(const struct bench_spec *spec, const struct bench *b)
{
    const struct config *c = &spec->config;
    uint64_t bytes = (uint64_t)bench_largest_batch(spec) * (uint64_t)c->n_vocab * sizeof(float);
    int n_models = 0; /* counted: they first appear in their order */
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        if (row->model == n_models) {
            n_models++;
            bytes = added(bytes, row->cost.weight_bytes);
            bytes = added(bytes, matrix_bytes(c->n_vocab, c->d_model, row->type));
        }
        bytes = added(bytes, row_cache_bytes(spec, row));
    }
    return bytes;
}
