#include "cli/attend_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/figures.h"
#include "base/text.h"
#include "cli/terminal.h"
#include "formats/npy.h"
#include "measure/score.h"
#include "show/paragraph.h"

#define OPEN_BOX "\xe2\x90\xa3"
#define ELLIPSIS "\xe2\x80\xa6"
/* Of a token in a cell of a table, beside a large map, and on a terminal. */
#define LABEL_COLUMNS  10
#define LARGE_LABEL    16
#define TERMINAL_LABEL 12

/* --- heads and tokens ------------------------------------------------------------------------ */

struct heatmap_name attend_label(const struct attend_view *v, int position, size_t columns,
                                 bool printable)
{
    struct heatmap_name label = {""};
    char id[24];
    size_t used = 0, width = 0;
    bool blank = true;
    snprintf(id, sizeof id, "#%d", (int)v->spec.tokens[position]);
    struct text rest =
        v->tokenizer ? tokenizer_bytes(v->tokenizer, v->spec.tokens[position]) : text_of(id);
    for (size_t i = 0; i < rest.len; i++)
        blank &= rest.data[i] == ' ';
    if (!blank && rest.data[0] == ' ')
        text_cut(&rest, 1);
    while (rest.len > 0) {
        const struct text all = rest;
        const struct printable p = printable_next(&rest);
        const struct text shown = blank       ? text_of(OPEN_BOX)
                                  : printable ? text_of(p.text)
                                              : (struct text){all.data, all.len - rest.len};
        width += text_columns(shown);
        if (width + (rest.len > 0) > columns ||
            used + shown.len + sizeof ELLIPSIS > sizeof label.text) {
            memcpy(label.text + used, ELLIPSIS, sizeof ELLIPSIS);
            break;
        }
        memcpy(label.text + used, shown.data, shown.len);
        used += shown.len;
    }
    return label;
}

/* ".61", "1.0", "–" for NaN. */
static struct figure weight_figure(double weight)
{
    struct figure f = {"–"};
    if (isnan(weight))
        return f;
    snprintf(f.text, sizeof f.text, "%.2f", weight);
    if (f.text[0] == '0')
        memmove(f.text, f.text + 1, strlen(f.text));
    else
        f.text[3] = 0; /* "1.0" */
    return f;
}

/* --- rows ------------------------------------------------------------------------------------ */

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
    const int id = v->spec.tokens[position];
    const struct text none = {NULL, 0};
    return (struct key_row){position, id, v->tokenizer ? tokenizer_bytes(v->tokenizer, id) : none,
                            weight};
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
/* The first are also those of a query's rows. */
enum { FIELD_KV_HEAD = 3, FIELD_QUERY, FIELD_TOP, FIELD_JOINED, N_QUERY_FIELDS };

/* A table's rows, and of a query what the one at hand is made of. */
struct head_rows {
    const struct attend_view *v;
    struct attend_row row;
    int n_top;
    struct key_row *keys;    /* [n_top], and behind them; NULL: no query */
    struct token_score *top; /* [n_top] */
    char *joined;            /* [n_top * KEY_BYTES] */
};
#define KEY_BYTES 128

static struct attend_row row_of(const struct attend_view *v, int at)
{
    const struct attend_head *h = &v->spec.heads[at];
    struct attend_row row = {
        .of = *h, .kv_head = h->head / config_group(v->config, h->layer), .variant = v->variant};
    if (h->query >= 0)
        snprintf(row.pair, sizeof row.pair, "%s: %s %s",
                 attend_label(v, (int)h->query, LABEL_COLUMNS, false).text,
                 attend_label(v, (int)h->key, LABEL_COLUMNS, false).text,
                 weight_figure(h->strongest).text);
    return row;
}

