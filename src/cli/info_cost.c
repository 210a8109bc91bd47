/*
 * What a shape's cache and its steps cost, variant by variant.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "base/limits.h"
#include "cli/info.h"
#include "show/paragraph.h"

/* This machine is measured several times: what one time says, the next does not repeat. */
#define MEASUREMENTS    5
#define MEASURE_SECONDS 0.4

/* --- the cache ------------------------------------------------------------------------------- */

/* A %d in a heading is for the context. */
static const struct report_field cache_fields[INFO_CACHE_FIELDS] = {
    {"variant", "KV cache of", MEMBER(inspect_variant, name)},
    {"n_kv_heads", "K/V heads", MEMBER(inspect_variant, shape.n_kv_heads), .rank = 3},
    {"parameters", "parameters", MEMBER(inspect_variant, weights.parameters), .grouped = true,
     .rank = 5},
    {"bytes_per_token_f32", "bytes/token f32", MEMBER(inspect_variant, token_bytes[0]),
     .grouped = true},
    {"bytes_per_token_f16", "bytes/token f16", MEMBER(inspect_variant, token_bytes[1]),
     .grouped = true, .rank = 4},
    {"bytes_per_token_q8_0", "bytes/token q8_0", MEMBER(inspect_variant, token_bytes[2]),
     .grouped = true, .rank = 6},
    {"bytes_full_context_f32", "%d tokens f32", MEMBER(inspect_variant, full_bytes[0]),
     .figure = figure_bytes, .rank = 2},
    {"bytes_full_context_f16", "%d tokens f16", MEMBER(inspect_variant, full_bytes[1]),
     .figure = figure_bytes, .rank = 7},
    {"bytes_full_context_q8_0", "%d tokens q8_0", MEMBER(inspect_variant, full_bytes[2]),
     .figure = figure_bytes, .rank = 8},
};

struct table info_cache_table(const struct info *info)
{
    return (struct table){.fields = info->cache_fields,
                          .n = INFO_CACHE_FIELDS,
                          .rows = info->variants.items,
                          .n_rows = info->variants.n,
                          .row_bytes = sizeof *info->variants.items};
}

/* How the bytes of a token come about. */
static void print_formula(const struct config *c, struct paragraph *p)
{
    const bool latent = config_is_latent(c);
    const int each = latent ? config_latent(c, 0) : c->n_kv_heads;
    int64_t all = 0;
    for (int l = 0; l < c->n_layers; l++)
        all += latent ? config_latent(c, l) : config_kv_heads(c, l);
    paragraph_printf(p, "\nOne token takes %s all layers (",
                     latent ? "the numbers that all heads share in" : "K/V heads of");
    if (all == (int64_t)c->n_layers * each)
        paragraph_printf(p, "%d x %d", c->n_layers, each);
    else
        paragraph_printf(p, "%" PRId64 " in %d layers", all, c->n_layers);
    if (!latent)
        paragraph_printf(p, ") x numbers of a key and a value (%d + %d", c->head_dim,
                         config_value_dim(c));
    paragraph_puts(p, ")\vx bytes of a number (f32 4, f16 2, q8_0 34/32); the cache is that x "
                      "tokens x sequences.\n\n");
}

/* --- the steps ------------------------------------------------------------------------------- */

