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
#include "show/heatmap.h"
#include "show/paragraph.h"
#include "show/report.h"

#define OPEN_BOX "\xe2\x90\xa3"
#define ELLIPSIS "\xe2\x80\xa6"
/* Of a token in a cell of a table, beside a large map, and on a terminal. */
#define LABEL_COLUMNS  10
#define LARGE_LABEL    16
#define TERMINAL_LABEL 12

/* --- heads and tokens ------------------------------------------------------------------------ */

static int kv_head_of(const struct attend_view *v, const struct attend_head *h)
{
    return h->head / config_group(&v->model->config, h->layer);
}

static bool is_shared(const struct attend_view *v, int layer)
{
    return config_group(&v->model->config, layer) > 1;
}

struct attend_label attend_label(const struct attend_view *v, int position, int columns,
                                 bool printable)
{
    struct attend_label label = {""};
    char id[24];
    size_t used = 0, n_spaces = 0;
    snprintf(id, sizeof id, "#%d", (int)v->tokens[position]);
    struct text rest =
        v->tokenizer ? tokenizer_bytes(v->tokenizer, v->tokens[position]) : text_of(id);
    while (n_spaces < rest.len && rest.data[n_spaces] == ' ')
        n_spaces++;
    const bool blank = n_spaces == rest.len;
    if (n_spaces > 0 && !blank)
        rest = (struct text){rest.data + 1, rest.len - 1};
    for (int column = 0; rest.len > 0;) {
        struct printable p = {OPEN_BOX};
        if (blank) {
            rest = (struct text){rest.data + 1, rest.len - 1};
        } else if (printable) {
            p = printable_next(&rest);
        } else {
            uint32_t code;
            const struct text first = utf8_next(&rest, &code);
            snprintf(p.text, sizeof p.text, "%.*s", text_width(first), first.data);
        }
        const size_t len = strlen(p.text);
        column += (int)text_columns(text_of(p.text));
        if (column + (rest.len > 0) > columns || used + len + sizeof ELLIPSIS > sizeof label.text) {
            memcpy(label.text + used, ELLIPSIS, sizeof ELLIPSIS);
            break;
        }
        memcpy(label.text + used, p.text, len);
        used += len;
    }
    return label;
}

/* ".61", "1.0", "–" for NaN. */
struct weight_shown {
    char text[8];
};

static struct weight_shown weight_shown(double weight)
{
    struct weight_shown w = {"–"};
    if (isnan(weight))
        return w;
    snprintf(w.text, sizeof w.text, "%.2f", weight);
    if (w.text[0] == '0')
        memmove(w.text, w.text + 1, strlen(w.text));
    else
        w.text[3] = 0; /* "1.0" */
    return w;
}

/* --- rows ------------------------------------------------------------------------------------ */

/* A head's figures as they are printed. */
struct attend_row {
    int layer, head, kv_head;
    const char *variant;
    double entropy, distance, first, previous, self, induction;
    int64_t query, key;
    double strongest;
    char pair[160]; /* "sat: cat .61"; "" for none */
};

static const struct report_field fields[] = {
    {"layer", "layer", MEMBER(attend_row, layer)},
    {"head", "head", MEMBER(attend_row, head)},
    {"variant", "variant", MEMBER(attend_row, variant), .rank = 1},
    {"kv_head", "K/V", MEMBER(attend_row, kv_head), .rank = 3},
    {"entropy", "entropy", MEMBER(attend_row, entropy), "%.2f", .rank = 2},
    {"distance", "distance", MEMBER(attend_row, distance), "%.1f", .rank = 5},
    {"first", "first", MEMBER(attend_row, first), "%.3f", .none = "–"},
    {"previous", "prev", MEMBER(attend_row, previous), "%.3f", .none = "–"},
    {"self", "self", MEMBER(attend_row, self), "%.3f", .rank = 6},
    {"induction", "induct", MEMBER(attend_row, induction), "%.3f", .none = "–"},
    {NULL, "strongest", MEMBER(attend_row, pair), .rank = 7},
    {"strongest_query", NULL, MEMBER(attend_row, query)},
    {"strongest_key", NULL, MEMBER(attend_row, key)},
    {"strongest", NULL, MEMBER(attend_row, strongest)},
};
#define N_FIELDS REPORT_LENGTH(fields)
enum { FIELD_LAYER, FIELD_HEAD, FIELD_VARIANT, FIELD_KV_HEAD, FIELD_FIGURES };

/* The first n of them: what all rows have alike people need not see. */
static void choose_fields(const struct attend_view *v, struct report_field *chosen, int n)
{
    bool shared = false;
    memcpy(chosen, fields, (size_t)n * sizeof *fields);
    for (int l = 0; l < v->layers.n; l++)
        shared |= is_shared(v, v->layers.items[l]);
    chosen[FIELD_VARIANT].heading = NULL;
    if (!shared)
        chosen[FIELD_KV_HEAD].heading = NULL;
}