static const void *next_row(void *arg, int at)
{
    struct head_rows *r = arg;
    const struct attend_view *v = r->v;
    if (at >= v->spec.n_heads)
        return NULL;
    r->row = row_of(v, at);
    if (!r->keys)
        return &r->row;
    const int query = v->spec.query, n_keys = query + 1;
    size_t used = 0;
    score_top(v->found.query + (size_t)at * (size_t)n_keys, n_keys, 0, r->n_top, r->top);
    for (int k = 0; k < r->n_top; k++) { /* "cat@4 .61" where there are several cats */
        const int position = r->top[k].id;
        char place[16] = "";
        for (int i = 0; i < n_keys; i++)
            if (i != position && v->spec.tokens[i] == v->spec.tokens[position])
                snprintf(place, sizeof place, "@%d", position);
        r->keys[k] = key_row(v, position, r->top[k].logprob);
        used += (size_t)snprintf(r->joined + used, KEY_BYTES, "%s%s%s %s", k ? ", " : "",
                                 attend_label(v, position, LABEL_COLUMNS, false).text, place,
                                 weight_figure(r->keys[k].weight).text);
    }
    r->row.query = query;
    r->row.top = (struct report_list){r->keys, r->n_top};
    r->row.joined = (struct text){r->joined, used};
    return &r->row;
}

int attend_tables(const void *values, struct table *tables)
{
    (void)values;
    *tables = (struct table){.fields = fields, .n = N_FIELDS};
    return 1;
}

enum status attend_print(const struct attend_view *v, struct job *j, struct err *e)
{
    const struct attend_options *o = v->options;
    struct head_rows rows = {.v = v};
    struct report_field own[N_FIELDS];
    struct table table = {own, N_FIELDS, .row = next_row, .arg = &rows};
    char name[96];
    bool shared = false;
    memcpy(own, fields, sizeof fields);
    for (int l = 0; l < v->layers.n; l++)
        shared |= config_group(v->config, v->layers.items[l]) > 1;
    if (!shared) /* it is the head */
        own[FIELD_KV_HEAD].heading = NULL;
    if (o->common.columns)
        table.fields = fields;
    if (v->spec.query >= 0) {
        const int query = v->spec.query;
        rows.n_top = o->top < query + 1 ? o->top : query + 1;
        const size_t size = (size_t)rows.n_top * (sizeof *rows.keys + sizeof *rows.top + KEY_BYTES);
        rows.keys = malloc(size);
        if (!rows.keys)
            return err_no_memory(e, "the keys of a query", size);
        rows.top = (void *)(rows.keys + rows.n_top);
        rows.joined = (char *)(rows.top + rows.n_top);
        snprintf(name, sizeof name, "%s: (token %d)",
                 attend_label(v, query, LABEL_COLUMNS, true).text, query);
        own[FIELD_QUERY] = (struct report_field){o->common.format == TABLE_CSV ? NULL : "query",
                                                 NULL, MEMBER(attend_row, query)};
        own[FIELD_TOP] = (struct report_field){"top",
                                               NULL,
                                               MEMBER(attend_row, top),
                                               .items = key_fields,
                                               .n_items = REPORT_LENGTH(key_fields),
                                               .item_size = sizeof *rows.keys,
                                               .most = rows.n_top};
        own[FIELD_JOINED] =
            (struct report_field){NULL, name, MEMBER(attend_row, joined), .list = true};
        table.n = N_QUERY_FIELDS;
    }
    const enum status s = job_print(j, &table, 1, e);
    free(rows.keys);
    return s;
}

/* --- files ----------------------------------------------------------------------------------- */

static void put_numbers(struct json *j, const char *key, const struct choice *c)
{
    json_begin_array(j, key);
    for (int i = 0; i < c->n; i++)
        json_int(j, NULL, c->items[i]);
    json_end(j);
}

enum status attend_write_json(const struct attend_view *v, const char *path, struct err *e)
{
    static const char *const axes[] = {"layer", "head", "query", "key"};
    struct file_output file;
    struct json j;
    file_output_init(&file);
    TRY(file_output_open(&file, path, e));
    json_init(&j, &file.out, 2);
    json_begin_object(&j, NULL);
    json_string(&j, "model", v->subject);
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
        const struct attend_row row = row_of(v, at);
        report_object(&j, NULL, fields, N_FIELDS, &row);
    }
    json_end(&j);
    json_end(&j);
    output_puts(&file.out, "\n");
    return file_output_commit(&file, e);
}

enum status attend_write_npy(const struct attend_view *v, const char *path, struct err *e)
{
    const uint64_t n = (uint64_t)v->spec.n_tokens;
    const uint64_t shape[] = {(uint64_t)v->layers.n, (uint64_t)v->heads.n, n, n};
    struct file_writer *w;
    TRY(npy_open(&w, path, shape, 4, e));
    for (int at = 0; at < v->spec.n_heads; at++)
        npy_put(w, v->arrays[at].cell, (size_t)n * (size_t)n);
    return file_writer_commit(w, e);
}

