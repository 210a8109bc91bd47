#include "cli/info_cost.h"

#include "base/limits.h"

/* For which this machine is measured. */
#define MEASURE_SECONDS 2.0

/* Reads --bandwidth and --flops. For `auto` it only prepares their measurement. */
static enum status take_limits(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    const double flops = o->gflops > 0 ? o->gflops * 1e9 : HUGE_VAL;
    double gb_per_s;
    if (info_is_auto(o))
        return job_start_threads(info->job, e);
    if (!parse_double(o->bandwidth, &gb_per_s) || gb_per_s <= 0 || gb_per_s > MOST_GB_PER_S)
        return err_usage(
            e, "--bandwidth: expected auto or a number of GB/s above 0, at most %g, found '%.60s'",
            MOST_GB_PER_S, o->bandwidth);
    info->limits = (struct roofline){gb_per_s * 1e9, flops, flops};
    return STATUS_OK;
}

enum status info_plan_steps(struct info *info, struct err *e)
{
    const struct info_options *o = info->o;
    const bool steps_asked = o->depths || o->batches || o->bandwidth || o->shards;
    const int n_ctx = info->config.n_ctx, n_heads = info->config.n_heads;
    const enum storage kv_type = kv_type_storage[o->common.kv_type];
    struct int_list depths = {.n = 0}, batches = {.n = 0};
    struct machine machine = {0};
    char context[32];
    if (steps_asked && !info->runs)
        return err_usage(e, "%s: expected a checkpoint that runs",
                         o->shards ? "--shards" : "--depth, --batch and --bandwidth");
    /* Of a shape, which has nothing else to show, steps are always asked. */
    if (steps_asked || o->shapes.n > 0) {
        chars_printf(context, "%s%d", o->shapes.n > 1 ? "" : "0,", n_ctx);
        TRY(list_ints("--depth", o->depths ? o->depths : context, 0, n_ctx, &depths, e));
        TRY(list_ints("--batch", o->batches ? o->batches : "1", 1, INT_MAX, &batches, e));
    }
    if (o->bandwidth)
        TRY(take_limits(info, e));
    if (!info->has_config || info->refusal.text[0])
        return STATUS_OK;
    if (o->shards && n_heads % o->shards != 0)
        return err_usage(e, "--shards: expected a divisor of the %d query heads, found %d", n_heads,
                         o->shards);
    free(info->variants.items); /* another shape's */
    TRY(inspect_list_variants(&info->cost, &info->variants, e));
    const int n_variants = info->variants.n, n = n_variants * depths.n * batches.n;
    if (n == 0)
        return STATUS_OK;
    info->available = available_memory();
    const size_t bytes = ((size_t)info->n_steps + n) * sizeof *info->steps;
    struct info_step *const grown = realloc(info->steps, bytes), *step = grown + info->n_steps;
    if (!grown)
        return err_no_memory(e, "the list of steps", bytes);
    info->steps = grown;
    info->n_steps += n;
    for (int i = 0; i < n; i++, step++) {
        const int row = i / n_variants;
        const struct inspect_variant *v = &info->variants.items[i % n_variants];
        const struct cost_plan s =
            cost_plan(&v->shape, &v->weights, kv_type, depths.items[row / batches.n],
                      batches.items[row % batches.n]);
        const bool fits = s.memory_bytes <= (uint64_t)info->available;
        *step = (struct info_step){.shape = info->subject,
                                   .of = s,
                                   .cache_over_weights = (double)s.cache_bytes / s.weights_memory,
                                   .fits = fits,
                                   .fits_word = fits ? "yes" : "no"};
        chars_printf(step->variant, "%s", v->name);
        if (o->shards)
            step->shard = inspect_shard(v, &s, kv_type, o->shards);
        if (info_is_auto(o))
            machine_want(&machine, s.step_bytes);
    }
    if (info_is_auto(o)) {
        TRY(machine_measure(&machine, info->job->kernels, info->job->pool, MEASURE_SECONDS, e));
        machine_settle(&machine);
    }
    if (o->bandwidth)
        for (step -= n; step < grown + info->n_steps; step++) {
            const struct roofline l =
                info_is_auto(o) ? machine_limits(&machine, step->of.step_bytes) : info->limits;
            cost_predict(&step->of, &l);
        }
    return STATUS_OK;
}

/* --- tables ---------------------------------------------------------------------------------- */

