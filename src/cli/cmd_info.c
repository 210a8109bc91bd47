/*
 * cmd_info - decode info: what a checkpoint holds, what it or a shape costs.
 */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
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
    OPT_STRING(
        "bandwidth", bandwidth, "GB/s|auto",
        "predict a step's time on a machine that reads so fast; auto: this one, measured with "
        "DECODE_THREADS threads",
        .otherwise = "no prediction"),
    OPT_DOUBLE("flops", gflops, "GFLOP/s", 0, MOST_GB_PER_S,
               "and computes so fast, two operations a multiply-add", .above_min = true,
               .otherwise = "arithmetic is not counted", .needs = "bandwidth"),
    OPT_END,
};

/* --- a checkpoint ---------------------------------------------------------------------------- */

/* What is wrong with a tokenizer is one of its properties. */
static enum status read_tokenizer(struct info *info, struct err *e)
{
    if (info->tokenizer_model.len == 0)
        return STATUS_OK;
    const enum status s = tokenizer_create(info->gguf, &info->tokenizer, &info->tokenizer_problem);
    if (s == STATUS_NO_MEMORY)
        return err_set(e, s, "%s", info->tokenizer_problem.text);
    if (s == STATUS_OK)
        (void)tokenizer_reads_text(info->tokenizer, &info->tokenizer_problem);
    if (info->tokenizer_problem.text[0])
        info->problem = info->tokenizer_problem.text;
    if (!info->tokenizer)
        return STATUS_OK;
    info->n_tokens = tokenizer_n_tokens(info->tokenizer);
    info->bos = tokenizer_bos(info->tokenizer);
    info->eos = tokenizer_eos(info->tokenizer);
    info->adds_bos = tokenizer_adds_bos(info->tokenizer);
    if (info->bos >= 0)
        snprintf(info->bos_note, sizeof info->bos_note, "%d%s", (int)info->bos,
                 info->adds_bos ? ", before every text" : "");
    return STATUS_OK;
}

/* Lists the tensors, checked if that is wanted. */
static enum status list_tensors(struct info *info, struct err *e)
{
    const struct gguf *g = info->gguf;
    info->tensors = calloc(g->n_tensors + 1, sizeof *info->tensors);
    if (!info->tensors)
        return err_no_memory(e, "the list of tensors", (g->n_tensors + 1) * sizeof *info->tensors);
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct info_tensor *t = &info->tensors[i];
        struct info_check *sum = &info->check;
        *t = (struct info_tensor){.tensor = g->tensors[i],
                                  .type = g->tensors[i].type->name,
                                  .offset = (uint64_t)(g->tensors[i].data - info->file.data),
                                  .nan = -1,
                                  .inf = -1};
        size_t used = 0;
        for (int d = 0; d < t->tensor.n_dims; d++)
            used += (size_t)snprintf(t->shape + used, sizeof t->shape - used, "%s%" PRIu64,
                                     d ? " x " : "", t->tensor.dims[d]);
        if (!info->check_tensors)
            continue;
        const struct inspect_check c = inspect_check_tensor(&t->tensor);
        const uint64_t bad = c.nan + c.inf;
        sum->checked += c.checked;
        sum->unchecked += !c.checked;
        sum->scales += c.scales_only;
        sum->nan += c.nan;
        sum->inf += c.inf;
        sum->bad += bad > 0;
        if (c.checked) {
            t->nan = (int64_t)c.nan;
            t->inf = (int64_t)c.inf;
        }
        if (bad > 0 && sum->bad == 1)
            err_set(&info->first_bad, STATUS_BAD_FILE,
                    "%.200s: tensor '%.*s' has %" PRIu64 " values that are not finite, the "
                    "first%s at element %" PRIu64,
                    info->path, text_width(t->tensor.name), t->tensor.name.data, bad,
                    c.scales_only ? " (a block's scale)" : "", c.first);
    }
    return STATUS_OK;
}