#define N_MEMORY_FIELDS 12 /* those without times */
static const struct report_field step_fields[] = {
    {"variant", "a step of", MEMBER(info_step, name)},
    {"n_kv_heads", NULL, MEMBER(info_step, n_kv_heads)},
    {"depth", "depth", MEMBER(info_step, depth)},
    {"batch", "batch", MEMBER(info_step, batch)},
    {"kv_type", "KV", MEMBER(info_step, kv_type), .rank = 6},
    {"cache_bytes", "cache", MEMBER(info_step, step.cache_bytes), .figure = figure_bytes,
     .rank = 5},
    {"memory_bytes", "with weights", MEMBER(info_step, step.memory_bytes), .figure = figure_bytes,
     .rank = 3},
    {NULL, "fits", MEMBER(info_step, fits_word), .rank = 2},
    {"fits", NULL, MEMBER(info_step, fits)},
    {"step_bytes", "read", MEMBER(info_step, step.step_bytes), .figure = figure_bytes, .rank = 4},
    {"step_flops", NULL, MEMBER(info_step, flops)},
    {NULL, "Mflop", MEMBER(info_step, mflop), "%.1f", .rank = 9},
    {NULL, "µs", MEMBER(info_step, us), .right = true, .rank = 1},
    {NULL, "tokens/s", MEMBER(info_step, rate), .right = true},
    {NULL, "GB/s", MEMBER(info_step, bandwidth), .right = true, .rank = 8},
    {"predicted_us", NULL, MEMBER(info_step, time.us), "%.4g"},
    {"predicted_us_least", NULL, MEMBER(info_step, least_us), "%.4g"},
    {"predicted_us_most", NULL, MEMBER(info_step, most_us), "%.4g"},
    {"limit_tokens_per_s", NULL, MEMBER(info_step, time.tokens_per_s), .figure = figure_rate},
    {"bandwidth_gb_per_s", NULL, MEMBER(info_step, bandwidth_gb_per_s), "%.4g"},
    {"limited_by", "waits for", MEMBER(info_step, time.limited_by), .rank = 7},
};

static bool has_times(const struct info_asked *a)
{
    return a->kernels || a->limits.bytes_per_s > 0;
}

struct table info_step_table(const struct info *info)
{
    struct table table = TABLE_OF(step_fields, info->steps, info->n_steps);
    if (!has_times(&info->asked))
        table.n = N_MEMORY_FIELDS;
    return table;
}

/* "14", "5,900": two digits of a measured number. */
static struct figure two_digits(double x)
{
    struct figure f;
    const double step = pow(10, floor(log10(x)) - 1);
    if (x < 100)
        snprintf(f.text, sizeof f.text, "%.*f", x < 10, x);
    else
        f = figure_grouped((uint64_t)(round(x / step) * step));
    return f;
}

/* "14 to 22", or one number where both ends are the same in two digits. */
static void put_range(char out[72], double least, double most)
{
    const struct figure from = two_digits(least), to = two_digits(most);
    const bool same = strcmp(from.text, to.text) == 0;
    snprintf(out, 72, "%s%s%s", from.text, same ? "" : " to ", same ? "" : to.text);
}

static int by_bandwidth(const void *a, const void *b)
{
    const double x = ((const struct roofline *)a)->bytes_per_s;
    const double y = ((const struct roofline *)b)->bytes_per_s;
    return (x > y) - (x < y);
}

/* How long a step takes by what was given, or by several measurements of this machine. */
static void predict_step(const struct info_asked *a, const struct machine machines[MEASUREMENTS],
                         struct info_step *s)
{
    struct roofline limits[MEASUREMENTS] = {a->limits};
    const int n = a->kernels ? MEASUREMENTS : 1;
    for (int m = 0; m < MEASUREMENTS && a->kernels; m++)
        limits[m] = machine_limits(&machines[m], s->step.step_bytes);
    qsort(limits, (size_t)n, sizeof *limits, by_bandwidth);
    s->time = cost_predict(&s->step.cost, s->batch, &limits[n / 2]);
    s->bandwidth_gb_per_s = limits[n / 2].bytes_per_s / 1e9;
    s->least_us = s->most_us = s->time.us;
    for (int i = 0; i < n; i++) {
        const double us = cost_predict(&s->step.cost, s->batch, &limits[i]).us;
        s->least_us = fmin(s->least_us, us);
        s->most_us = fmax(s->most_us, us);
    }
    if (a->kernels) {
        put_range(s->us, s->least_us, s->most_us);
        put_range(s->rate, s->batch * 1e6 / s->most_us, s->batch * 1e6 / s->least_us);
        put_range(s->bandwidth, limits[0].bytes_per_s / 1e9, limits[n - 1].bytes_per_s / 1e9);
    } else {
        snprintf(s->us, sizeof s->us, "%.1f", s->time.us);
        snprintf(s->rate, sizeof s->rate, "%s", figure_rate(s->time.tokens_per_s).text);
        snprintf(s->bandwidth, sizeof s->bandwidth, "%.1f", s->bandwidth_gb_per_s);
    }
}

