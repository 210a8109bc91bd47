/*
 * cmd_attend - decode attend: what each head looks at, as figures, pictures and arrays.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/attend_report.h"
#include "cli/job.h"
#include "cli/paths.h"
#include "cli/terminal.h"
#include "show/heatmap.h"

struct attend_options {
    struct common_options common;
    const char *layers, *heads;
    struct option_u64 query;
    int top;
    const char *npy, *json, *svg, *show;
    bool log, without_first;
};

#define VALUES struct attend_options

static const struct option ids_options[] = {OPT_IDS, OPT_END};

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
    OPT_STRING("npy", npy, "FILE", "write all weights, float32 [layers, heads, n, n]",
               .writes = WRITES_FILE),
    OPT_STRING("json", json, "FILE", "write the tokens, what the axes are, and the figures",
               .writes = WRITES_FILE),
    OPT_END,
};

static const struct option picture_options[] = {
    OPT_STRING("svg", svg, "FILE.svg",
               "draw small maps of all these heads, or of a single one a large map with its tokens",
               .writes = WRITES_FILE),
    OPT_STRING("show", show, "L.H",
               "draw this head here, layer and head from 0, in place of the table"),
    OPT_FLAG("log", log, "shades by the weight's logarithm: three a factor of ten"),
    OPT_FLAG("without-first", without_first,
             "leave the first key out of pictures, so that the rest has all shades; no figure and "
             "no weight changes"),
    OPT_END,
};

static enum status check_attend(struct job *j, void *values, struct err *e)
{
    const struct attend_options *o = values;
    if (o->show && (o->query.given || j->common->format != TABLE_ALIGNED))
        return err_set(e, STATUS_USAGE, "--show draws in place of the table that %s is about",
                       o->query.given ? "--query" : "--format");
    if ((o->log || o->without_first) && !o->svg && !o->show)
        return err_set(e, STATUS_USAGE, "%s is about pictures: expected --svg or --show, too",
                       o->log ? "--log" : "--without-first");
    return STATUS_OK;
}

/* --- heads and maps -------------------------------------------------------------------------- */

static size_t n_places(const struct attend_view *v)
{
    return (size_t)v->n_rows * (size_t)v->n_columns;
}

static enum status place_heads(struct attend_view *v, struct err *e)
{
    const struct config *c = &v->model->config;
    TRY(choice_of("--layer", v->wanted.layers, c->n_layers, "layer", &v->layers, e));
    TRY(choice_of("--head", v->wanted.heads, c->n_heads, "head", &v->heads, e));
    v->n_rows = v->layers.n;
    v->n_columns = v->heads.n;
    v->figures = calloc(n_places(v), sizeof *v->figures);
    if (!v->figures)
        return err_no_memory(e, "the list of heads", n_places(v) * sizeof *v->figures);
    for (int row = 0; row < v->n_rows; row++)
        for (int i = 0; i < v->n_columns; i++)
            v->figures[row * v->n_columns + i] =
                (struct attend_head){.layer = v->layers.items[row], .head = v->heads.items[i]};
    return STATUS_OK;
}

/* --- maps ------------------------------------------------------------------------------------ */

static int at_most(int n, int most)
{
    return n < most ? n : most;
}

/* A map of every head. */
static struct attend_map *add_maps(struct attend_view *v, int cells, bool without_first)
{
    struct attend_map *maps = v->maps + v->n_maps;
    for (size_t i = 0; i < n_places(v); i++)
        maps[i] = (struct attend_map){.layer = v->figures[i].layer,
                                      .head = v->figures[i].head,
                                      .cells = cells,
                                      .without_first = without_first};
    v->n_maps += (int)n_places(v);
    return maps;
}

static enum status place_maps(struct attend_view *v, struct err *e)
{
    const struct attend_wanted *w = &v->wanted;
    const bool large = n_places(v) == 1;
    int layer, head;
    v->maps = calloc(2 * n_places(v) + 1, sizeof *v->maps);
    if (!v->maps)
        return err_no_memory(e, "the list of maps", 2 * n_places(v) * sizeof *v->maps);
    if (w->pictures)
        v->pictures = add_maps(v, at_most(v->n_tokens, large ? HEATMAP_LARGE : HEATMAP_SMALL),
                               w->without_first);
    if (w->arrays)
        v->arrays = add_maps(v, v->n_tokens, false);
    if (!w->show)
        return STATUS_OK;
    TRY(head_of_option("--show", w->show, &v->model->config, &layer, &head, e));
    v->shown = v->maps + v->n_maps++;
    *v->shown = (struct attend_map){.layer = layer,
                                    .head = head,
                                    .cells = at_most(v->n_tokens, w->shown_cells),
                                    .without_first = w->without_first};
    return STATUS_OK;
}

