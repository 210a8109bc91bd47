/*
 * cmd_attend - decode attend: what each head looks at, as figures, pictures and arrays.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/figures.h"
#include "cli/job.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "formats/npy.h"
#include "measure/attend.h"
#include "measure/eval.h"
#include "show/heatmap.h"
#include "text/tokenizer.h"

/* Columns of a token in a cell of a table, beside a large map, and on a terminal. */
#define LABEL_COLUMNS  10
#define LARGE_LABEL    16
#define TERMINAL_LABEL 12
/* Cells of a drawing, however wide the terminal. */
#define MOST_SHOWN 512
/* Keys of a query, and the bytes of one with its weight. */
#define MOST_TOP  1000
#define KEY_BYTES 128

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
    OPT_INT("top", top, "K", 1, MOST_TOP, "how many keys", .fallback = "4", .needs = "query"),
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

struct attend_view {
    const struct attend_options *options;
    struct job *job;
    const struct config *config;

    char variant[16];
    struct choice layers, heads; /* of each chosen layer the same heads */
    struct attend_spec spec;     /* its heads and, behind them, its maps are malloc'd */
    /* Of each head its picture, of --svg, and its weights, of --npy; and one map to be shown. NULL:
     * not asked for. */
    struct attend_map *pictures, *arrays, *shown;
    int room; /* columns of the terminal for the cells of a line */
    struct attend_found found;
};

/* A token, and the weight that the query gives to its key. */
struct key_row {
    int position, id;
    struct text text; /* without data: there is no tokenizer */
    double weight;
};

static const struct report_field key_fields[] = {
    {"position", NULL, MEMBER(key_row, position)},
    {"id", NULL, MEMBER(key_row, id)},
    {"text", NULL, MEMBER(key_row, text), .bytes = true},
    {"weight", NULL, MEMBER(key_row, weight)},
};

static struct key_row key_row(const struct attend_view *v, int position, double weight)
{
    const struct tokenizer *t = v->job->checkpoint.tokenizer;
    const int id = v->spec.tokens[position];
    return (struct key_row){position, id, t ? tokenizer_bytes(t, id) : (struct text){NULL, 0},
                            weight};
}

static struct text_label label_of(const struct attend_view *v, int position, size_t columns,
                                  bool printable)
{
    const struct key_row row = key_row(v, position, 0);
    char id[24];
    snprintf(id, sizeof id, "#%d", row.id);
    return text_label(row.text.data ? row.text : text_of(id), columns, printable);
}

/* In three characters: ".61", "1.0"; "–" for NaN. */
static struct figure weight_figure(double weight)
{
    struct figure f = {"–"};
    char text[32];
    snprintf(text, sizeof text, "%.2f", weight);
    if (!isnan(weight))
        snprintf(f.text, sizeof f.text, "%.3s", text + (text[0] == '0'));
    return f;
}

/* A head, and its figures or what a query looks at most. */
struct attend_row {
    struct attend_head of;
    int kv_head;
    const char *variant;
    char pair[192]; /* the strongest: "sat: cat .61"; "" for none */
    int query;
    struct report_list top; /* of struct key_row */
    struct text joined;     /* for people: "cat .61, The .20" */
};