static enum status read_parts(struct info *info, struct err *e)
{
    bool found;
    TRY(gguf_parse_file(&info->file, &info->gguf, e));
    const struct gguf *g = info->gguf;
    TRY(gguf_get_text(g, "general.architecture", &info->architecture, &found, e));
    TRY(gguf_get_text(g, "general.name", &info->name, &found, e));
    TRY(gguf_get_text(g, "tokenizer.ggml.model", &info->tokenizer_model, &found, e));
    info->file_bytes = info->file.len;
    info->gguf_version = g->version;
    info->n_keys = g->n_pairs;
    info->n_tensors = g->n_tensors;
    snprintf(info->size, sizeof info->size, "%s (%zu bytes)",
             figure_bytes((double)info->file.len).text, info->file.len);
    snprintf(info->format_line, sizeof info->format_line, "GGUF version %u, %zu keys, %zu tensors",
             g->version, g->n_pairs, g->n_tensors);
    info->shape = (struct cost_shape){.tied = layout_output_tied(g), .gguf = g};
    /* Of the architectures that run here the hyperparameters must be readable; of others the keys
     * are shown. */
    if (arch_find(info->architecture) && g->n_tensors > 0) {
        struct config config;
        TRY(config_parse(g, &info->config, e));
        info->has_config = true;
        info->runs = cost_shape_of_file(g, &info->config, &info->shape) &&
                     config_read(g, &config, &info->refusal) == STATUS_OK;
        if (info->refusal.text[0])
            info->does_not_run = info->refusal.text;
    }
    if (arch_find(info->architecture))
        TRY(read_tokenizer(info, e));
    return info->list_tensors || info->check_tensors ? list_tensors(info, e) : STATUS_OK;
}

/* --- a config in words ----------------------------------------------------------------------- */

/* "6, 2, 1": K/V heads or ranks layer by layer, where one number does not say it. */
static enum status describe_layers(struct info *info, struct err *e)
{
    const struct config *c = &info->config;
    const bool latent = config_is_latent(c);
    if (!latent && config_same_kv_heads(c))
        return STATUS_OK;
    for (int l = 0; l < c->n_layers; l++) {
        char number[24];
        snprintf(number, sizeof number, "%s%d", l ? ", " : "",
                 latent ? config_latent(c, l) : config_kv_heads(c, l));
        if (!bytes_put(&info->by_layer, text_of(number)))
            return err_no_memory(e, "the numbers of all layers", info->by_layer.len);
    }
    *(latent ? &info->latent : &info->kv_heads) = bytes_text(&info->by_layer);
    return STATUS_OK;
}

static enum status describe_config(struct info *info, struct err *e)
{
    const struct config *c = &info->config;
    config_variant_name(c, c->n_kv_heads, info->variant);
    info->norm = arch_norm_names[c->norm];
    info->placement = arch_placement_names[c->placement];
    info->position = arch_position_names[c->position];
    info->ffn = arch_ffn_names[c->ffn];
    info->norm_eps = (double)c->norm_eps;
    info->value_dim = config_value_dim(c);
    const int used = snprintf(info->block, sizeof info->block, "%s norm %s, positions %s, %s%s",
                              info->norm, info->placement, info->position, info->ffn,
                              c->shared ? ", shared by all layers" : "");
    if (info->value_dim != c->head_dim)
        snprintf(info->block + used, sizeof info->block - (size_t)used, ", values of %d",
                 info->value_dim);
    return describe_layers(info, e);
}

/* --- what is asked of steps ------------------------------------------------------------------ */

static enum status read_bandwidth(struct job *j, const struct info_options *o, struct info_asked *a,
                                  struct err *e)
{
    double gb_per_s;
    const bool is_auto = strcmp(o->bandwidth, "auto") == 0;
    if (is_auto && o->gflops > 0)
        return err_set(e, STATUS_USAGE,
                       "--flops is for a --bandwidth in GB/s; auto measures arithmetic, too");
    if (is_auto) {
        TRY(job_start_threads(j, e));
        a->kernels = j->kernels;
        a->pool = j->pool;
        return STATUS_OK;
    }
    if (!parse_double(o->bandwidth, &gb_per_s) || gb_per_s <= 0 || gb_per_s > MOST_GB_PER_S)
        return err_set(e, STATUS_USAGE,
                       "--bandwidth: expected auto or GB/s above 0, at most %g, found '%.60s'",
                       MOST_GB_PER_S, o->bandwidth);
    const double flops = o->gflops > 0 ? o->gflops * 1e9 : (double)INFINITY;
    a->limits = (struct roofline){gb_per_s * 1e9, flops, flops};
    return STATUS_OK;
}