static const struct report_field cache_fields[] = {
    {"variant", "KV cache of", MEMBER(inspect_variant, name)},
    {"n_kv_heads", "K/V heads", MEMBER(inspect_variant, config.n_kv_heads), .detail = true},
    {"parameters", "parameters", MEMBER(inspect_variant, weights.parameters), .grouped = true,
     .detail = true},
    {"bytes_per_token_f32", "bytes/token f32", MEMBER(inspect_variant, token_bytes[0]),
     .grouped = true},
    {"bytes_per_token_f16", "bytes/token f16", MEMBER(inspect_variant, token_bytes[1]),
     .grouped = true, .detail = true},
    {"bytes_per_token_q8_0", "bytes/token q8_0", MEMBER(inspect_variant, token_bytes[2]),
     .grouped = true, .detail = true},
    {"bytes_full_context_f32", "context f32", MEMBER(inspect_variant, full_bytes[0]),
     .figure = figure_bytes, .detail = true},
    {"bytes_full_context_f16", "context f16", MEMBER(inspect_variant, full_bytes[1]),
     .figure = figure_bytes, .detail = true},
    {"bytes_full_context_q8_0", "context q8_0", MEMBER(inspect_variant, full_bytes[2]),
     .figure = figure_bytes, .detail = true},
};

/* When a step's fields are shown. */
enum {
    SEVERAL = 1, /* there are several shapes */
    SHARDS = 2,
    TIMES = 4, /* with --bandwidth */
};
static const struct report_field step_fields[] = {
    {"shape", "shape", MEMBER(info_step, shape), .when = SEVERAL},
    {"variant", "a step of", MEMBER(info_step, variant)},
    {"n_kv_heads", NULL, MEMBER(info_step, of.n_kv_heads)},
    {"depth", "depth", MEMBER(info_step, of.depth), .detail = true},
    {"batch", "batch", MEMBER(info_step, of.batch), .detail = true},
    {"kv_type", "KV", MEMBER(info_step, of.kv_type), .detail = true},
    {"cache_bytes", "cache", MEMBER(info_step, of.cache_bytes), .figure = figure_bytes,
     .detail = true},
    {"memory_bytes", "with weights", MEMBER(info_step, of.memory_bytes), .figure = figure_bytes,
     .detail = true},
    {NULL, "fits", MEMBER(info_step, fits_word), .detail = true},
    {"fits", NULL, MEMBER(info_step, fits)},
    {"step_bytes", "read", MEMBER(info_step, of.step_bytes), .figure = figure_bytes,
     .detail = true},
    {"step_flops", "Mflop", MEMBER(info_step, of.flops), .figure = figure_millions, .detail = true},
    {"weight_bytes", "weights", MEMBER(info_step, of.weights_memory), .figure = figure_bytes,
     .detail = true, .when = SEVERAL},
    {"cache_over_weights", "cache/weights", MEMBER(info_step, cache_over_weights), "%.3f",
     .detail = true, .when = SEVERAL},
    {"shard_weight_bytes", "a shard's weights", MEMBER(info_step, shard.weight_bytes),
     .figure = figure_bytes, .when = SHARDS},
    {"shard_cache_bytes", "its cache", MEMBER(info_step, shard.cache_bytes), .figure = figure_bytes,
     .when = SHARDS},
    {"shard_kv_heads", "its K/V heads", MEMBER(info_step, shard.n_kv_heads), .when = SHARDS},
    {"kv_copies", "copies", MEMBER(info_step, shard.copies), "%.3g", .when = SHARDS},
    {"predicted_us", "µs", MEMBER(info_step, of.predicted.us), "%.1f", .detail = true,
     .when = TIMES},
    {"limit_tokens_per_s", "tokens/s", MEMBER(info_step, of.predicted.tokens_per_s),
     .figure = figure_rate, .when = TIMES},
    {"bandwidth_gb_per_s", "GB/s", MEMBER(info_step, of.bandwidth_gb_per_s), "%.1f", .detail = true,
     .when = TIMES},
    {"limited_by", "waits for", MEMBER(info_step, of.predicted.limited_by), .detail = true,
     .when = TIMES},
};

struct table info_cache_table(const struct info *info)
{
    return TABLE_OF(cache_fields, info->variants.items, info->variants.n);
}