#define FIGURE(member) MEMBER(attend_row, of.member)
static const struct report_field fields[] = {
    {"layer", "layer", FIGURE(layer)},
    {"head", "head", FIGURE(head)},
    {"variant", NULL, MEMBER(attend_row, variant)},
    {"kv_head", "K/V", MEMBER(attend_row, kv_head), .rank = 3},
    {"entropy", "entropy", FIGURE(entropy), "%.2f", .rank = 2},
    {"distance", "distance", FIGURE(distance), "%.1f", .rank = 5},
    {"first", "first", FIGURE(first), "%.3f", .none = "–"},
    {"previous", "prev", FIGURE(previous), "%.3f", .none = "–"},
    {"self", "self", FIGURE(self), "%.3f", .rank = 6},
    {"induction", "induct", FIGURE(induction), "%.3f", .none = "–"},
    {NULL, "strongest", MEMBER(attend_row, pair), .rank = 7},
    {"strongest_query", NULL, FIGURE(query)},
    {"strongest_key", NULL, FIGURE(key)},
    {"strongest", NULL, FIGURE(strongest)},
};
#define N_FIELDS REPORT_LENGTH(fields)
/* Of a query, behind the first four of these. */
static const struct report_field query_fields[] = {
    {"query", NULL, MEMBER(attend_row, query)},
    {"top", NULL, MEMBER(attend_row, top), .items = key_fields,
     .n_items = REPORT_LENGTH(key_fields), .item_size = sizeof(struct key_row)},
    {NULL, "", MEMBER(attend_row, joined), .list = true},
};
enum { FIELD_KV_HEAD = 3, FIELD_QUERY, FIELD_TOP, FIELD_JOINED, N_QUERY_FIELDS };

static struct attend_row figures_of(const struct attend_view *v, int at)
{
    const struct attend_head *h = &v->spec.heads[at];
    struct attend_row row = {
        .of = *h, .kv_head = h->head / config_group(v->config, h->layer), .variant = v->variant};
    if (h->query >= 0)
        snprintf(row.pair, sizeof row.pair, "%s: %s %s",
                 label_of(v, (int)h->query, LABEL_COLUMNS, false).text,
                 label_of(v, (int)h->key, LABEL_COLUMNS, false).text,
                 weight_figure(h->strongest).text);
    return row;
}

/* A table's rows, and of a query what the one at hand is made of. */
struct head_rows {
    const struct attend_view *v;
    struct attend_row row;
    int n_top; /* 0: no query */
    struct key_row keys[MOST_TOP];
    struct token_score top[MOST_TOP];
    char joined[MOST_TOP * KEY_BYTES];
};

static const void *next_looks(void *arg, int at)
{
    struct head_rows *r = arg;
    const struct attend_view *v = r->v;
    const int n_keys = v->spec.query + 1;
    size_t used = 0;
    if (at >= v->spec.n_heads)
        return NULL;
    r->row = figures_of(v, at);
    if (r->n_top > 0)
        score_top(v->found.query + (size_t)at * n_keys, n_keys, 0, r->n_top, r->top);
    for (int k = 0; k < r->n_top; k++) { /* "cat@4 .61" where there are several cats */
        const int position = r->top[k].id;
        char place[16] = "";
        for (int i = 0; i < n_keys; i++)
            if (i != position && v->spec.tokens[i] == v->spec.tokens[position])
                snprintf(place, sizeof place, "@%d", position);
        r->keys[k] = key_row(v, position, r->top[k].logprob);
        used += snprintf(r->joined + used, KEY_BYTES, "%s%s%s %s", k ? ", " : "",
                         label_of(v, position, LABEL_COLUMNS, false).text, place,
                         weight_figure(r->keys[k].weight).text);
    }
    r->row.query = v->spec.query;
    r->row.top = (struct report_list){r->keys, r->n_top};
    r->row.joined = (struct text){r->joined, used};
    return &r->row;
}

/* A row a head, the figures, or of one query the keys. */
static enum status print_looks(const struct attend_view *v, struct err *e)
{
    const struct attend_options *o = v->options;
    const int query = v->spec.query;
    struct report_field own[N_FIELDS];
    struct head_rows rows = {.v = v};
    struct table table = {own, N_FIELDS, .row = next_looks, .arg = &rows};
    char name[96];
    bool shared = false;
    memcpy(own, fields, sizeof fields);
    for (int l = 0; l < v->layers.n; l++)
        shared |= config_group(v->config, v->layers.items[l]) > 1;
    if (!shared) /* it is the head */
        own[FIELD_KV_HEAD].heading = NULL;
    if (query >= 0) {
        rows.n_top = o->top < query + 1 ? o->top : query + 1;
        snprintf(name, sizeof name, "%s: (token %d)", label_of(v, query, LABEL_COLUMNS, true).text,
                 query);
        memcpy(own + FIELD_QUERY, query_fields, sizeof query_fields);
        if (o->common.format == TABLE_CSV)
            own[FIELD_QUERY].key = NULL;
        own[FIELD_TOP].most = rows.n_top;
        own[FIELD_JOINED].heading = name;
        table.n = N_QUERY_FIELDS;
    }
    return job_print(v->job, &table, e);
}

