/*
 * cmd_export - decode export: a GGUF checkpoint to a Hugging Face folder.
 */
#include "cli/job.h"
#include "exchange/exchange.h"

struct export_command {
    struct common_options common;
    bool expand;
};

#define VALUES struct export_command

static const struct option own_options[] = {
    OPT_STRING("output", common.out, "DIR", "the new folder; required", .letter = 'o',
               .writes = WRITES_OTHER),
    OPT_FLAG("force", common.force, "write into DIR if it exists; files of other names stay"),
    OPT_FLAG("expand", expand, "repeat K/V heads until there are as many as heads (MHA)"),
    OPT_FORMAT,
    OPT_END,
};

static const struct report_field fields[] = {
    {"class", "class", MEMBER(export_result, model_class)},
    {COLUMN(export_result, variant)},
    {COLUMN(export_result, dtype)},
    {"tensors", "tensors", MEMBER(export_result, n_tensors)},
    {"tensor_bytes", "bytes", MEMBER(export_result, n_bytes)},
};

static enum status run_export(struct job *j, void *values, struct err *e)
{
    const struct export_command *o = values;
    struct export_result result;
    const struct export_options options = {.expand = o->expand, .notes = {job_say_note, j->common}};
    const enum status s = export_folder(j->checkpoint.gguf, &options, j->common->out, &result, e);
    if (s == STATUS_BAD_FILE || s == STATUS_USAGE)
        err_prefix(e, j->path);
    TRY(s);
    return job_print(j, &TABLE_OF(fields, &result, 1), e);
}

const struct command command_export = {
    .name = "export",
    .summary = "a GGUF checkpoint to a Hugging Face folder",
    .usage = "MODEL DIR [options]",
    .examples = "./decode export models/shakespeare-mha.gguf hf-mha\n"
                "./decode export models/shakespeare-gqa2.gguf hf-gqa2 --expand\n",
    .notes =
        "DIR gets config.json, generation_config.json, model.safetensors and the vocabulary's\n"
        "files; transformers' AutoModelForCausalLM.from_pretrained(DIR) loads it with the logits\n"
        "it has here. GPT-2s with as many K/V heads as heads become GPT2LMHeadModel, with one\n"
        "GPTBigCodeForCausalLM; between them lies what transformers has no class for: --expand\n"
        "repeats the shared heads, which takes the memory that sharing had saved. Llamas become\n"
        "LlamaForCausalLM. Weights keep their type, but blocks (q8_0, q4_0) become float32. What\n"
        "cannot be said there is refused, naming why.\n",
    .spec = {.groups = {{"Conversion", own_options, 0}, GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL, OPT_STRING("DIR", common.out, NULL, NULL)}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_OUT | JOB_CHECKPOINT,
    .run = run_export,
};
