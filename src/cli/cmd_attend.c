/*
 * cmd_attend - decode attend: what each head looks at, as figures, pictures and arrays.
 */
#include <limits.h>
#include <unistd.h>

#include "cli/attend_picture.h"
#include "cli/attend_report.h"
#include "cli/attend_view.h"
#include "cli/columns.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/paths.h"
#include "cli/runtime.h"
#include "cli/terminal.h"

struct attend_options {
    struct common_options common;
    struct engine_options engine;
    struct input_options input;
    const char *tokens;
    const char *layers, *heads;
    struct option_u64 query;
    int top;
    int format;
    const char *columns, *npy, *json, *svg, *show;
    bool log, without_first;
};

#define VALUES struct attend_options

static const struct option text_options[] = {
    OPT_IDS,
    OPT_BINARY,
    OPT_END,
};

static const struct option head_options[] = {
    OPT_LAYER(layers, "only these layers, from 0", .otherwise = "all"),
    OPT_HEAD(heads, "only these heads of each layer, from 0", .otherwise = "all"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_U64("query", query, "POS",
            "instead of the figures the keys that the token at POS, from 0, looks at most; "
            "at@3 is the one at position 3 of several"),
    OPT_INT("top", top, "K", 1, 1000, "how many keys", .fallback = "4", .needs = "query"),
    OPT_FORMAT,
    OPT_COLUMNS,
    OPT_STRING("npy", npy, "FILE", "write all weights, float32 [layers, heads, n, n]",
               .writes = true),
    OPT_STRING("json", json, "FILE", "write the tokens, what the axes are, and the figures",
               .writes = true),
    OPT_END,
};

static const struct option picture_options[] = {
    OPT_STRING("svg", svg, "FILE.svg",
               "draw small maps of all these heads, or of a single one a large map with its tokens",
               .writes = true),
    OPT_STRING("show", show, "L.H",
               "draw this head here, layer and head from 0, in place of the table"),
    OPT_FLAG("log", log, "shades by the weight's logarithm: three a factor of ten"),
    OPT_FLAG("without-first", without_first,
             "leave the first key out of pictures, so that the rest has all shades; no figure and "
             "no weight changes"),
    OPT_END,
};

/* --- the text -------------------------------------------------------------------------------- */

static enum status read_attend_tokens(const struct attend_options *o, struct runtime *r,
                                      struct text text, struct err *e)
{
    TRY(runtime_read_tokens(r, o->tokens, text, "look at", e));
    if (o->query.given && o->query.value >= r->n_tokens)
        return err_set(e, STATUS_USAGE,
                       "--query: expected 0 to %zu, a token of the text, found %llu",
                       r->n_tokens - 1, (unsigned long long)o->query.value);
    return STATUS_OK;
}

/* --- the results ----------------------------------------------------------------------------- */

static enum status write_results(const struct attend_options *o, const struct attend_view *v,
                                 int width, struct output *out, struct err *e)
{
    if (o->npy)
        TRY(attend_write_npy(v, o->npy, e));
    if (o->json)
        TRY(attend_write_json(v, o->json, e));
    if (o->svg)
        TRY(attend_write_svg(v, o->svg, o->log, e));
    if (!o->show)
        return attend_print(v, (enum table_format)o->format, o->columns, out, e);
    attend_draw(v, terminal_ink(), o->log, width, out);
    return STATUS_OK;
}

static enum status attend_text(const void *values, struct runtime *r, struct text text,
                               struct err *e)
{
    const struct attend_options *o = values;
    const char *path;
    const int width = terminal_width(STDOUT_FILENO);
    TRY(common_model_path(&o->common, &path, e));
    TRY(read_attend_tokens(o, r, text, e));
    TRY(runtime_start_threads(r, e));
    struct attend_view view = {
        .common = &o->common,
        .subject = path_name(path),
        .tokenizer = r->checkpoint.tokenizer,
        .tokens = r->tokens,
        .n_tokens = (int)r->n_tokens,
        .wanted = {.layers = o->layers,
                   .heads = o->heads,
                   .show = o->show,
                   .query = o->query.given ? (int)o->query.value : -1,
                   .n_top = o->top,
                   .pictures = o->svg != NULL,
                   .arrays = o->npy != NULL,
                   .without_first = o->without_first,
                   .shown_cells = attend_shown_cells((int)r->n_tokens, width)},
    };
    enum status s = attend_view_run(&view, r, e);
    if (s == STATUS_OK)
        s = write_results(o, &view, width, r->inv->out, e);
    attend_view_free(&view);
    return s;
}

/* --- options --------------------------------------------------------------------------------- */

static enum status check_attend_options(const struct attend_options *o, struct err *e)
{
    TRY(input_or_ids(&o->input, o->tokens, "look at", e));
    if (o->show && (o->query.given || o->format != TABLE_ALIGNED))
        return err_set(e, STATUS_USAGE, "--show draws in place of the table that %s is about",
                       o->query.given ? "--query" : "--format");
    if (o->columns && (o->query.given || o->show))
        return err_set(e, STATUS_USAGE, "--columns is for the figures; expected it without %s",
                       o->show ? "--show" : "--query");
    TRY(attend_check_columns(o->columns, (enum table_format)o->format, e));
    if ((o->log || o->without_first) && !o->svg && !o->show)
        return err_set(e, STATUS_USAGE, "%s is about pictures: expected --svg or --show, too",
                       o->log ? "--log" : "--without-first");
    TRY(path_writable(o->svg, e));
    TRY(path_writable(o->npy, e));
    return path_writable(o->json, e);
}

static enum status run_attend(const struct invocation *inv, const void *values, struct err *e)
{
    struct attend_options chosen = *(const struct attend_options *)values;
    const struct attend_options *o = &chosen;
    chosen.input = input_or_piped(&o->input, o->tokens, &o->common);
    struct runtime r = {.inv = inv,
                        .common = &o->common,
                        .engine = &o->engine,
                        .parts = o->tokens ? 0 : COMMON_TEXTS};
    TRY(check_attend_options(o, e));
    return runtime_run(&r, &o->input, attend_text, o, e);
}

const struct command command_attend = {
    .name = "attend",
    .summary = "what each head looks at: figures, pictures, arrays",
    .usage = "MODEL (-p TEXT | -f FILE | --tokens 1,2,3 | a text piped in) [options]",
    .notes =
        "A row a layer and head. The weight a[i][j] is what the query of token i gives to the\n"
        "key of token j, no later than i; those of a query add up to 1. Over n tokens:\n"
        "\n"
        "entropy    mean of -sum a log a, in nats: 0 looks at one token, log k at k alike\n"
        "distance   mean of sum a (i - j): how many tokens it looks back\n"
        "first      mean weight of the first token, of all queries but its own\n"
        "previous   of the token before (prev), likewise\n"
        "self       of the token itself\n"
        "induction  of those queries whose token was there before, the mean weight of the\n"
        "           tokens that came after it then (induct)\n"
        "strongest  the largest weight but for those of the first token and of the query's\n"
        "           own: \"sat: cat .61\" is sat looking at cat\n"
        "\n"
        "Text is shown without a token's leading space. In --format csv, json and jsonl\n"
        "strongest comes with strongest_query and strongest_key, positions from 0, and kv_head\n"
        "is the K/V head that the head uses. Small maps have at most 64 cells a side, large\n"
        "ones 384, a drawing what the terminal has room for: where there are more tokens, a\n"
        "cell is the largest weight of those in it. Frames are around heads that share keys\n"
        "and values: with --kv-heads these become neighbours and are counted so. Colours are\n"
        "for terminals that have 256, unless NO_COLOR is set. All is the same for any number\n"
        "of threads and any block.\n",
    .spec = {.groups = {{"Text", input_options, offsetof(VALUES, input)},
                        {"Text as ids", text_options, 0},
                        {"Heads", head_options, 0},
                        {"Results", result_options, 0},
                        {"Pictures", picture_options, 0},
                        {"Engine", engine_options, offsetof(VALUES, engine)},
                        {"Variant", variant_options, offsetof(VALUES, engine.variant)},
                        COMMON_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .run = run_attend,
};