struct table info_step_table(const struct info *info)
{
    const struct info_options *o = info->o;
    struct table t = TABLE_OF(step_fields, info->steps, info->n_steps);
    t.shown =
        (o->shapes.n > 1 ? SEVERAL : 0) | (o->shards > 0 ? SHARDS : 0) | (o->bandwidth ? TIMES : 0);
    return t;
}

void info_explain_caches(const struct config *c, struct output *out)
{
    struct paragraph p = paragraph_begin(out, 0);
    paragraph_printf(
        &p,
        "One token takes K/V heads of all layers (%" PRId64
        " in %d layers) x numbers of a key and of a value's room (%d + %d)\vx bytes of "
        "a number (f32 4, f16 2, q8_0 34/32); the cache is that x tokens x "
        "sequences.\n\n",
        config_all_kv_heads(c), c->n_layers, c->head_dim, kernel_padded(config_value_dim(c)));
    paragraph_end(&p);
}

void info_explain_steps(const struct info *info, struct output *out)
{
    const struct roofline *l = &info->limits;
    struct paragraph p = paragraph_begin(out, 0);
    paragraph_puts(&p, "A step takes one token of each sequence of the batch: it reads the weights "
                       "once, and every\vsequence's cache");
    if (l->bytes_per_s > 0)
        paragraph_printf(&p, ", at %s GB/s", figure_exact(l->bytes_per_s / 1e9).text);
    if (info_is_auto(info->o))
        paragraph_puts(&p, ", or waits for its arithmetic, as fast as was measured here");
    else if (isinf(l->fma_flops_per_s))
        paragraph_puts(&p, "; arithmetic is not counted (--flops GFLOP/s counts it)");
    else if (l->bytes_per_s > 0)
        paragraph_printf(&p, ", or waits for its arithmetic, at %s GFLOP/s",
                         figure_exact(l->fma_flops_per_s / 1e9).text);
    paragraph_puts(&p, ".");
    if (info->o->shards)
        paragraph_printf(&p,
                         "\vEach of %d shards holds its part of the query heads, the feed-forward "
                         "layer and the\vvocabulary, and the K/V heads that its query heads use: "
                         "where these are fewer than shards,\vseveral shards have copies.",
                         info->o->shards);
    if (info->available >= 0)
        paragraph_printf(&p, " Free: %s.", figure_bytes(info->available).text);
    paragraph_puts(&p, "\n\n");
    paragraph_end(&p);
}

/* --- shapes ---------------------------------------------------------------------------------- */

enum status info_read_shape(struct info *info, int i, struct err *e)
{
    const struct info_options *o = info->o;
    struct config *c = &info->config;
    const enum storage type = o->type ? o->type - 1 : STORAGE_F32;
    const struct shape_options of = {.shape = o->shapes.items[i], .arch = o->shape.arch};
    TRY(shape_of_options(&of, &o->common, c, e));
    job_say_fallback(&o->common, c, type);
    info->subject = of.shape;
    info->architecture = text_of(c->arch->name);
    info->type = storage_name(type);
    info->cost = (struct cost_shape){c, c->n_kv_heads, type, .tied = !c->arch->own_output};
    info->has_config = info->runs = true;
    return STATUS_OK;
}

struct listed_shape {
    struct named_shape of;
    uint64_t parameters;
};
static const struct report_field named_fields[] = {
    {"shape", "shape", MEMBER(listed_shape, of.name)},
    {"architecture", "architecture", MEMBER(listed_shape, of.arch), .detail = true},
    {"sizes", "sizes", MEMBER(listed_shape, of.sizes)},
    {"parameters", "parameters", MEMBER(listed_shape, parameters), .grouped = true},
    {"paper", "paper", MEMBER(listed_shape, of.paper), .detail = true},
};

static const void *listed_shape_at(void *arg, int i)
{
    struct listed_shape *shape = arg;
    struct config c;
    shape->of = named_shapes[i];
    if (!shape->of.name || shape_parse(shape->of.name, NULL, &c, NULL) != STATUS_OK)
        return NULL;
    const struct cost_shape cost = {
        .config = &c, .n_kv_heads = c.n_kv_heads, .tied = !c.arch->own_output};
    shape->parameters = cost_weights(&cost).parameters;
    return shape;
}

enum status info_list_shapes(struct job *j, struct err *e)
{
    struct listed_shape shape;
    const struct table t = {
        .fields = named_fields, .n = LENGTH(named_fields), .row = listed_shape_at, .arg = &shape};
    return job_print(j, &t, e);
}