/* --- pictures -------------------------------------------------------------------------------- */

/* Of n maps: everything is a share of the largest weight. */
static struct heatmap_scale scale_of(const struct attend_map *maps, int n, bool log)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < (size_t)maps[i].cells * (size_t)maps[i].cells; k++)
            most = maps[i].cell[k] > most ? maps[i].cell[k] : most;
    return heatmap_scale((double)most, log);
}

enum status attend_write_svg(const struct attend_view *v, const char *path, struct err *e)
{
    const struct attend_map *first = v->pictures;
    const int cells = first->cells, n = v->spec.n_tokens;
    const bool large = v->spec.n_heads == 1;
    const size_t n_maps = (size_t)v->spec.n_heads, n_names = (size_t)(large ? cells : v->layers.n);
    const size_t bytes =
        n_maps * sizeof(struct heatmap_map) + n_names * sizeof(struct heatmap_name);
    struct heatmap_map *maps = calloc(bytes, 1);
    struct heatmap_name *names = (void *)(maps + n_maps);
    char title[256], subtitle[512], size[80] = "";
    if (!maps)
        return err_no_memory(e, "the picture", bytes);
    for (int at = 0; at < v->spec.n_heads; at++) {
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
    for (int i = 0; i < (int)n_names; i++)
        if (large)
            names[i] = attend_label(v, attend_cell_begin(i, cells, n), LARGE_LABEL, true);
        else
            snprintf(names[i].text, sizeof names[i].text, "layer %d", v->layers.items[i]);

    if (cells < n)
        snprintf(size, sizeof size, " A cell is the largest weight of %.1f by %.1f tokens.",
                 (double)n / cells, (double)n / cells);
    snprintf(title, sizeof title, "What the heads of %.160s look at", v->subject);
    snprintf(subtitle, sizeof subtitle,
             "Queries from top to bottom, keys from left to right: %d token%s.%s%s%s%s", n,
             plural((uint64_t)n), size, first->without_first ? " The first key is left out." : "",
             large ? " This is " : "", large ? maps->note : "");
    const struct heatmap_picture picture = {.title = title,
                                            .subtitle = subtitle,
                                            .what = "weight",
                                            .scale =
                                                scale_of(first, v->spec.n_heads, v->options->log),
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

/* --- on a terminal --------------------------------------------------------------------------- */

/* Cells of a drawing, however wide the terminal. */
#define MOST_SHOWN 512

static int digits_of(int n)
{
    return snprintf(NULL, 0, "%d", n);
}

/* Columns of a line beside its cells: the position, the token and blanks around. */
static int beside_cells(int n_tokens)
{
    return digits_of(n_tokens - 1) + 2 + TERMINAL_LABEL;
}

int attend_shown_cells(int n_tokens, int width)
{
    const int room = width - beside_cells(n_tokens);
    if (n_tokens <= room && n_tokens <= MOST_SHOWN)
        return n_tokens;
    const int most = room < HEATMAP_SMALL ? room : HEATMAP_SMALL;
    return most < 1 ? 1 : most < n_tokens ? most : n_tokens;
}

void attend_draw(const struct attend_view *v, int width, struct output *out)
{
    const enum heatmap_ink ink = terminal_ink();
    unsigned char levels[MOST_SHOWN];
    const struct attend_map *m = v->shown;
    const struct heatmap_scale scale = scale_of(m, 1, v->options->log);
    const int digits = digits_of(v->spec.n_tokens - 1);
    const int of_cell = 2 * m->cells <= width - beside_cells(v->spec.n_tokens) ? 2 : 1;
    output_printf(out, "head %s\n", v->options->show);
    for (int r = 0; r < m->cells; r++) {
        const int token = attend_cell_begin(r, m->cells, v->spec.n_tokens);
        heatmap_levels(&scale, m->cell + (size_t)r * (size_t)m->cells, r + 1, levels);
        output_printf(out, "%*d ", digits, token);
        heatmap_put_cells(out, ink, levels, r + 1, of_cell);
        output_printf(out, " %s\n", attend_label(v, token, TERMINAL_LABEL, true).text);
    }
    if (m->cells < v->spec.n_tokens)
        output_printf(out, "%d cells for %d tokens: the largest weight of each\n", m->cells,
                      v->spec.n_tokens);
    heatmap_put_legend(out, ink, &scale, "weight");
}
