/*
 * cmd_info - decode info: what a checkpoint holds, what it or a shape costs.
 */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/info.h"
#include "cli/job.h"
#include "cli/numbers.h"
#include "cli/shape.h"

/* Of --bandwidth: with more, times are less than a double of microseconds shows. */
#define MOST_GB_PER_S 1e9

struct info_options {
    struct common_options common;
    bool tensors, check;
    struct shape_options shape;
    int type;   /* of storage_names, and 1 more; 0: not given */
    int output; /* of output_names; 0: as usual */
    const char *latent, *depths, *batches, *bandwidth;
    double gflops; /* per second; 0: not given */
};

static const char *const output_names[] = {"tied", "own", NULL};

#define VALUES struct info_options

static const struct option own_options[] = {
    OPT_FLAG("tensors", tensors,
             "list every tensor: name, shape (row length first), type, bytes, offset in the file"),
    OPT_FLAG("check", check,
             "read every tensor and count values that are not finite; exit code 3 if there are"),
    OPT_FORMAT,
    OPT_COLUMNS,
    OPT_END,
};

static const struct option shape_info_options[] = {
    OPT_CHOICE("type", type, "TYPE", storage_names, "type of its weight matrices",
               .otherwise = "f32", .needs = "shape"),
    OPT_CHOICE("output", output, "KIND", output_names,
               "its output matrix: the embedding, or one of its own",
               .otherwise = "llama: own, else tied", .needs = "shape"),
    OPT_END,
};

static const struct option step_options[] = {
    OPT_STRING("latent", latent, "R,R,...",
               "latent caches of these ranks as more variants (see convert --latent)"),
    OPT_STRING("depth", depths, "D,D,...", "tokens that every sequence has in its cache",
               .otherwise = "0 and the context"),
    OPT_STRING("batch", batches, "B,B,...", "sequences that a step serves", .otherwise = "1"),
    OPT_CHOICE("kv-type", common.kv_type, "TYPE", kv_type_names, "how keys and values are cached",
               .fallback = "f32"),
    OPT_STRING("bandwidth", bandwidth, "GB/s|auto",
               "predict a step's time on a machine that reads so fast; auto: this one, measured",
               .otherwise = "no prediction"),
    OPT_DOUBLE("flops", gflops, "GFLOP/s", 0, MOST_GB_PER_S,
               "and computes so fast, two operations a multiply-add", .above_min = true,
               .otherwise = "arithmetic is not counted", .needs = "bandwidth"),
    OPT_THREADS("threads that --bandwidth auto measures with", .needs = "bandwidth"),
    OPT_END,
};

static enum status read_names(struct info *info, struct err *e)
{
    bool found;
    const struct gguf *g = info->gguf;
    TRY(gguf_get_text(g, "general.architecture", &info->architecture, &found, e));
    TRY(gguf_get_text(g, "general.name", &info->name, &found, e));
    return gguf_get_text(g, "tokenizer.ggml.model", &info->tokenizer_model, &found, e);
}

/* What is wrong with a tokenizer is one of its properties. */
static enum status read_tokenizer(struct info *info, struct err *e)
{
    if (info->tokenizer_model.len == 0)
        return STATUS_OK;
    const enum status s = tokenizer_create(info->gguf, &info->tokenizer, &info->problem);
    if (s == STATUS_NO_MEMORY)
        return err_set(e, s, "%s", info->problem.text);
    if (s == STATUS_OK)
        (void)tokenizer_reads_text(info->tokenizer, &info->problem);
    return STATUS_OK;
}

static enum status read_parts(struct info *info, struct err *e)
{
    TRY(gguf_parse_file(&info->file, &info->gguf, e));
    TRY(read_names(info, e));
    inspect_parts(info->gguf, info->parts);
    /* Of the architectures that run here the hyperparameters must be readable; of others the keys
     * are shown. */
    if (!arch_find(info->architecture))
        return STATUS_OK;
    if (info->gguf->n_tensors > 0) {
        struct config config;
        TRY(config_parse(info->gguf, &info->config, e));
        info->has_config = true;
        info->runs = cost_shape_of_file(info->gguf, &info->config, &info->shape) &&
                     config_read(info->gguf, &config, &info->refusal) == STATUS_OK;
    }
    return read_tokenizer(info, e);
}

static enum status count_nonfinite(struct info *info, struct err *e)
{
    const size_t n = info->gguf->n_tensors;
    info->checks = calloc(n + 1, sizeof *info->checks);
    if (!info->checks)
        return err_no_memory(e, "the list of checks", (n + 1) * sizeof *info->checks);
    for (size_t i = 0; i < n; i++)
        info->checks[i] = inspect_check_tensor(&info->gguf->tensors[i]);
    return STATUS_OK;
}