static struct attend_row row_of(const struct attend_view *v, int at)
{
    const struct attend_head *h = &v->figures[at];
    struct attend_row row = {.layer = h->layer,
                             .head = h->head,
                             .kv_head = kv_head_of(v, h),
                             .variant = v->variant,
                             .entropy = h->entropy,
                             .distance = h->distance,
                             .first = h->first,
                             .previous = h->previous,
                             .self = h->self,
                             .induction = h->induction,
                             .query = h->query,
                             .key = h->key,
                             .strongest = h->strongest};
    if (h->query >= 0)
        snprintf(row.pair, sizeof row.pair, "%s: %s %s",
                 attend_label(v, h->query, LABEL_COLUMNS, false).text,
                 attend_label(v, h->key, LABEL_COLUMNS, false).text,
                 weight_shown(h->strongest).text);
    return row;
}

/* --- the keys of a query --------------------------------------------------------------------- */

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
    const int id = v->tokens[position];
    const struct text none = {NULL, 0};
    return (struct key_row){position, id, v->tokenizer ? tokenizer_bytes(v->tokenizer, id) : none,
                            weight};
}

/* A head, and what it looks at most. */
struct query_row {
    struct attend_row head;
    int query;
    struct report_list top; /* of struct key_row */
    struct text joined;     /* for people: "cat .61, The .20" */
};

static enum status print_query(const struct attend_view *v, enum table_format format,
                               struct output *out, struct err *e)
{
    const int n_keys = v->wanted.query + 1;
    const int n_top = v->wanted.n_top < n_keys ? v->wanted.n_top : n_keys;
    const size_t size = ((size_t)n_top + 1) * 2 * sizeof(struct attend_label);
    char name[96], *cell = malloc(size);
    struct token_score *top = calloc((size_t)n_top, sizeof *top);
    struct key_row *keys = calloc((size_t)n_top, sizeof *keys);
    struct report r;
    enum status s = STATUS_OK;
    snprintf(name, sizeof name, "%s: (token %d)",
             attend_label(v, v->wanted.query, LABEL_COLUMNS, true).text, v->wanted.query);
    struct report_field columns[FIELD_FIGURES + 3];
    choose_fields(v, columns, FIELD_FIGURES);
    columns[FIELD_FIGURES] =
        (struct report_field){format == TABLE_CSV ? NULL : "query", NULL, MEMBER(query_row, query)};
    columns[FIELD_FIGURES + 1] = (struct report_field){"top",
                                                       NULL,
                                                       MEMBER(query_row, top),
                                                       .items = key_fields,
                                                       .n_items = REPORT_LENGTH(key_fields),
                                                       .item_size = sizeof *keys,
                                                       .most = n_top};
    columns[FIELD_FIGURES + 2] =
        (struct report_field){NULL, name, MEMBER(query_row, joined), .list = true};
    if (!cell || !top || !keys)
        s = err_no_memory(e, "the keys of a query", size);
    else
        report_begin(&r, format, columns, REPORT_LENGTH(columns), out);
    for (int at = 0; at < v->n_rows * v->n_columns && s == STATUS_OK; at++) {
        score_top(v->found.query + (size_t)at * (size_t)n_keys, n_keys, 0, n_top, top);
        for (int k = 0; k < n_top; k++)
            keys[k] = key_row(v, top[k].id, top[k].logprob);
        struct query_row row = {row_of(v, at), v->wanted.query, {keys, n_top}, {"", 0}};
        size_t used = 0;
        for (int k = 0; k < n_top; k++) { /* "cat@4 .61" where there are several cats */
            const int position = keys[k].position;
            char place[16] = "";
            for (int i = 0; i < n_keys; i++)
                if (i != position && v->tokens[i] == v->tokens[position])
                    snprintf(place, sizeof place, "@%d", position);
            used += (size_t)snprintf(cell + used, size - used, "%s%s%s %s", k ? ", " : "",
                                     attend_label(v, position, LABEL_COLUMNS, false).text, place,
                                     weight_shown(keys[k].weight).text);
        }
        row.joined = (struct text){cell, used};
        report_row(&r, &row);
    }
    if (s == STATUS_OK)
        s = report_end(&r, e);
    free(cell);
    free(top);
    free(keys);
    return s;
}

/* --- figures --------------------------------------------------------------------------------- */

/* A table's rows. */
struct head_rows {
    const struct attend_view *v;
    struct attend_row row;
};

static const void *next_row(void *arg, int i)
{
    struct head_rows *rows = arg;
    if (i >= rows->v->n_rows * rows->v->n_columns)
        return NULL;
    rows->row = row_of(rows->v, i);
    return &rows->row;
}