static enum status plan_steps(struct info *info, struct err *e)
{
    const struct info_asked *a = &info->asked;
    const size_t n = (size_t)info->variants.n * (size_t)a->depths.n * (size_t)a->batches.n;
    struct machine machines[MEASUREMENTS] = {0};
    info->available = available_memory();
    info->steps = calloc(n, sizeof *info->steps);
    if (!info->steps)
        return err_no_memory(e, "the list of steps", n * sizeof *info->steps);
    for (size_t i = 0; i < n; i++) { /* variants change fastest, then batches */
        const int row = (int)i / info->variants.n;
        const struct inspect_variant *v = &info->variants.items[(int)i % info->variants.n];
        struct info_step *s = &info->steps[info->n_steps++];
        *s = (struct info_step){.name = v->name,
                                .kv_type = storage_name(a->kv_type),
                                .n_kv_heads = v->shape.n_kv_heads,
                                .depth = a->depths.items[row / a->batches.n],
                                .batch = a->batches.items[row % a->batches.n]};
        s->step = inspect_step(v, a->kv_type, s->depth, s->batch);
        s->flops = cost_step_flops(&s->step.cost, s->batch);
        s->mflop = (double)s->flops / 1e6;
        s->fits = s->step.memory_bytes <= info->available;
        s->fits_word = s->fits ? "yes" : "no";
    }
    for (int m = 0; m < MEASUREMENTS && a->kernels; m++) {
        for (int i = 0; i < info->n_steps; i++)
            machine_want(&machines[m], info->steps[i].step.step_bytes);
        TRY(machine_measure(&machines[m], a->kernels, a->pool, MEASURE_SECONDS, e));
        machine_settle(&machines[m]);
    }
    for (int i = 0; i < info->n_steps && has_times(a); i++)
        predict_step(a, machines, &info->steps[i]);
    return STATUS_OK;
}

enum status info_plan_cost(struct info *info, bool steps, struct err *e)
{
    TRY(inspect_list_variants(&info->shape, info->asked.ranks.items, info->asked.ranks.n,
                              &info->variants, e));
    for (int i = 0; i < INFO_CACHE_FIELDS; i++) {
        info->cache_fields[i] = cache_fields[i];
        info->cache_fields[i].heading = info->cache_headings[i];
        snprintf(info->cache_headings[i], sizeof info->cache_headings[i], cache_fields[i].heading,
                 info->config.n_ctx);
    }
    return steps ? plan_steps(info, e) : STATUS_OK;
}

/* --- for people ------------------------------------------------------------------------------ */

static void print_steps_heading(const struct info *info, struct paragraph *p)
{
    const struct info_asked *a = &info->asked;
    const bool counted = isfinite(a->limits.fma_flops_per_s);
    paragraph_puts(p, "\nA step takes one token of each sequence of the batch: it reads the "
                      "weights once, and every\vsequence's cache");
    if (a->kernels)
        paragraph_printf(p,
                         ", or waits for its arithmetic, as fast as was measured here, the least "
                         "to the most of %d times",
                         MEASUREMENTS);
    else if (has_times(a))
        paragraph_printf(p, ", at %s GB/s%s%s%s", figure_exact(a->limits.bytes_per_s / 1e9).text,
                         counted ? ", or waits for its arithmetic, at " : "; arithmetic is not ",
                         counted ? figure_exact(a->limits.fma_flops_per_s / 1e9).text : "counted",
                         counted ? " GFLOP/s" : " (--flops GFLOP/s counts it)");
    paragraph_puts(p, ".");
    if (info->available != AVAILABLE_UNKNOWN)
        paragraph_printf(p, " Free: %s.", figure_bytes((double)info->available).text);
    paragraph_puts(p, "\n\n");
}

enum status info_print_cost(const struct info *info, struct err *e)
{
    const struct table caches = info_cache_table(info), steps = info_step_table(info);
    struct paragraph p = paragraph_begin(info->out, 0);
    print_formula(&info->config, &p);
    paragraph_end(&p);
    TRY(table_print(&caches, NULL, info->format, info->out, e));
    if (!info->steps)
        return STATUS_OK;
    p = paragraph_begin(info->out, 0);
    print_steps_heading(info, &p);
    paragraph_end(&p);
    return table_print(&steps, NULL, info->format, info->out, e);
}
