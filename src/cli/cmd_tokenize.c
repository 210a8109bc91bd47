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

static void print_ids(struct output *out, int format, const int32_t *ids, size_t n)
{
    struct json j;
    json_init(&j, out, 0);
    if (format == FORMAT_JSON)
        json_begin_array(&j, NULL);
    for (size_t i = 0; i < n; i++) {
        if (format == FORMAT_JSON)
            json_int(&j, NULL, ids[i]);
        else
            output_printf(out, "%s%d", i ? " " : "", (int)ids[i]);
    }
    if (format == FORMAT_JSON)
        json_end(&j);
    output_puts(out, "\n");
}

static enum status print_encoded(const struct tokenize_options *o, const struct tokenizer *t,
                                 struct output *out, struct err *e)
{
    char *text;
    size_t len;
    TRY(input_read(&o->input, &o->common, &text, &len, e));
    int32_t *ids;
    size_t n;
    enum status s = tokenizer_encode(t, (struct text){text, len}, &ids, &n, e);
    free(text);
    if (s != STATUS_OK)
        return s;
    print_ids(out, o->format, ids, n);
    free(ids);
    return STATUS_OK;
}

static enum status read_ids(const char *given, int n_tokens, int32_t **ids, size_t *n,
                            struct err *e)
{
    char *piped = NULL;
    size_t len;
    if (n_tokens == 0)
        return err_set(e, STATUS_BAD_FILE, "tokenizer.ggml.tokens: expected tokens, found none");
    enum status s = STATUS_OK;
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
    int32_t *ids;
    size_t n;
    TRY(read_ids(o->decode, tokenizer_n_tokens(t), &ids, &n, e));
    struct bytes all = {.data = NULL}; /* so that characters are whole */
    bool kept = true;
    for (size_t i = 0; i < n && kept; i++) {
        struct text bytes = tokenizer_bytes(t, ids[i]);
        const size_t added = i == 0 ? tokenizer_added(t, bytes) : 0;
        kept = bytes_put(&all, (struct text){bytes.data + added, bytes.len - added});
    }
    enum status s = kept ? STATUS_OK : err_no_memory(e, "the text", all.len);
    if (s == STATUS_OK)
        printable_put(out, bytes_text(&all));
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