/* STATUS_BAD_FILE naming the first tensor with values that are not finite, if one has. */
static enum status refuse_nonfinite(const struct info *info, struct err *e)
{
    for (size_t i = 0; info->checks && i < info->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &info->gguf->tensors[i];
        const struct inspect_check *c = &info->checks[i];
        if (c->nan + c->inf > 0)
            return err_set(e, STATUS_BAD_FILE,
                           "%.200s: tensor '%.*s' has %" PRIu64 " values that are not finite, the "
                           "first%s at element %" PRIu64,
                           info->path, text_width(t->name), t->name.data, c->nan + c->inf,
                           c->scales_only ? " (a block's scale)" : "", c->first);
    }
    return STATUS_OK;
}

/* --- costs ----------------------------------------------------------------------------------- */

/* What is asked about steps; info's cost borrows it. */
struct asked_steps {
    struct int_list ranks, depths, batches;
    struct job *job;
};

static enum status read_bandwidth(const struct info_options *o, struct asked_steps *a,
                                  struct info_settings *s, struct err *e)
{
    double gb_per_s;
    if (!o->bandwidth)
        return STATUS_OK;
    const bool is_auto = strcmp(o->bandwidth, "auto") == 0;
    if (is_auto && o->gflops > 0)
        return err_set(e, STATUS_USAGE,
                       "--flops is for a --bandwidth in GB/s; auto measures arithmetic, too");
    if (is_auto) {
        TRY(job_start_threads(a->job, e));
        s->kernels = a->job->kernels;
        s->pool = a->job->pool;
        return STATUS_OK;
    }
    if (o->common.threads)
        return err_set(e, STATUS_USAGE, "-t is for --bandwidth auto; expected none with '%.60s'",
                       o->bandwidth);
    if (!parse_double(o->bandwidth, &gb_per_s) || gb_per_s <= 0 || gb_per_s > MOST_GB_PER_S)
        return err_set(e, STATUS_USAGE,
                       "--bandwidth: expected auto or GB/s above 0, at most %g, found '%.60s'",
                       MOST_GB_PER_S, o->bandwidth);
    const double flops = o->gflops > 0 ? o->gflops * 1e9 : (double)INFINITY;
    s->limits = (struct roofline){gb_per_s * 1e9, flops, flops};
    return STATUS_OK;
}

static enum status read_steps(const struct info_options *o, const struct config *c,
                              struct asked_steps *a, struct info_settings *s, struct err *e)
{
    if (o->depths) {
        TRY(list_ints("--depth", o->depths, 0, c->n_ctx, &a->depths, e));
    } else {
        TRY(list_add("--depth", 0, &a->depths, e));
        TRY(list_add("--depth", c->n_ctx, &a->depths, e));
    }
    TRY(list_ints("--batch", o->batches ? o->batches : "1", 1, INT_MAX, &a->batches, e));
    s->depths = a->depths.items;
    s->batches = a->batches.items;
    s->n_depths = a->depths.n;
    s->n_batches = a->batches.n;
    s->kv_type = kv_type_storage[o->common.kv_type];
    return read_bandwidth(o, a, s, e);
}

static enum status read_ranks(const struct info_options *o, struct info *info,
                              struct asked_steps *a, struct err *e)
{
    struct info_settings *s = &info->cost.settings;
    if (!o->latent)
        return STATUS_OK;
    if (!info->runs)
        return err_set(e, STATUS_USAGE, "--latent: expected a checkpoint that runs");
    TRY(list_ints("--latent", o->latent, 1, CONFIG_MAX_WIDTH, &a->ranks, e));
    for (int i = 0; i < a->ranks.n; i++)
        TRY(config_check_rank(&info->config, a->ranks.items[i], e));
    info->cost.latent = malloc(sizeof *info->cost.latent);
    if (!info->cost.latent)
        return err_no_memory(e, "the latent variants", sizeof *info->cost.latent);
    s->ranks = a->ranks.items;
    s->n_ranks = a->ranks.n;
    return STATUS_OK;
}

/* Whether somebody asks about steps; of a shape, which has nothing else to show, always. */
static bool asks_steps(const struct info_options *o)
{
    return o->shape.shape || o->depths || o->batches || o->bandwidth;
}

static enum status plan_cost(const struct info_options *o, struct asked_steps *a, struct info *info,
                             struct err *e)
{
    info_cost_begin(&info->cost, &info->shape);
    TRY(read_ranks(o, info, a, e));
    info->cost.shows_steps = info->runs && asks_steps(o);
    if (!info->cost.shows_steps)
        return STATUS_OK;
    TRY(read_steps(o, &info->config, a, &info->cost.settings, e));
    return info_cost_plan(&info->cost, e);
}

