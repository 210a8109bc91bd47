#include "cli/info_cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/figures.h"
#include "base/limits.h"
#include "measure/machine.h"
#include "show/paragraph.h"

/* For which this machine is measured. */
#define MEASURE_SECONDS 2.0

/* A %d in a heading is for the context. */
#define CACHE(member) MEMBER(inspect_variant, member)
static const struct report_field cache_fields[INFO_CACHE_FIELDS] = {
    {"variant", "KV cache of", CACHE(name)},
    {"n_kv_heads", "K/V heads", CACHE(shape.n_kv_heads), .rank = 3},
    {"parameters", "parameters", CACHE(weights.parameters), .grouped = true, .rank = 5},
    {"bytes_per_token_f32", "bytes/token f32", CACHE(token_bytes[0]), .grouped = true},
    {"bytes_per_token_f16", "bytes/token f16", CACHE(token_bytes[1]), .grouped = true, .rank = 4},
    {"bytes_per_token_q8_0", "bytes/token q8_0", CACHE(token_bytes[2]), .grouped = true, .rank = 6},
    {"bytes_full_context_f32", "%d tokens f32", CACHE(full_bytes[0]), .figure = figure_bytes,
     .rank = 2},
    {"bytes_full_context_f16", "%d tokens f16", CACHE(full_bytes[1]), .figure = figure_bytes,
     .rank = 7},
    {"bytes_full_context_q8_0", "%d tokens q8_0", CACHE(full_bytes[2]), .figure = figure_bytes,
     .rank = 8},
};

/* A step of a variant; times are of what is asked only. */
struct info_step {
    struct inspect_step step;
    bool fits;
    const char *fits_word;
    struct cost_time time;
    double gb_per_s;
};

#define STEP(member)    MEMBER(info_step, member)
#define N_MEMORY_FIELDS 11 /* those without times */
static const struct report_field step_fields[] = {
    {"variant", "a step of", STEP(step.variant)},
    {"n_kv_heads", NULL, STEP(step.n_kv_heads)},
    {"depth", "depth", STEP(step.depth)},
    {"batch", "batch", STEP(step.batch)},
    {"kv_type", "KV", STEP(step.kv_type), .rank = 6},
    {"cache_bytes", "cache", STEP(step.cache_bytes), .figure = figure_bytes, .rank = 5},
    {"memory_bytes", "with weights", STEP(step.memory_bytes), .figure = figure_bytes, .rank = 3},
    {NULL, "fits", STEP(fits_word), .rank = 2},
    {"fits", NULL, STEP(fits)},
    {"step_bytes", "read", STEP(step.step_bytes), .figure = figure_bytes, .rank = 4},
    {"step_flops", "Mflop", STEP(step.flops), .figure = figure_millions, .rank = 9},
    {"predicted_us", "µs", STEP(time.us), "%.1f", .rank = 1},
    {"limit_tokens_per_s", "tokens/s", STEP(time.tokens_per_s), .figure = figure_rate},
    {"bandwidth_gb_per_s", "GB/s", STEP(gb_per_s), "%.1f", .rank = 8},
    {"limited_by", "waits for", STEP(time.limited_by), .rank = 7},
};

static bool has_times(const struct info_cost *c)
{
    return c->kernels || c->limits.bytes_per_s > 0;
}

