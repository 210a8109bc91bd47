/*
 * cmd_info - decode info: what a checkpoint holds and what its cache costs.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "cli/command.h"
#include "cli/common.h"
#include "cli/info.h"
#include "cli/source.h"

struct info_options {
    struct common_options common;
    bool tensors, check;
    double bandwidth;
    int format;
};

#define VALUES struct info_options

static const struct option own_options[] = {
    OPT_FLAG("tensors", tensors,
             "list every tensor: name, shape (row length first), type, bytes, offset in the file"),
    OPT_FLAG("check", check,
             "read every tensor and count values that are not finite; exit code 3 if there are"),
    OPT_DOUBLE("bandwidth", bandwidth, "GB/s", 0, HUGE_VAL,
               "predict every variant's time per token on a machine that reads so fast",
               .otherwise = "no prediction", .above_min = true),
    OPT_FORMAT,
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
    inspect_parts(info->gguf, info->parts, &info->parts[INSPECT_PARTS]);
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

static enum status show_info(struct info *info, bool check, struct err *e)
{
    const enum status s = read_parts(info, e);
    if (s != STATUS_OK) {
        err_prefix(e, info->path);
        return s;
    }
    if (check)
        TRY(count_nonfinite(info, e));
    TRY(info_print(info, e));
    return refuse_nonfinite(info, e);
}

static enum status run_info(const struct invocation *inv, const void *values, struct err *e)
{
    const struct info_options *o = values;
    struct info info = {.architecture = {"", 0},
                        .name = {"", 0},
                        .tokenizer_model = {"", 0},
                        .bytes_per_s = o->bandwidth * 1e9,
                        .list_tensors = o->tensors,
                        .format = (enum table_format)o->format,
                        .out = inv->out};
    TRY(common_model_path(&o->common, &info.path, e));
    enum status s = source_open(info.path, &info.file, e);
    if (s == STATUS_OK)
        s = show_info(&info, o->check, e);
    free(info.checks);
    tokenizer_free(info.tokenizer);
    gguf_free(info.gguf);
    file_map_close(&info.file);
    return s;
}

const struct command command_info = {
    .name = "info",
    .summary = "what a checkpoint holds, what it costs",
    .usage = "MODEL [options]",
    .notes = "Architecture and hyperparameters, parameters and bytes by part, and the KV cache of\n"
             "every variant: as many K/V heads as query heads (MHA), one (MQA), or between (GQA).\n"
             "With --bandwidth the time per token that follows if reading the weights and the\n"
             "cache is all that takes time: what `decode bench` measures, without measuring.\n"
             "CSV holds the parts, or with --tensors or --check the tensors.\n",
    .spec = {.groups = {{"Contents", own_options, 0}, COMMON_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .run = run_info,
};