/* --- files ----------------------------------------------------------------------------------- */

static void put_numbers(struct json *j, const char *key, const struct choice *c)
{
    json_begin_array(j, key);
    for (int i = 0; i < c->n; i++)
        json_int(j, NULL, c->items[i]);
    json_end(j);
}

/* An object with what the arrays' axes stand for, the tokens with their text, and the figures. */
static enum status write_json(const struct attend_view *v, const char *path, struct err *e)
{
    static const char *const axes[] = {"layer", "head", "query", "key"};
    struct file_output file;
    struct json j;
    file_output_init(&file);
    TRY(file_output_open(&file, path, e));
    json_init(&j, &file.out, 2);
    json_begin_object(&j, NULL);
    json_string(&j, "model", path_name(v->job->path));
    json_begin_array(&j, "axes");
    for (int i = 0; i < 4; i++)
        json_string(&j, NULL, axes[i]);
    json_end(&j);
    put_numbers(&j, "layers", &v->layers);
    put_numbers(&j, "heads", &v->heads);
    json_begin_array(&j, "tokens");
    for (int i = 0; i < v->spec.n_tokens; i++) {
        const struct key_row token = key_row(v, i, 0);
        report_object(&j, NULL, key_fields, REPORT_LENGTH(key_fields) - 1, &token);
    }
    json_end(&j);
    json_begin_array(&j, "figures");
    for (int at = 0; at < v->spec.n_heads; at++) {
        const struct attend_row row = figures_of(v, at);
        report_object(&j, NULL, fields, N_FIELDS, &row);
    }
    json_end(&j);
    json_end(&j);
    output_puts(&file.out, "\n");
    return file_output_commit(&file, e);
}

/* --- pictures -------------------------------------------------------------------------------- */

/* Of n maps: everything is a share of the largest weight. */
static struct heatmap_scale scale_of(const struct attend_map *maps, int n, bool log)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < (size_t)maps[i].cells * maps[i].cells; k++)
            most = maps[i].cell[k] > most ? maps[i].cell[k] : most;
    return heatmap_scale((double)most, log);
}

/* Small maps of all heads, or a large one of a single one. */
static enum status write_svg(const struct attend_view *v, const char *path, struct err *e)
{
    const struct attend_map *first = v->pictures;
    const int cells = first->cells, n = v->spec.n_tokens, n_heads = v->spec.n_heads;
    const bool large = n_heads == 1;
    const double side = (double)n / cells;      /* tokens */
    struct text_label names[CONFIG_MAX_LAYERS]; /* or HEATMAP_LARGE, which is less */
    char title[256], subtitle[512], size[80] = "";
    struct heatmap_map *maps = calloc(n_heads, sizeof *maps);
    if (!maps)
        return err_no_memory(e, "the picture", n_heads * sizeof *maps);
    for (int at = 0; at < n_heads; at++) {
        const struct attend_head *h = &v->spec.heads[at];
        const int group = config_group(v->config, h->layer);
        struct heatmap_map *m = &maps[at];
        m->cells = first[at].cell;
        m->group = group > 1 ? h->head / group : -1;
        if (!large)
            snprintf(m->name, sizeof m->name, "%d.%d", h->layer, h->head);
        snprintf(m->note, sizeof m->note,
                 "layer %d, head %d, %s: entropy %.2f nats, %.1f tokens back, first %s, previous "
                 "%s, itself %s",
                 h->layer, h->head, v->variant, h->entropy, h->distance,
                 weight_figure(h->first).text, weight_figure(h->previous).text,
                 weight_figure(h->self).text);
    }
    for (int i = 0; i < (large ? cells : v->layers.n); i++)
        if (large)
            names[i] = label_of(v, attend_cell_begin(i, cells, n), LARGE_LABEL, true);
        else
            snprintf(names[i].text, sizeof names[i].text, "layer %d", v->layers.items[i]);
    if (cells < n)
        snprintf(size, sizeof size, " A cell is the largest weight of %.1f by %.1f tokens.", side,
                 side);
    snprintf(title, sizeof title, "What the heads of %.160s look at", path_name(v->job->path));
    snprintf(subtitle, sizeof subtitle,
             "Queries from top to bottom, keys from left to right: %d token%s.%s%s%s%s", n,
             plural(n), size, first->without_first ? " The first key is left out." : "",
             large ? " This is " : "", large ? maps->note : "");
    const struct heatmap_picture picture = {.title = title,
                                            .subtitle = subtitle,
                                            .what = "weight",
                                            .scale = scale_of(first, n_heads, v->options->log),
                                            .maps = maps,
                                            .n_rows = v->layers.n,
                                            .n_columns = v->heads.n,
                                            .map_rows = cells,
                                            .map_columns = cells,
                                            .triangle = true,
                                            .row_names = names,
                                            .column_names = large ? names : NULL};
    const enum status s = heatmap_write(&picture, path, e);
    free(maps);
    return s;
}

