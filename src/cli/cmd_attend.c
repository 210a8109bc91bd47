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
    OPT_COLUMNS,
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
    const char *columns = j->common->columns;
    if (o->show && (o->query.given || j->common->format != TABLE_ALIGNED))
        return err_set(e, STATUS_USAGE, "--show draws in place of the table that %s is about",
                       o->query.given ? "--query" : "--format");
    if (columns && (o->query.given || o->show))
        return err_set(e, STATUS_USAGE, "--columns is for the figures; expected it without %s",
                       o->show ? "--show" : "--query");
    if ((o->log || o->without_first) && !o->svg && !o->show)
        return err_set(e, STATUS_USAGE, "%s is about pictures: expected --svg or --show, too",
                       o->log ? "--log" : "--without-first");
    return STATUS_OK;
}

/* A map of every head. */
static struct attend_map *add_maps(struct attend_spec *spec, int cells, bool without_first)
{
    struct attend_map *maps = spec->maps + spec->n_maps;
    spec->n_maps += spec->n_heads;
    for (int i = 0; i < spec->n_heads; i++)
        maps[i] = (struct attend_map){.layer = spec->heads[i].layer,
                                      .head = spec->heads[i].head,
                                      .cells = cells < spec->n_tokens ? cells : spec->n_tokens,
                                      .without_first = without_first};
    return maps;
}

/* Which heads, and of which of them maps are wanted; `width` columns has the terminal. */
static enum status place_heads(struct attend_view *v, int width, struct err *e)
{
    const struct attend_options *o = v->options;
    struct attend_spec *spec = &v->spec;
    TRY(choice_of("--layer", o->layers, v->config->n_layers, "layer", &v->layers, e));
    TRY(choice_of("--head", o->heads, v->config->n_heads, "head", &v->heads, e));
    const size_t n = (size_t)v->layers.n * (size_t)v->heads.n;
    const size_t bytes = n * sizeof *spec->heads + (2 * n + 1) * sizeof *spec->maps;
    spec->heads = calloc(bytes, 1);
    if (!spec->heads)
        return err_no_memory(e, "the list of heads", bytes);
    spec->n_heads = (int)n;
    spec->maps = (void *)(spec->heads + n);
    for (int i = 0; i < spec->n_heads; i++)
        spec->heads[i] = (struct attend_head){.layer = v->layers.items[i / v->heads.n],
                                              .head = v->heads.items[i % v->heads.n]};
    if (o->svg)
        v->pictures = add_maps(spec, n == 1 ? HEATMAP_LARGE : HEATMAP_SMALL, o->without_first);
    if (o->npy)
        v->arrays = add_maps(spec, spec->n_tokens, false);
    if (o->show) {
        v->shown = &spec->maps[spec->n_maps++];
        v->shown->cells = attend_shown_cells(spec->n_tokens, width);
        v->shown->without_first = o->without_first;
        TRY(head_of_option("--show", o->show, v->config, &v->shown->layer, &v->shown->head, e));
    }
    return STATUS_OK;
}

static enum status look(struct attend_view *v, struct job *j, int width, struct err *e)
{
    struct job_memory memory = {
        .weights = v->spec.model->weights.cap,
        .advice = v->options->npy
                      ? "fewer heads by --layer and --head, a shorter text or no --npy take less"
                      : "fewer heads by --layer and --head, or a shorter text take less"};
    char what[32];
    TRY(place_heads(v, width, e));
    TRY(attend_plan(&v->spec, &memory.scratch, e));
    snprintf(what, sizeof what, "%d tokens", v->spec.n_tokens);
    TRY(job_check_memory(j, &memory, what, e));
    v->spec.arg = job_progress(j, "tokens");
    j->progress.all = j->n_tokens;
    return attend_run(&v->spec, &v->found, e);
}

static enum status run_attend(struct job *j, void *values, struct err *e)
{
    const struct attend_options *o = values;
    const struct model *m = j->checkpoint.model;
    const int width = terminal_width(STDOUT_FILENO);
    TRY(job_tokenize_for_context(j, "look at", e));
    if (o->query.given && o->query.value >= j->n_tokens)
        return err_set(e, STATUS_USAGE,
                       "--query: expected 0 to %zu, a token of the text, found %llu",
                       j->n_tokens - 1, (unsigned long long)o->query.value);
    TRY(job_start_threads(j, e));
    struct attend_view view = {.options = o,
                               .subject = path_name(j->path),
                               .tokenizer = j->checkpoint.tokenizer,
                               .config = &m->config,
                               .spec = {.model = m,
                                        .params = job_session_params(j),
                                        .pool = j->pool,
                                        .tokens = j->tokens,
                                        .n_tokens = (int)j->n_tokens,
                                        .query = o->query.given ? (int)o->query.value : -1,
                                        .stop = progress_stop,
                                        .progress = progress_show}};
    config_variant_name(&m->config, m->config.n_kv_heads, view.variant);
    enum status s = look(&view, j, width, e);
    progress_end(&j->progress);
    if (s == STATUS_OK && o->npy)
        s = attend_write_npy(&view, o->npy, e);
    if (s == STATUS_OK && o->json)
        s = attend_write_json(&view, o->json, e);
    if (s == STATUS_OK && o->svg)
        s = attend_write_svg(&view, o->svg, e);
    if (s == STATUS_OK && o->show)
        attend_draw(&view, width, j->out);
    else if (s == STATUS_OK)
        s = attend_print(&view, j, e);
    attend_free(&view.found);
    free(view.spec.heads);
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
    .tables = attend_tables,
    .run = run_attend,
};