/* --- from options to tables ------------------------------------------------------------------ */

/* A shape instead of a file. */
static enum status read_shape(const struct info_options *o, struct info *info, struct err *e)
{
    TRY(shape_of_options(&o->shape, &o->common, &info->config, e));
    const enum storage type = o->type ? (enum storage)(o->type - 1) : STORAGE_F32;
    TRY(model_check_storage(&info->config, type, e));
    info->shape_text = o->shape.shape;
    info->shape =
        (struct cost_shape){.config = &info->config,
                            .n_kv_heads = info->config.n_kv_heads,
                            .storage = type,
                            .tied = o->output ? o->output == 1 : !info->config.arch->own_output};
    info->has_config = info->runs = true;
    inspect_shape_parts(&info->shape, info->parts);
    return STATUS_OK;
}

static enum status read_file(const struct info_options *o, struct info *info, struct err *e)
{
    TRY(job_map(info->path, &info->file, e));
    enum status s = read_parts(info, e);
    if (s == STATUS_OK && o->check)
        s = count_nonfinite(info, e);
    if (s != STATUS_OK)
        err_prefix(e, info->path);
    return s;
}

static enum status show_info(const struct info_options *o, struct asked_steps *a, struct info *info,
                             struct err *e)
{
    TRY(o->shape.shape ? read_shape(o, info, e) : read_file(o, info, e));
    TRY(plan_cost(o, a, info, e));
    TRY(info_print(info, e));
    return refuse_nonfinite(info, e);
}

static enum status check_info(struct job *j, void *values, struct err *e)
{
    const struct info_options *o = values;
    if (o->shape.shape && (o->tensors || o->check))
        return err_set(e, STATUS_USAGE, "%s is for a checkpoint; --shape has no file",
                       o->tensors ? "--tensors" : "--check");
    if (o->shape.shape)
        j->needs &= ~(unsigned)JOB_PATH;
    if (o->bandwidth && strcmp(o->bandwidth, "auto") == 0)
        j->needs |= JOB_WORKERS;
    return STATUS_OK;
}

static enum status run_info(struct job *j, void *values, struct err *e)
{
    const struct info_options *o = values;
    struct asked_steps asked = {.job = j};
    struct info info = {.path = j->path,
                        .architecture = {"", 0},
                        .name = {"", 0},
                        .tokenizer_model = {"", 0},
                        .list_tensors = o->tensors,
                        .format = (enum table_format)o->common.format,
                        .columns = o->common.columns,
                        .out = j->out};
    const enum status s = show_info(o, &asked, &info, e);
    info_cost_free(&info.cost);
    free(info.checks);
    tokenizer_free(info.tokenizer);
    gguf_free(info.gguf);
    file_map_close(&info.file);
    return s;
}

const struct command command_info = {
    .name = "info",
    .summary = "what a checkpoint holds, what it costs",
    .usage = "(MODEL | --shape SHAPE) [options]",
    .notes =
        "Architecture and hyperparameters, parameters and bytes by part, and the KV cache of\n"
        "every variant: as many K/V heads as query heads (MHA), one (MQA), or between (GQA).\n"
        "With --shape, or any option of steps: what a step of every variant holds and reads at\n"
        "each depth and batch, and whether weights and caches fit the memory that is free.\n"
        "With --bandwidth also how long it takes at least: what `decode bench` measures, without\n"
        "measuring. With --flops, too, it is for the products and for attention the larger of\n"
        "what bytes and operations take; else reading is all that takes time. auto measures both,\n"
        "reading as many bytes as the step does (at the next power of two, 512 MiB at most), five\n"
        "times: times are the least to the most of these, in two digits.\n"
        "JSON has the properties, parameters, weights, biases and bytes by part,\n"
        "attention_4_d_model_squared, kv_cache (variant, n_kv_heads, parameters,\n"
        "bytes_per_token_TYPE, bytes_full_context_TYPE), memory_available_bytes, and steps:\n"
        "variant, n_kv_heads, depth, batch, kv_type, cache_bytes (of all sequences),\n"
        "memory_bytes (weights and caches), fits, step_bytes (read), step_flops, predicted_us\n"
        "(the median, and predicted_us_least and _most), limit_tokens_per_s, bandwidth_gb_per_s, "
        "limited_by. CSV holds the parts, or the\n"
        "steps if there are options of steps, or with --tensors or --check the tensors.\n",
    .spec = {.groups = {{"Contents", own_options, 0},
                        {"A shape instead of a checkpoint", shape_options, offsetof(VALUES, shape)},
                        {"The shape's weights", shape_info_options, 0},
                        {"Steps", step_options, 0},
                        GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH,
    .check = check_info,
    .run = run_info,
};