/* The head that is shown, a line for each row: position, cells up to the diagonal, and there the
 * token, which names its row and its column. */
static void draw_head(const struct attend_view *v)
{
    struct output *out = v->job->out;
    const enum heatmap_ink ink = terminal_ink(false);
    const struct attend_map *m = v->shown;
    const struct heatmap_scale scale = scale_of(m, 1, v->options->log);
    const int n = v->spec.n_tokens, digits = snprintf(NULL, 0, "%d", n - 1);
    unsigned char levels[MOST_SHOWN];
    output_printf(out, "head %s\n", v->options->show);
    for (int r = 0; r < m->cells; r++) {
        const int token = attend_cell_begin(r, m->cells, n);
        heatmap_levels(&scale, m->cell + r * m->cells, r + 1, levels);
        output_printf(out, "%*d ", digits, token);
        heatmap_put_cells(out, ink, levels, r + 1, 2 * m->cells <= v->room ? 2 : 1);
        output_printf(out, " %s\n", label_of(v, token, TERMINAL_LABEL, true).text);
    }
    if (m->cells < n)
        output_printf(out, "%d cells for %d tokens: the largest weight of each\n", m->cells, n);
    heatmap_put_legend(out, ink, &scale, "weight");
}

/* --- the run --------------------------------------------------------------------------------- */

/* A map of every head, of this many cells a side or, if these are fewer, the tokens. */
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