static enum status plan_cost(struct job *j, const struct info_options *o, struct info *info,
                             struct err *e)
{
    struct info_asked *a = &info->asked;
    /* Of a shape, which has nothing else to show, steps are always asked. */
    const bool steps = info->runs && (o->shape.shape || o->depths || o->batches || o->bandwidth);
    if (o->latent && !info->runs)
        return err_set(e, STATUS_USAGE, "--latent: expected a checkpoint that runs");
    if (o->latent)
        TRY(list_ints("--latent", o->latent, 1, CONFIG_MAX_WIDTH, &a->ranks, e));
    for (int i = 0; i < a->ranks.n; i++)
        TRY(config_check_rank(&info->config, a->ranks.items[i], e));
    if (steps) {
        char context[32];
        snprintf(context, sizeof context, "0,%d", info->config.n_ctx);
        TRY(list_ints("--depth", o->depths ? o->depths : context, 0, info->config.n_ctx, &a->depths,
                      e));
        TRY(list_ints("--batch", o->batches ? o->batches : "1", 1, INT_MAX, &a->batches, e));
        a->kv_type = kv_type_storage[o->common.kv_type];
        if (o->bandwidth)
            TRY(read_bandwidth(j, o, a, e));
    }
    return info->has_config && !info->does_not_run ? info_plan_cost(info, steps, e) : STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* A shape instead of a file. */
static enum status read_info_shape(const struct info_options *o, struct info *info, struct err *e)
{
    const enum storage type = o->type ? (enum storage)(o->type - 1) : STORAGE_F32;
    TRY(shape_of_options(&o->shape, &o->common, &info->config, e));
    TRY(model_check_storage(&info->config, type, e));
    info->shape_text = o->shape.shape;
    info->architecture = text_of(info->config.arch->name);
    info->type = storage_name(type);
    info->shape =
        (struct cost_shape){.config = &info->config,
                            .n_kv_heads = info->config.n_kv_heads,
                            .storage = type,
                            .tied = o->output ? o->output == 1 : !info->config.arch->own_output};
    info->has_config = info->runs = true;
    return STATUS_OK;
}

static enum status show_info(struct job *j, const struct info_options *o, struct info *info,
                             struct err *e)
{
    if (o->shape.shape) {
        TRY(read_info_shape(o, info, e));
    } else {
        TRY(job_map(info->path, &info->file, e));
        TRY(err_in(e, read_parts(info, e), "%s", info->path));
    }
    inspect_parts(&info->shape, info->parts);
    info->tied = info->shape.tied;
    info->output = info->tied ? "tied to the embedding" : "its own matrix";
    if (info->has_config)
        TRY(describe_config(info, e));
    TRY(plan_cost(j, o, info, e));
    TRY(info_print(info, e));
    return info->check.bad ? err_set(e, STATUS_BAD_FILE, "%s", info->first_bad.text) : STATUS_OK;
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
    struct info info = {.path = j->path,
                        .architecture = {"", 0},
                        .name = {"", 0},
                        .tokenizer_model = {"", 0},
                        .kv_heads = {"", 0},
                        .latent = {"", 0},
                        .list_tensors = o->tensors,
                        .check_tensors = o->check,
                        .format = (enum table_format)o->common.format,
                        .columns = o->common.columns,
                        .out = j->out};
    const enum status s = show_info(j, o, &info, e);
    free(info.steps);
    free(info.variants.items);
    free(info.tensors);
    bytes_free(&info.by_layer);
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
