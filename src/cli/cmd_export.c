/*
 * cmd_export - decode export: a GGUF checkpoint to a Hugging Face folder.
 */
#include <stdlib.h>

#include "cli/job.h"
#include "convert/quantize.h"
#include "exchange/exchange.h"
#include "show/report.h"

struct export_command {
    struct common_options common;
    int type;
    bool expand;
};

#define VALUES struct export_command

/* What transformers has. */
static const char *const type_names[] = {"as-is", "f32", "f16", "bf16", NULL};
static const uint32_t types[] = {0, TENSOR_F32, TENSOR_F16, TENSOR_BF16};

static const struct option own_options[] = {
    OPT_STRING("output", common.out, "DIR", "the new folder; required", .letter = 'o',
               .writes = WRITES_OTHER),
    OPT_FLAG("force", common.force, "write into DIR if it exists; files of other names stay"),
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

static enum status export_and_tell(const struct gguf *g, struct job *j, bool expand, struct err *e)
{
    struct export_result result;
    const struct export_options options = {.expand = expand, .notes = {say_note, j->common}};
    TRY(export_folder(g, &options, j->common->out, &result, e));
    const struct table table = TABLE_OF(fields, &result, 1);
    return job_print(j, &table, 1, e);
}

/* In another type: of a copy in memory. */
static enum status export_as(const struct export_command *o, struct job *j, struct err *e)
{
    struct quantize q;
    struct gguf *copy = NULL;
    unsigned char *bytes = NULL;
    size_t len = 0;
    TRY(job_start_threads(j, e));
    struct quantize_params params = {
        .type = types[o->type], .requantize = true, .gguf = j->checkpoint.gguf, .pool = j->pool};
    TRY(quantize_plan(&params, &q, e));
    enum status s = quantize_write_memory(&q, &bytes, &len, e);
    quantize_free(&q);
    if (s == STATUS_OK)
        s = gguf_parse(bytes, len, &copy, e);
    if (s == STATUS_OK)
        s = export_and_tell(copy, j, o->expand, e);
    gguf_free(copy);
    free(bytes);
    return s;
}

static enum status run_export(struct job *j, void *values, struct err *e)
{
    const struct export_command *o = values;
    const enum status s =
        o->type ? export_as(o, j, e) : export_and_tell(j->checkpoint.gguf, j, o->expand, e);
    if (s == STATUS_BAD_FILE || s == STATUS_USAGE)
        err_prefix(e, j->path);
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
    .spec = {.groups = {{"Conversion", own_options, 0}, GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_OUT | JOB_WORKERS | JOB_CHECKPOINT,
    .run = run_export,
};