enum status attend_print(const struct attend_view *v, struct job *j, struct err *e)
{
    struct report_field own[N_FIELDS];
    struct head_rows rows = {.v = v};
    if (v->wanted.query >= 0)
        return print_query(v, (enum table_format)j->common->format, j->out, e);
    choose_fields(v, own, N_FIELDS);
    const struct table table = {.fields = own, .n = N_FIELDS, .row = next_row, .arg = &rows};
    return job_print(j, &table, e);
}

/* --- files ----------------------------------------------------------------------------------- */

enum status attend_write_json(const struct attend_view *v, const char *path, struct err *e)
{
    struct file_output file;
    struct json j;
    file_output_init(&file);
    TRY(file_output_open(&file, path, e));
    json_init(&j, &file.out, 2);
    json_begin_object(&j, NULL);
    json_string(&j, "model", v->subject);
    static const char *const axes[] = {"layer", "head", "query", "key"};
    json_begin_array(&j, "axes");
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++)
        json_string(&j, NULL, axes[i]);
    json_end(&j);
    for (int k = 0; k < 2; k++) {
        const struct choice *c = k == 0 ? &v->layers : &v->heads;
        json_begin_array(&j, k == 0 ? "layers" : "heads");
        for (int i = 0; i < c->n; i++)
            json_int(&j, NULL, c->items[i]);
        json_end(&j);
    }
    json_begin_array(&j, "tokens");
    for (int i = 0; i < v->n_tokens; i++) {
        const struct key_row token = key_row(v, i, 0);
        report_object(&j, NULL, key_fields, REPORT_LENGTH(key_fields) - 1, &token);
    }
    json_end(&j);
    json_begin_array(&j, "figures");
    for (int at = 0; at < v->n_rows * v->n_columns; at++) {
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
    const uint64_t n = (uint64_t)v->n_tokens;
    const uint64_t shape[] = {(uint64_t)v->n_rows, (uint64_t)v->n_columns, n, n};
    struct file_writer *w;
    TRY(npy_open(&w, path, shape, 4, e));
    for (int at = 0; at < v->n_rows * v->n_columns; at++)
        npy_put(w, v->arrays[at].cell, (size_t)n * (size_t)n);
    return file_writer_commit(w, e);
}

/* --- pictures -------------------------------------------------------------------------------- */

/* Bytes of the text that a subtitle quotes, at most. */
#define QUOTED 120
/* Cells of a drawing, however wide the terminal. */
#define MOST_SHOWN 512

#define NOTE_BYTES 200

/* Of n maps: everything is a share of the largest weight. */
static struct heatmap_scale scale_of(const struct attend_map *maps, int n, bool log)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < (size_t)maps[i].cells * (size_t)maps[i].cells; k++)
            most = maps[i].cell[k] > most ? maps[i].cell[k] : most;
    return heatmap_scale((double)most, log);
}

/* What an SVG file is made of; all of it freed together. */
struct attend_picture {
    const struct attend_view *v;
    char title[256], subtitle[512 + NOTE_BYTES];
    struct heatmap_map *maps;    /* [n_maps] */
    char (*names)[32];           /* [n_maps] */
    char (*notes)[NOTE_BYTES];   /* [n_maps] */
    struct attend_label *labels; /* [n_labels] of rows of maps, or of a large map's cells */
    struct text *label_texts;    /* the same */
};

/* Of a single head's picture what small ones show when pointed at. */
static void describe(struct attend_picture *p, bool large)
{
    const struct attend_view *v = p->v;
    const struct attend_map *m = v->pictures;
    char quoted[QUOTED], cells[80] = "";
    size_t used = 0; /* of the beginning of the text, whole tokens */
    int i = 0;
    for (; i < v->n_tokens; i++) {
        const struct text t =
            v->tokenizer ? tokenizer_bytes(v->tokenizer, v->tokens[i]) : (struct text){"", 0};
        if (t.len >= sizeof quoted - used)
            break;
        memcpy(quoted + used, t.data, t.len);
        used += t.len;
    }
    quoted[used] = 0;
    for (size_t k = 0; k < used; k++)
        if (!quoted[k])
            quoted[k] = ' ';
    if (m->cells < v->n_tokens)
        snprintf(cells, sizeof cells, " A cell is the largest weight of %.1f by %.1f tokens.",
                 (double)v->n_tokens / m->cells, (double)v->n_tokens / m->cells);
    snprintf(p->title, sizeof p->title, "What the heads of %.160s look at", v->subject);
    snprintf(p->subtitle, sizeof p->subtitle,
             "Queries from top to bottom, keys from left to right: %d token%s, “%s”%s.%s%s%s%s",
             v->n_tokens, plural((uint64_t)v->n_tokens), quoted,
             i == v->n_tokens ? "" : " and so on", cells,
             m->without_first ? " The first key is left out." : "", large ? " This is " : "",
             large ? p->notes[0] : "");
}

