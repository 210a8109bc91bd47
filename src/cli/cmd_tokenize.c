/*
 * cmd_tokenize - decode tokenize: token ids of a text, and back.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "model/checkpoint.h"
#include "show/paragraph.h"
#include "json/write.h"

struct tokenize_options {
    struct common_options common;
    struct input_options input;
    const char *decode;
    int format;
};

static const char *const formats[] = {"table", "json", NULL};
enum { FORMAT_LINE, FORMAT_JSON };

/* More ids than this are refused before they are read. */
#define IDS_MAX ((size_t)1 << 30)

#define VALUES struct tokenize_options

static const struct option own_options[] = {
    OPT_STRING("decode", decode, "IDS",
               "print the bytes of token ids instead, and nothing else: 1,2,3, or in any form that "
               "this command prints; - reads them from standard input"),
    OPT_BINARY,
    OPT_CHOICE("format", format, "FORM", formats, "table: ids on one line; json: an array",
               .fallback = "table"),
    OPT_END,
};

static enum status print_encoded(const struct tokenize_options *o, const struct tokenizer *t,
                                 struct output *out, struct err *e)
{
    const bool json = o->format == FORMAT_JSON;
    struct text text;
    char *data;
    int32_t *ids;
    size_t n;
    struct json j;
    TRY(input_read(&o->input, &o->common, &data, &text.len, e));
    text.data = data;
    const enum status s = tokenizer_encode(t, text, &ids, &n, e);
    free(data);
    TRY(s);
    json_init(&j, out, 0);
    if (json)
        json_begin_array(&j, NULL);
    for (size_t i = 0; i < n; i++) {
        if (json)
            json_int(&j, NULL, ids[i]);
        else
            output_printf(out, "%s%d", i ? " " : "", (int)ids[i]);
    }
    if (json)
        json_end(&j);
    output_puts(out, "\n");
    free(ids);
    return STATUS_OK;
}

static enum status read_decoded(const char *given, int n_tokens, int32_t **ids, size_t *n,
                                struct err *e)
{
    char *piped = NULL;
    size_t len;
    enum status s = STATUS_OK;
    if (n_tokens == 0)
        return err_bad_file(e, "tokenizer.ggml.tokens: expected tokens, found none");
    if (strcmp(given, "-") == 0) {
        TRY(file_read_all(given, IDS_MAX, &piped, &len, e));
        if (strlen(piped) < len)
            s = err_set(e, STATUS_USAGE,
                        "--decode -: expected token ids, found a zero byte behind %zu others",
                        strlen(piped));
    }
    if (s == STATUS_OK)
        s = parse_printed_ids("--decode", piped ? piped : given, n_tokens, ids, n, e);
    free(piped);
    return s;
}

static enum status print_decoded(const struct tokenize_options *o, const struct tokenizer *t,
                                 struct output *out, struct err *e)
{
    struct bytes all = {.data = NULL}; /* so that characters are whole */
    bool kept = true;
    int32_t *ids;
    size_t n;
    TRY(read_decoded(o->decode, tokenizer_n_tokens(t), &ids, &n, e));
    for (size_t i = 0; i < n && kept; i++)
        kept = bytes_put(&all, tokenizer_bytes(t, ids[i]));
    const size_t added = n > 0 ? tokenizer_added(t, tokenizer_bytes(t, ids[0])) : 0;
    if (kept)
        printable_put(out, (struct text){bytes_text(&all).data + added, all.len - added});
    const enum status s = kept ? STATUS_OK : err_no_memory(e, "the text", all.len);
    bytes_free(&all);
    free(ids);
    return s;
}

static enum status run_tokenize(const struct invocation *inv, const void *values, struct err *e)
{
    struct tokenize_options chosen = *(const struct tokenize_options *)values;
    const struct tokenize_options *o = &chosen;
    chosen.input = input_or_piped(&o->input, o->decode, &o->common);
    const bool text = o->input.prompt || o->input.file;
    if (!text && !o->decode)
        return err_set(e, STATUS_USAGE, "there is no text; expected -p, -f or --decode");
    const char *path;
    TRY(common_model_path(&o->common, &path, e));
    struct checkpoint c;
    TRY(common_open(path, text ? COMMON_TEXTS : CHECKPOINT_TOKENIZER, &c, e));
    enum status s = text ? print_encoded(o, c.tokenizer, inv->out, e)
                         : print_decoded(o, c.tokenizer, inv->out, e);
    checkpoint_close(&c);
    return s;
}

const struct command command_tokenize = {
    .name = "tokenize",
    .summary = "token ids of a text",
    .usage = "MODEL (-p TEXT | -f FILE | --decode 1,2,3 | a text piped in) [options]",
    .notes = "The ids of the text alone, without a begin-of-text token.\n",
    .spec = {.groups = {{"Text", input_options, offsetof(VALUES, input)},
                        {"Result", own_options, 0},
                        COMMON_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .run = run_tokenize,
};