/* Which heads, and of which of them maps are wanted. */
static enum status place_heads(struct attend_view *v, struct err *e)
{
    const struct attend_options *o = v->options;
    struct attend_spec *spec = &v->spec;
    const int n_tokens = spec->n_tokens;
    TRY(choice_of("--layer", o->layers, v->config->n_layers, &v->layers, e));
    TRY(choice_of("--head", o->heads, v->config->n_heads, &v->heads, e));
    const size_t n = (size_t)v->layers.n * v->heads.n;
    const size_t bytes = n * sizeof *spec->heads + (2 * n + 1) * sizeof *spec->maps;
    spec->heads = calloc(bytes, 1);
    if (!spec->heads)
        return err_no_memory(e, "the list of heads", bytes);
    spec->maps = (void *)(spec->heads + n);
    for (size_t i = 0; i < n; i++) {
        const int layer = v->layers.items[i / v->heads.n], head = v->heads.items[i % v->heads.n];
        if (head < config_heads(v->config, layer))
            spec->heads[spec->n_heads++] = (struct attend_head){.layer = layer, .head = head};
    }
    if (spec->n_heads == 0 || ((o->svg || o->npy) && (size_t)spec->n_heads < n))
        return err_set(e, STATUS_USAGE,
                       "%s: expected heads that every layer named has; the layers have different "
                       "numbers, of which --layer and --head choose",
                       o->svg   ? "--svg"
                       : o->npy ? "--npy"
                                : "--head");
    if (o->svg)
        v->pictures = add_maps(spec, n == 1 ? HEATMAP_LARGE : HEATMAP_SMALL, o->without_first);
    if (o->npy)
        v->arrays = add_maps(spec, n_tokens, false);
    if (!o->show)
        return STATUS_OK;
    /* All tokens where there is room; else cells, as few as in a small picture. */
    v->room =
        terminal_width(STDOUT_FILENO) - TERMINAL_LABEL - 2 - snprintf(NULL, 0, "%d", n_tokens - 1);
    int cells = n_tokens <= MOST_SHOWN ? n_tokens : HEATMAP_SMALL;
    if (cells > v->room)
        cells = v->room < 1 ? 1 : v->room < HEATMAP_SMALL ? v->room : HEATMAP_SMALL;
    v->shown = &spec->maps[spec->n_maps++];
    *v->shown = (struct attend_map){.cells = cells, .without_first = o->without_first};
    return head_of_option("--show", o->show, v->config, &v->shown->layer, &v->shown->head, e);
}

/* Runs the text and shows what was asked for. */
static enum status look(struct attend_view *v, struct err *e)
{
    struct job *j = v->job;
    const struct attend_options *o = v->options;
    const uint64_t n = v->spec.n_tokens;
    struct job_memory memory = {
        .weights = v->spec.model->weights.cap,
        .advice = o->npy ? "fewer heads by --layer and --head, a shorter text or no --npy take less"
                         : "fewer heads by --layer and --head, or a shorter text take less"};
    struct file_writer *npy;
    char what[32];
    TRY(place_heads(v, e));
    TRY(attend_plan(&v->spec, &memory.scratch, e));
    snprintf(what, sizeof what, "%d tokens", v->spec.n_tokens);
    TRY(job_check_memory(j, &memory, what, e));
    v->spec.arg = job_progress(j, "tokens");
    j->progress.all = n;
    TRY(attend_run(&v->spec, &v->found, e));
    progress_end(&j->progress);
    if (o->npy) {
        TRY(npy_open(&npy, o->npy, (const uint64_t[]){v->layers.n, v->heads.n, n, n}, 4, e));
        for (int at = 0; at < v->spec.n_heads; at++)
            npy_put(npy, v->arrays[at].cell, n * n);
        TRY(file_writer_commit(npy, e));
    }
    if (o->json)
        TRY(write_json(v, o->json, e));
    if (o->svg)
        TRY(write_svg(v, o->svg, e));
    if (!o->show)
        return print_looks(v, e);
    draw_head(v);
    return STATUS_OK;
}

static enum status run_attend(struct job *j, void *values, struct err *e)
{
    const struct attend_options *o = values;
    const struct model *m = j->checkpoint.model;
    const bool asked = o->query.given;
    TRY(job_tokenize_for_context(j, "look at", e));
    if (asked && o->query.value >= j->n_tokens)
        return err_set(e, STATUS_USAGE,
                       "--query: expected 0 to %zu, a token of the text, found %llu",
                       j->n_tokens - 1, (unsigned long long)o->query.value);
    TRY(job_start_threads(j, e));
    struct attend_view view = {.options = o,
                               .job = j,
                               .config = &m->config,
                               .spec = {.model = m,
                                        .params = job_session_params(j),
                                        .pool = j->pool,
                                        .tokens = j->tokens,
                                        .n_tokens = (int)j->n_tokens,
                                        .query = asked ? (int)o->query.value : -1,
                                        .stop = progress_stop,
                                        .progress = progress_show}};
    config_variant_name(&m->config, m->config.n_kv_heads, view.variant);
    const enum status s = look(&view, e);
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
    .run = run_attend,
};
