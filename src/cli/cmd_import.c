/*
 * cmd_import - decode import: a checkpoint of another format to GGUF.
 */
#include "cli/job.h"
#include "exchange/exchange.h"

struct import_command {
    struct common_options common;
    const char *tokenizer;
    int type; /* an enum storage + 1; 0: as they are */
    int n_ctx;
};

#define VALUES struct import_command

static const struct option own_options[] = {
    OPT_OUT,
    OPT_FORCE,
    OPT_CHOICE("type", type, "TYPE", storage_names, "type of the weight matrices",
               .otherwise = "as they are; int8 becomes f32"),
    OPT_INT("ctx", n_ctx, "C", 1, CONFIG_MAX_CTX, "context in tokens",
            .otherwise = "the checkpoint's", .letter = 'c'),
    OPT_STRING("tokenizer", tokenizer, "FILE|none",
               "the vocabulary: tokenizer.json, tokenizer.model, a tokenizer.bin of llama2.c or "
               "llm.c, or a vocab.json of single characters; none: tokens without text",
               .otherwise = "the one beside IN", .reads = "the vocabulary"),
    OPT_THREADS(THREADS_HELP),
    OPT_FORMAT,
    OPT_END,
};

/* What was imported. */
struct import_row {
    const char *format, *architecture;
    char variant[16];
    struct config config;
    uint64_t bytes;
};

static const struct report_field fields[] = {
    {"format", "from", MEMBER(import_row, format), .rank = 2},
    {COLUMN(import_row, architecture)},
    {COLUMN(import_row, variant)},
    {"n_layers", "layers", MEMBER(import_row, config.n_layers), .rank = 3},
    {"d_model", "d_model", MEMBER(import_row, config.d_model), .rank = 3},
    {"n_heads", "heads", MEMBER(import_row, config.n_heads), .rank = 4},
    {"n_kv_heads", "kv_heads", MEMBER(import_row, config.n_kv_heads), .rank = 4},
    {"n_ctx", "context", MEMBER(import_row, config.n_ctx), .rank = 5},
    {"n_vocab", "vocab", MEMBER(import_row, config.n_vocab), .rank = 5},
    {COLUMN(import_row, bytes)},
};

static enum status run_import(struct job *j, void *values, struct err *e)
{
    const struct import_command *o = values;
    const struct import_options options = {
        .tokenizer = o->tokenizer, .n_ctx = o->n_ctx, .notes = {job_say_note, j->common}};
    struct quantize_params params = {.requantize = true};
    struct file_map file = {0};
    struct import *im;
    bool is_other;
    TRY(import_is_for(j->path, &is_other, e));
    if (!is_other)
        TRY(file_map_open(&file, j->path, e));
    const bool is_gguf = text_starts_with(text_span((const char *)file.data, file.len), "GGUF");
    file_map_close(&file);
    if (is_gguf)
        return err_usage(
            e, "'%.200s' is a GGUF file already; decode quantize changes the type of its weights",
            j->path);
    TRY(import_open(j->path, &options, &im, e));
    enum status s;
    if (!o->type) {
        s = gguf_write(import_writer(im), j->common->out, e);
    } else if ((s = gguf_write_map(import_writer(im), &file, e)) == STATUS_OK) {
        params.type = tensor_type_named(text_of(storage_names[o->type - 1]))->type;
        signals_defer(); /* from here on the work is asked whether it should end */
        s = job_quantize(j, &file, &params, false, e);
        file_map_close(&file);
    }
    if (job_blame(j->path, s, e) == STATUS_OK) {
        const struct config *c = import_config(im);
        struct import_row row = {import_format(im), c->arch->name, .config = *c,
                                 .bytes = job_out_bytes(j)};
        config_variant_name(c, c->n_kv_heads, row.variant);
        s = job_print(j, &TABLE_OF(fields, &row, 1), e);
    }
    import_close(im);
    return s;
}

const struct command command_import = {
    .name = "import",
    .summary = "a checkpoint of another format to GGUF",
    .usage = "IN OUT.gguf [options]",
    .examples = "./decode import tests/data/hf/llama llama.gguf\n"
                "./decode import tests/data/hf/gpt2 gpt2.gguf --type q8_0\n",
    .notes =
        "IN is a folder of Hugging Face's transformers (config.json, model.safetensors or its\n"
        "shards; gpt2, gpt_bigcode, llama, mistral, or nanoGPT's model_args), or a .bin of\n"
        "llama2.c (versions 0 to 2) or llm.c. The vocabulary is the one beside it: "
        "tokenizer.json,\n"
        "vocab.json with merges.txt, or tokenizer.model; llama2.c's tokenizer.bin, llm.c's\n"
        "gpt2_tokenizer.bin. Where there is none, 256 tokens are bytes, and others have no text.\n"
        "What cannot be computed here as it was there is refused. All other commands take IN for "
        "a\n"
        "MODEL, too, and import it in memory.\n",
    .spec = {.groups = {{"Conversion", own_options, 0}, GENERAL_GROUP},
             .positionals = {OPT_STRING("IN", common.positional, NULL, NULL,
                                        .reads = "the checkpoint"),
                             OPT_STRING("OUT", common.out, NULL, NULL)}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_OUT | JOB_WORKERS,
    .run = run_import,
};
