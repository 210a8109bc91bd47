#include "cli/info_cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "base/limits.h"
#include "show/paragraph.h"

/* This machine is measured several times: what one time says, the next does not repeat. */
#define MEASUREMENTS    5
#define MEASURE_SECONDS 0.4

/* --- the cache ------------------------------------------------------------------------------- */

/* A %d in a heading is for the context. */
static const struct report_field variant_fields[INFO_VARIANT_FIELDS] = {
    {"variant", "KV cache of", MEMBER(inspect_variant, name)},
    {"n_kv_heads", "K/V heads", MEMBER(inspect_variant, n_kv_heads), .rank = 3},
    {"parameters", "parameters", MEMBER(inspect_variant, parameters), .grouped = true, .rank = 5},
    {"bytes_per_token_f32", "bytes/token f32", MEMBER(inspect_variant, token_f32), .grouped = true},
    {"bytes_per_token_f16", "bytes/token f16", MEMBER(inspect_variant, token_f16), .grouped = true,
     .rank = 4},
    {"bytes_per_token_q8_0", "bytes/token q8_0", MEMBER(inspect_variant, token_q8_0),
     .grouped = true, .rank = 6},
    {"bytes_full_context_f32", "%d tokens f32", MEMBER(inspect_variant, full_f32),
     .figure = figure_bytes, .rank = 2},
    {"bytes_full_context_f16", "%d tokens f16", MEMBER(inspect_variant, full_f16),
     .figure = figure_bytes, .rank = 7},
    {"bytes_full_context_q8_0", "%d tokens q8_0", MEMBER(inspect_variant, full_q8_0),
     .figure = figure_bytes, .rank = 8},
};

void info_cost_begin(struct info_cost *cost, const struct cost_shape *shape)
{
    cost->shape = shape;
    for (int i = 0; i < INFO_VARIANT_FIELDS && shape->config; i++) {
        cost->variant_fields[i] = variant_fields[i];
        cost->variant_fields[i].heading = cost->headings[i];
        snprintf(cost->headings[i], sizeof cost->headings[i], variant_fields[i].heading,
                 shape->config->n_ctx);
    }
}

/* False when there is none after this one. */
static bool next_variant(const struct info_cost *cost, struct info_variants *v)
{
    const struct info_settings *s = &cost->settings;
    if (!v->shape.config)
        v->shape = *cost->shape;
    const int above = v->now.n_kv_heads ? v->now.n_kv_heads : v->shape.config->n_heads + 1;
    if (inspect_next_variant(&v->shape, above, &v->now))
        return true;
    if (v->n_ranks == s->n_ranks)
        return false;
    *cost->latent = *cost->shape->config;
    config_set_latent(cost->latent, s->ranks[v->n_ranks++]);
    v->shape.config = cost->latent;
    v->shape.n_kv_heads = 1;
    return inspect_next_variant(&v->shape, 2, &v->now);
}

static void print_latent_formula(const struct config *c, struct paragraph *p)
{
    int64_t all = 0;
    for (int l = 0; l < c->n_layers; l++)
        all += config_latent(c, l);
    paragraph_puts(p, "\nOne token takes the numbers that all heads share in all layers (");
    if (all == (int64_t)c->n_layers * config_latent(c, 0))
        paragraph_printf(p, "%d x %d", c->n_layers, config_latent(c, 0));
    else
        paragraph_printf(p, "%" PRId64 " in %d layers", all, c->n_layers);
    paragraph_puts(p,
                   ")\vx bytes of a number (f32 4, f16 2, q8_0 34/32); the cache is that x tokens "
                   "x sequences.\n\n");
}

static void print_formula(const struct config *c, struct paragraph *p)
{
    if (config_is_latent(c)) {
        print_latent_formula(c, p);
        return;
    }
    paragraph_puts(p, "\nOne token takes K/V heads of all layers (");
    if (config_same_kv_heads(c))
        paragraph_printf(p, "%d x %d", c->n_layers, c->n_kv_heads);
    else
        paragraph_printf(p, "%" PRId64 " in %d layers", config_all_kv_heads(c), c->n_layers);
    paragraph_printf(
        p,
        ") x numbers of a key and a value (%d + %d)\vx bytes of a number (f32 4, f16 2, "
        "q8_0 34/32); the cache is that x tokens x sequences.\n\n",
        c->head_dim, config_value_dim(c));
}

static const void *variant_row(void *arg, int i)
{
    struct info_variants *v = arg;
    if (i == 0)
        *v = (struct info_variants){.cost = v->cost};
    return next_variant(v->cost, v) ? &v->now : NULL;
}

struct table info_variant_table(const struct info_cost *cost, struct info_variants *walk)
{
    walk->cost = cost;
    return (struct table){cost->variant_fields, INFO_VARIANT_FIELDS, .row = variant_row,
                          .arg = walk};
}

/* --- the steps ------------------------------------------------------------------------------- */