static enum status draw_svg(struct attend_picture *p, bool log, const char *path, struct err *e)
{
    const struct attend_view *v = p->v;
    const int n_maps = v->n_rows * v->n_columns, cells = v->pictures->cells;
    const bool large = n_maps == 1;
    const size_t n_labels = (size_t)(large ? cells : v->n_rows);
    p->maps = calloc((size_t)n_maps, sizeof *p->maps);
    p->names = calloc((size_t)n_maps, sizeof *p->names);
    p->notes = calloc((size_t)n_maps, sizeof *p->notes);
    p->labels = calloc(n_labels, sizeof *p->labels);
    p->label_texts = calloc(n_labels, sizeof *p->label_texts);
    if (!p->maps || !p->names || !p->notes || !p->labels || !p->label_texts)
        return err_no_memory(e, "the picture", (size_t)n_maps * sizeof *p->notes);
    for (int at = 0; at < n_maps; at++) {
        const struct attend_head *h = &v->figures[at];
        snprintf(p->names[at], sizeof p->names[at], "%d.%d", h->layer, h->head);
        snprintf(p->notes[at], NOTE_BYTES,
                 "layer %d, head %d, %s: entropy %.2f nats, %.1f tokens back, first %s, previous "
                 "%s, itself %s",
                 h->layer, h->head, v->variant, h->entropy, h->distance,
                 weight_shown(h->first).text, weight_shown(h->previous).text,
                 weight_shown(h->self).text);
        p->maps[at] = (struct heatmap_map){
            .cells = v->pictures[at].cell,
            .name = p->names[at],
            .note = p->notes[at],
            .group = is_shared(v, h->layer) ? kv_head_of(v, h) : -1,
        };
    }
    if (large)
        p->maps[0].name = p->maps[0].note = NULL;
    describe(p, large);
    for (size_t i = 0; i < n_labels; i++) {
        if (large)
            p->labels[i] =
                attend_label(v, attend_cell_begin((int)i, cells, v->n_tokens), LARGE_LABEL, true);
        else
            snprintf(p->labels[i].text, sizeof p->labels[i].text, "layer %d", v->layers.items[i]);
        p->label_texts[i] = text_of(p->labels[i].text);
    }
    const struct heatmap_picture picture = {.title = p->title,
                                            .subtitle = p->subtitle,
                                            .what = "weight",
                                            .scale = scale_of(v->pictures, n_maps, log),
                                            .maps = p->maps,
                                            .n_rows = v->n_rows,
                                            .n_columns = v->n_columns,
                                            .map_rows = cells,
                                            .map_columns = cells,
                                            .triangle = true,
                                            .row_names = p->label_texts,
                                            .column_names = large ? p->label_texts : NULL};
    return heatmap_write(&picture, path, e);
}

enum status attend_write_svg(const struct attend_view *v, const char *path, bool log, struct err *e)
{
    struct attend_picture p = {.v = v};
    const enum status s = draw_svg(&p, log, path, e);
    free(p.maps);
    free(p.names);
    free(p.notes);
    free(p.labels);
    free(p.label_texts);
    return s;
}

/* --- on a terminal --------------------------------------------------------------------------- */

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
    return room < 1 ? 1 : room < HEATMAP_SMALL ? room : HEATMAP_SMALL;
}

void attend_draw(const struct attend_view *v, bool log, int width, struct output *out)
{
    const enum heatmap_ink ink = terminal_ink();
    unsigned char levels[MOST_SHOWN];
    const struct attend_map *m = v->shown;
    const struct heatmap_scale scale = scale_of(m, 1, log);
    const int digits = digits_of(v->n_tokens - 1);
    const int of_cell = 2 * m->cells <= width - beside_cells(v->n_tokens) ? 2 : 1;
    output_printf(out, "head %s\n", v->wanted.show);
    for (int r = 0; r < m->cells; r++) {
        const float *row = m->cell + (size_t)r * (size_t)m->cells;
        const int token = attend_cell_begin(r, m->cells, v->n_tokens);
        heatmap_levels(&scale, row, r + 1, levels);
        output_printf(out, "%*d ", digits, token);
        heatmap_put_cells(out, ink, levels, r + 1, of_cell);
        output_printf(out, " %s\n", attend_label(v, token, TERMINAL_LABEL, true).text);
    }
    if (m->cells < v->n_tokens)
        output_printf(out, "%d cells for %d tokens: the largest weight of each\n", m->cells,
                      v->n_tokens);
    heatmap_put_legend(out, ink, &scale, "weight");
}
