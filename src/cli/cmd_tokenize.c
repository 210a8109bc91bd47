/* decode tokenize: token ids of a text, and back. */
#include "cli/job.h"
#include "formats/json_write.h"

struct tokenize_options {
    struct common_options common;
    const char *decode;
    int format; /* of text_formats */
};

#define VALUES struct tokenize_options

static const struct option own_options[] = {
    OPT_STRING("decode", decode, "IDS",
               "print the bytes of token ids instead, and nothing else: 1,2,3, or as this command "
               "prints them"),
    OPT_CHOICE("format", format, "FORM", text_formats, "json: an array of ids with their text",
               .fallback = "text", .excludes = "decode"),
    OPT_END,
};

static enum status decode_ids(struct job *j, const char *given, struct err *e)
{
    const struct tokenizer *t = j->checkpoint.tokenizer;
    struct bytes all = {.data = NULL}; /* so that characters are whole */
    if (tokenizer_n_tokens(t) == 0)
        return err_bad_file(e, "tokenizer.ggml.tokens: expected tokens, found none");
    TRY(parse_ids("--decode", given, tokenizer_n_tokens(t), &j->tokens, &j->n_tokens, e));
    const bool has_memory = tokenizer_put(t, j->tokens, j->n_tokens, &all);
    struct text shown = bytes_text(&all);
    if (j->n_tokens > 0)
        text_cut(&shown, tokenizer_added(t, tokenizer_bytes(t, j->tokens[0])));
    if (has_memory)
        printable_put(j->out, shown);
    const enum status s = has_memory ? STATUS_OK : err_no_memory(e, "the text", all.len);
    bytes_free(&all);
    return s;
}

/* Prints the job's tokens as JSON, each with the text that it stands for. */
static void print_pieces(struct job *j)
{
    struct json json;
    json_init(&json, j->out, 0);
    json_begin_array(&json, NULL);
    for (size_t i = 0; i < j->n_tokens; i++) {
        json_begin_object(&json, NULL);
        json_int(&json, "id", j->tokens[i]);
        json_text(&json, "text", tokenizer_bytes(j->checkpoint.tokenizer, j->tokens[i]));
        json_end(&json);
    }
    json_end(&json);
    output_puts(j->out, "\n");
}

static enum status run_tokenize(struct job *j, void *values, struct err *e)
{
    const struct tokenize_options *o = values;
    struct checkpoint *c = &j->checkpoint;
    if (o->decode) {
        TRY(job_open(j->path, CHECKPOINT_TOKENIZER, NULL, c, e));
        return decode_ids(j, o->decode, e);
    }
    TRY(job_read_text(j, e));
    TRY(job_open(j->path, CHECKPOINT_TEXTS, NULL, c, e));
    job_warn_vocabulary(j->common, j->path, c->tokenizer);
    TRY(tokenizer_encode(c->tokenizer, j->text, false, &j->tokens, &j->n_tokens, e));
    if (o->format == FORMAT_JSON) {
        print_pieces(j);
        return STATUS_OK;
    }
    for (size_t i = 0; i < j->n_tokens; i++)
        output_printf(j->out, "%s%d", i == 0 ? "" : " ", j->tokens[i]);
    output_puts(j->out, "\n");
    return STATUS_OK;
}

const struct command command_tokenize = {
    .name = "tokenize",
    .summary = "token ids of a text",
    .usage = "MODEL (-p TEXT | -f FILE | --decode 1,2,3 | a text piped in) [options]",
    .examples = "./decode tokenize models/shakespeare-mha.gguf -p \"To be\"\n"
                "./decode tokenize models/shakespeare-mha.gguf --decode 84,79\n",
    .notes = "The ids of the text alone, without a begin-of-text token.\n",
    .spec = {.groups = {{"Text", input_options, 0},
                        {"Result", own_options, 0},
                        {"", general_options, 0}},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_PATH | JOB_PIPED,
    .no_text = "there is no text; expected -p, -f or --decode",
    .run = run_tokenize,
};