struct info_step {
    char variant[16];
    int n_kv_heads, depth, batch;
    const char *kv_type;
    struct inspect_step step;
    bool fits;
    const char *fits_word;
    struct roofline limits;
    uint64_t flops;
    double mflop, tokens_per_s, bandwidth_gb_per_s;
    double predicted_us, least_us, most_us; /* of the measurements: the median, and its ends */
    char us[72], rate[72], bandwidth[72];   /* for people: as far as they are known */
    const char *limited_by;
};

#define N_MEMORY_FIELDS 12 /* those without times */
static const struct report_field step_fields[] = {
    {"variant", "a step of", MEMBER(info_step, variant)},
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
    {"predicted_us", NULL, MEMBER(info_step, predicted_us), "%.4g"},
    {"predicted_us_least", NULL, MEMBER(info_step, least_us), "%.4g"},
    {"predicted_us_most", NULL, MEMBER(info_step, most_us), "%.4g"},
    {"limit_tokens_per_s", NULL, MEMBER(info_step, tokens_per_s), .figure = figure_rate},
    {"bandwidth_gb_per_s", NULL, MEMBER(info_step, bandwidth_gb_per_s), "%.4g"},
    {"limited_by", "waits for", MEMBER(info_step, limited_by), .rank = 7},
};

static bool has_times(const struct info_settings *s)
{
    return s->kernels || s->limits.bytes_per_s > 0;
}