/* Variants change fastest, then batches. */
static enum status plan_steps(struct info_cost *c, struct err *e)
{
    const int n_variants = c->variants.n, n_batches = c->batches.n,
              n = n_variants * c->depths.n * n_batches;
    struct machine machine = {0};
    c->available = available_memory();
    c->steps = calloc((size_t)n, sizeof *c->steps);
    if (!c->steps)
        return err_no_memory(e, "the list of steps", (size_t)n * sizeof *c->steps);
    c->step_table = (struct table)TABLE_OF(step_fields, c->steps, n);
    if (!has_times(c))
        c->step_table.n = N_MEMORY_FIELDS;
    for (int i = 0; i < n; i++) {
        struct info_step *s = &c->steps[i];
        const int row = i / n_variants;
        s->step = inspect_step(&c->variants.items[i % n_variants], c->kv_type,
                               c->depths.items[row / n_batches], c->batches.items[row % n_batches]);
        s->fits = s->step.memory_bytes <= c->available;
        s->fits_word = s->fits ? "yes" : "no";
        if (c->kernels)
            machine_want(&machine, s->step.step_bytes);
    }
    if (c->kernels) {
        TRY(machine_measure(&machine, c->kernels, c->pool, MEASURE_SECONDS, e));
        machine_settle(&machine);
    }
    for (int i = 0; i < n && has_times(c); i++) {
        struct info_step *s = &c->steps[i];
        const struct roofline limits =
            c->kernels ? machine_limits(&machine, s->step.step_bytes) : c->limits;
        s->time = cost_predict(&s->step.cost, s->step.batch, &limits);
        s->gb_per_s = limits.bytes_per_s / 1e9;
    }
    return STATUS_OK;
}

enum status info_cost_plan(struct info_cost *c, struct err *e)
{
    TRY(inspect_list_variants(&c->shape, c->ranks.items, c->ranks.n, &c->variants, e));
    c->cache_table = (struct table)TABLE_OF(c->cache_fields, c->variants.items, c->variants.n);
    for (int i = 0; i < INFO_CACHE_FIELDS; i++) {
        c->cache_fields[i] = cache_fields[i];
        c->cache_fields[i].heading = c->cache_headings[i];
        snprintf(c->cache_headings[i], sizeof c->cache_headings[i], cache_fields[i].heading,
                 c->shape.config->n_ctx);
    }
    return c->depths.n > 0 ? plan_steps(c, e) : STATUS_OK;
}

void info_cost_free(struct info_cost *c)
{
    free(c->steps);
    free(c->variants.items);
}

void info_cost_explain(const struct info_cost *cost, struct output *out)
{
    const struct config *c = cost->shape.config;
    const bool latent = config_is_latent(c);
    const int each = latent ? config_latent(c, 0) : c->n_kv_heads;
    struct paragraph p = paragraph_begin(out, 0);
    int64_t all = 0;
    for (int l = 0; l < c->n_layers; l++)
        all += latent ? config_latent(c, l) : config_kv_heads(c, l);
    paragraph_printf(&p, "One token takes %s all layers (",
                     latent ? "the numbers that all heads share in" : "K/V heads of");
    if (all == (int64_t)c->n_layers * each)
        paragraph_printf(&p, "%d x %d", c->n_layers, each);
    else
        paragraph_printf(&p, "%" PRId64 " in %d layers", all, c->n_layers);
    if (!latent)
        paragraph_printf(&p, ") x numbers of a key and a value (%d + %d", c->head_dim,
                         config_value_dim(c));
    paragraph_puts(&p, ")\vx bytes of a number (f32 4, f16 2, q8_0 34/32); the cache is that x "
                       "tokens x sequences.\n\n");
    paragraph_end(&p);
}

void info_cost_explain_steps(const struct info_cost *c, struct output *out)
{
    const double gb_per_s = c->limits.bytes_per_s / 1e9, gflops = c->limits.fma_flops_per_s / 1e9;
    struct paragraph p = paragraph_begin(out, 0);
    paragraph_puts(&p, "A step takes one token of each sequence of the batch: it reads the "
                       "weights once, and every\vsequence's cache");
    if (c->kernels)
        paragraph_puts(&p, ", or waits for its arithmetic, as fast as was measured here");
    else if (has_times(c) && isfinite(gflops))
        paragraph_printf(&p, ", at %s GB/s, or waits for its arithmetic, at %s GFLOP/s",
                         figure_exact(gb_per_s).text, figure_exact(gflops).text);
    else if (has_times(c))
        paragraph_printf(&p, ", at %s GB/s; arithmetic is not counted (--flops GFLOP/s counts it)",
                         figure_exact(gb_per_s).text);
    paragraph_puts(&p, ".");
    if (c->available != AVAILABLE_UNKNOWN)
        paragraph_printf(&p, " Free: %s.", figure_bytes((double)c->available).text);
    paragraph_puts(&p, "\n\n");
    paragraph_end(&p);
}
