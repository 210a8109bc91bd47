/*
 * cmd_export - decode export: a GGUF checkpoint to a Hugging Face folder.
 */
#include <stdlib.h>

#include "cli/columns.h"
#include "cli/command.h"
#include "cli/paths.h"
#include "cli/runtime.h"
#include "convert/quantize.h"
#include "exchange/export.h"
#include "show/report.h"

struct export_command {
    struct common_options common;
    const char *out, *threads;
    int type;
    bool force, expand;
    int format;
};

#define VALUES struct export_command

/* What transformers has. */
static const char *const type_names[] = {"as-is", "f32", "f16", "bf16", NULL};
static const uint32_t types[] = {0, TENSOR_F32, TENSOR_F16, TENSOR_BF16};

static const struct option own_options[] = {
    OPT_STRING("output", out, "DIR", "the new folder; required", .letter = 'o', .writes = true),
    OPT_FLAG("force", force, "write into DIR if it exists; files of other names stay"),
    OPT_FLAG("expand", expand, "repeat K/V heads until there are as many as heads (MHA)"),
    OPT_CHOICE("type", type, "TYPE", type_names,
               "type of the weight matrices; as-is: blocks become f32", .fallback = "as-is"),
    OPT_THREADS(THREADS_HELP),
    OPT_FORMAT,
    OPT_END,
};

static const struct report_field fields[] = {
    {"class", "class", MEMBER(export_result, model_class)},
    {"variant", "variant", MEMBER(export_result, variant)},
    {"dtype", "dtype", MEMBER(export_result, dtype)},
    {"tensors", "tensors", MEMBER(export_result, n_tensors)},
    {"tensor_bytes", "bytes", MEMBER(export_result, n_bytes)},
};

static void say_note(void *arg, const char *text)
{
    say(arg, "%s", text);
}

static enum status export_and_tell(const struct export_command *o, const struct gguf *g,
                                   struct output *out, struct err *e)
{
    struct export_result result;
    struct common_options common = o->common;
    const struct export_options options = {.expand = o->expand, .notes = {say_note, &common}};
    TRY(export_folder(g, &options, o->out, &result, e));
    const struct table table = TABLE_OF(fields, &result, 1);
    return table_print(&table, NULL, (enum table_format)o->format, out, e);
}

/* In another type: of a copy in memory. */
static enum status export_as(const struct export_command *o, const struct gguf *g, uint32_t type,
                             struct output *out, struct err *e)
{
    struct quantize q;
    struct gguf *copy = NULL;
    unsigned char *bytes = NULL;
    size_t len = 0;
    struct quantize_params params = {.type = type, .requantize = true, .gguf = g};
    TRY(runtime_workers(&o->common, o->threads, NULL, &params.pool, e));
    enum status s = quantize_plan(&params, &q, e);
    if (s == STATUS_OK) {
        s = quantize_write_memory(&q, &bytes, &len, e);
        quantize_free(&q);
    }
    if (s == STATUS_OK)
        s = gguf_parse(bytes, len, &copy, e);
    if (s == STATUS_OK)
        s = export_and_tell(o, copy, out, e);
    gguf_free(copy);
    free(bytes);
    pool_free(params.pool);
    return s;
}

static enum status run_export(const struct invocation *inv, const void *values, struct err *e)
{
    const struct export_command *o = values;
    struct checkpoint c;
    const char *model;
    TRY(common_model_path(&o->common, &model, e));
    TRY(path_new(o->out, o->force, e));
    TRY(common_open(model, 0, &c, e));
    const enum status s = o->type ? export_as(o, c.gguf, types[o->type], inv->out, e)
                                  : export_and_tell(o, c.gguf, inv->out, e);
    if (s == STATUS_BAD_FILE || s == STATUS_USAGE)
        err_prefix(e, model);
    checkpoint_close(&c);
    return s;
}

const struct command command_export = {
    .name = "export",
    .summary = "a GGUF checkpoint to a Hugging Face folder",
    .usage = "MODEL -o DIR [options]",
    .notes =
        "DIR gets config.json, generation_config.json, model.safetensors and the vocabulary's\n"
        "files; transformers' AutoModelForCausalLM.from_pretrained(DIR) loads it with the logits\n"
        "it has here. GPT-2s with as many K/V heads as heads become GPT2LMHeadModel, with one\n"
        "GPTBigCodeForCausalLM; between them lies what transformers has no class for: --expand\n"
        "repeats the shared heads, which takes the memory that sharing had saved. Llamas become\n"
        "LlamaForCausalLM. What cannot be said there is refused, naming why.\n",
    .spec = {.groups = {{"Conversion", own_options, 0}, COMMON_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .run = run_export,
};