/* --- the run --------------------------------------------------------------------------------- */

static enum status look(struct attend_view *v, struct job *j, struct err *e)
{
    v->model = j->checkpoint.model;
    config_variant_name(&v->model->config, v->model->config.n_kv_heads, v->variant);
    TRY(place_heads(v, e));
    TRY(place_maps(v, e));
    const struct attend_spec spec = {.model = v->model,
                                     .params = job_session_params(j),
                                     .pool = j->pool,
                                     .tokens = v->tokens,
                                     .n_tokens = v->n_tokens,
                                     .heads = v->figures,
                                     .n_heads = (int)n_places(v),
                                     .maps = v->maps,
                                     .n_maps = v->n_maps,
                                     .query = v->wanted.query,
                                     .stop = progress_stop,
                                     .progress = progress_show,
                                     .arg = job_progress(j, "tokens")};
    j->progress.all = (uint64_t)v->n_tokens;
    struct job_memory memory = {.weights = v->model->weights.cap,
                                .advice = v->wanted.arrays
                                              ? "fewer heads by --layer and --head, a shorter text "
                                                "or no --npy take less"
                                              : "fewer heads by --layer and --head, or a shorter "
                                                "text take less"};
    char what[32];
    size_t bytes;
    TRY(attend_plan(&spec, &bytes, e));
    memory.scratch = bytes;
    snprintf(what, sizeof what, "%d tokens", v->n_tokens);
    TRY(job_check_memory(j, &memory, what, e));
    return attend_run(&spec, &v->found, e);
}

static enum status run_attend(struct job *j, void *values, struct err *e)
{
    const struct attend_options *o = values;
    const int width = terminal_width(STDOUT_FILENO);
    TRY(job_tokenize_for_context(j, "look at", e));
    if (o->query.given && o->query.value >= j->n_tokens)
        return err_set(e, STATUS_USAGE,
                       "--query: expected 0 to %zu, a token of the text, found %llu",
                       j->n_tokens - 1, (unsigned long long)o->query.value);
    TRY(job_start_threads(j, e));
    struct attend_view view = {
        .subject = path_name(j->path),
        .tokenizer = j->checkpoint.tokenizer,
        .tokens = j->tokens,
        .n_tokens = (int)j->n_tokens,
        .wanted = {.layers = o->layers,
                   .heads = o->heads,
                   .show = o->show,
                   .query = o->query.given ? (int)o->query.value : -1,
                   .n_top = o->top,
                   .pictures = o->svg != NULL,
                   .arrays = o->npy != NULL,
                   .without_first = o->without_first,
                   .shown_cells = attend_shown_cells((int)j->n_tokens, width)},
    };
    enum status s = look(&view, j, e);
    progress_end(&j->progress);
    if (s == STATUS_OK && o->npy)
        s = attend_write_npy(&view, o->npy, e);
    if (s == STATUS_OK && o->json)
        s = attend_write_json(&view, o->json, e);
    if (s == STATUS_OK && o->svg)
        s = attend_write_svg(&view, o->svg, o->log, e);
    if (s == STATUS_OK && o->show)
        attend_draw(&view, o->log, width, j->out);
    else if (s == STATUS_OK)
        s = attend_print(&view, j, e);
    attend_free(&view.found);
    free(view.figures);
    free(view.maps);
    choice_free(&view.layers);
    choice_free(&view.heads);
    return s;
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
        "of threads.\n",
    .spec = {.groups = {INPUT_GROUP,
                        {"Text as ids", ids_options, 0},
                        {"Heads", head_options, 0},
                        {"Results", result_options, 0},
                        {"Pictures", picture_options, 0},
                        ENGINE_GROUP,
                        VARIANT_GROUP,
                        GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT | JOB_PIPED,
    .parts = CHECKPOINT_MODEL | JOB_TOKENIZES,
    .no_text = "there is nothing to look at; expected -p, -f or --tokens",
    .check = check_attend,
    .run = run_attend,
};