static int n_step_fields(const struct info_cost *cost)
{
    return has_times(&cost->settings) ? REPORT_LENGTH(step_fields) : N_MEMORY_FIELDS;
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
static void put_range(char *out, size_t size, double least, double most)
{
    const struct figure from = two_digits(least), to = two_digits(most);
    if (strcmp(from.text, to.text) == 0)
        snprintf(out, size, "%s", from.text);
    else
        snprintf(out, size, "%s to %s", from.text, to.text);
}

/* Adds how long the step takes by limits [n], slowest first by their bandwidth. */
static void predict_step(struct info_step *s, const struct roofline *limits, int n, bool measured)
{
    const struct roofline *median = &limits[n / 2];
    s->predicted_us = cost_step_us(&s->step.cost, s->batch, median);
    s->least_us = s->most_us = s->predicted_us;
    for (int i = 0; i < n; i++) {
        const double us = cost_step_us(&s->step.cost, s->batch, &limits[i]);
        s->least_us = fmin(s->least_us, us);
        s->most_us = fmax(s->most_us, us);
    }
    s->tokens_per_s = s->batch * 1e6 / s->predicted_us;
    s->bandwidth_gb_per_s = median->bytes_per_s / 1e9;
    s->limited_by = cost_part_names[cost_step_longest(&s->step.cost, s->batch, median)];
    if (measured) {
        put_range(s->us, sizeof s->us, s->least_us, s->most_us);
        put_range(s->rate, sizeof s->rate, s->batch * 1e6 / s->most_us,
                  s->batch * 1e6 / s->least_us);
        put_range(s->bandwidth, sizeof s->bandwidth, limits[0].bytes_per_s / 1e9,
                  limits[n - 1].bytes_per_s / 1e9);
        return;
    }
    snprintf(s->us, sizeof s->us, "%.1f", s->predicted_us);
    snprintf(s->rate, sizeof s->rate, "%s", figure_rate(s->tokens_per_s).text);
    snprintf(s->bandwidth, sizeof s->bandwidth, "%.1f", s->bandwidth_gb_per_s);
}

static int by_bandwidth(const void *a, const void *b)
{
    const double x = ((const struct roofline *)a)->bytes_per_s;
    const double y = ((const struct roofline *)b)->bytes_per_s;
    return (x > y) - (x < y);
}

/* Of every step: by what was given, or by several measurements of this machine. */
static enum status predict_steps(struct info_cost *cost, struct err *e)
{
    const struct info_settings *at = &cost->settings;
    struct machine machines[MEASUREMENTS] = {0};
    for (int m = 0; m < MEASUREMENTS && at->kernels; m++) {
        for (int i = 0; i < cost->n_steps; i++)
            machine_want(&machines[m], cost->steps[i].step.step_bytes);
        TRY(machine_measure(&machines[m], at->kernels, at->pool, MEASURE_SECONDS, e));
        machine_settle(&machines[m]);
    }
    for (int i = 0; i < cost->n_steps && has_times(at); i++) {
        struct info_step *s = &cost->steps[i];
        struct roofline limits[MEASUREMENTS] = {at->limits};
        for (int m = 0; m < MEASUREMENTS && at->kernels; m++)
            limits[m] = machine_limits(&machines[m], s->step.step_bytes);
        if (at->kernels)
            qsort(limits, MEASUREMENTS, sizeof *limits, by_bandwidth);
        predict_step(s, limits, at->kernels ? MEASUREMENTS : 1, at->kernels != NULL);
    }
    return STATUS_OK;
}

static void plan_step(struct info_cost *cost, const struct info_variants *v, int depth, int batch)
{
    const struct info_settings *at = &cost->settings;
    struct info_step *s = &cost->steps[cost->n_steps++];
    *s = (struct info_step){.n_kv_heads = v->now.n_kv_heads,
                            .depth = depth,
                            .batch = batch,
                            .kv_type = storage_name(at->kv_type),
                            .step = inspect_step(&v->shape, &v->now, at->kv_type, depth, batch)};
    snprintf(s->variant, sizeof s->variant, "%s", v->now.name);
    s->flops = cost_step_flops(&s->step.cost, batch);
    s->mflop = (double)s->flops / 1e6;
    s->fits = s->step.memory_bytes <= cost->available;
    s->fits_word = s->fits ? "yes" : "no";
}

static int count_variants(const struct info_cost *cost)
{
    struct info_variants v = {.n_ranks = 0};
    int n = 0;
    while (next_variant(cost, &v))
        n++;
    return n;
}

enum status info_cost_plan(struct info_cost *cost, struct err *e)
{
    const struct info_settings *s = &cost->settings;
    const size_t n = (size_t)count_variants(cost) * (size_t)s->n_depths * (size_t)s->n_batches;
    cost->available = available_memory();
    cost->steps = calloc(n + 1, sizeof *cost->steps);
    if (!cost->steps)
        return err_no_memory(e, "the list of steps", (n + 1) * sizeof *cost->steps);
    for (int d = 0; d < s->n_depths; d++)
        for (int b = 0; b < s->n_batches; b++) {
            struct info_variants v = {.n_ranks = 0};
            while (next_variant(cost, &v))
                plan_step(cost, &v, s->depths[d], s->batches[b]);
        }
    return predict_steps(cost, e);
}

void info_cost_free(struct info_cost *cost)
{
    free(cost->steps);
    free(cost->latent);
    cost->steps = NULL;
    cost->latent = NULL;
}

static void print_steps_heading(const struct info_cost *cost, struct output *out)
{
    const struct info_settings *s = &cost->settings;
    struct paragraph p = paragraph_begin(out, 0);
    paragraph_puts(&p,
                   "\nA step takes one token of each sequence of the batch: it reads the weights "
                   "once, and every\vsequence's cache");
    if (s->kernels)
        paragraph_printf(&p,
                         ", or waits for its arithmetic, as fast as was measured here, the least "
                         "to the most of %d times",
                         MEASUREMENTS);
    else if (has_times(s))
        paragraph_printf(&p, ", at %s GB/s", figure_exact(s->limits.bytes_per_s / 1e9).text);
    if (has_times(s) && !s->kernels && isfinite(s->limits.fma_flops_per_s))
        paragraph_printf(&p, ", or waits for its arithmetic, at %s GFLOP/s",
                         figure_exact(s->limits.fma_flops_per_s / 1e9).text);
    else if (has_times(s) && !s->kernels)
        paragraph_puts(&p, "; arithmetic is not counted (--flops GFLOP/s counts it)");
    paragraph_puts(&p, ".");
    if (cost->available != AVAILABLE_UNKNOWN)
        paragraph_printf(&p, " Free: %s.", figure_bytes((double)cost->available).text);
    paragraph_puts(&p, "\n\n");
    paragraph_end(&p);
}

struct table info_step_table(const struct info_cost *cost)
{
    struct table table = TABLE_OF(step_fields, cost->steps, cost->n_steps);
    table.n = n_step_fields(cost);
    return table;
}

/* --- the forms ------------------------------------------------------------------------------- */

enum status info_cost_print(const struct info_cost *cost, enum table_format format,
                            struct output *out, struct err *e)
{
    struct info_variants walk;
    const struct table variants = info_variant_table(cost, &walk), steps = info_step_table(cost);
    struct paragraph p = paragraph_begin(out, 0);
    print_formula(cost->shape->config, &p);
    paragraph_end(&p);
    TRY(table_print(&variants, NULL, format, out, e));
    if (!cost->shows_steps)
        return STATUS_OK;
    print_steps_heading(cost, out);
    return table_print(&steps, NULL, format, out, e);
}

void info_cost_json(const struct info_cost *cost, struct json *j)
{
    struct info_variants v = {.n_ranks = 0};
    json_begin_array(j, "kv_cache");
    while (next_variant(cost, &v))
        report_object(j, NULL, variant_fields, INFO_VARIANT_FIELDS, &v.now);
    json_end(j);
    if (!cost->shows_steps)
        return;
    if (cost->available == AVAILABLE_UNKNOWN)
        json_null(j, "memory_available_bytes");
    else
        json_u64(j, "memory_available_bytes", cost->available);
    json_begin_array(j, "steps");
    for (int i = 0; i < cost->n_steps; i++)
        report_object(j, NULL, step_fields, n_step_fields(cost), &cost->steps[i]);
    json_end(j);
}
