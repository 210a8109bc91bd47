#include "cli/attend_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/output.h"
#include "cli/columns.h"
#include "cli/token_record.h"
#include "measure/npy.h"
#include "measure/score.h"

/* Of a token in a cell. */
#define LABEL_COLUMNS 10

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

/* Those of this view, unless --columns says which: what all rows have alike people need not see. */
static void choose_fields(const struct attend_view *v, struct report_field chosen[N_FIELDS])
{
    bool shared = false;
    memcpy(chosen, fields, sizeof fields);
    for (int l = 0; l < v->layers.n; l++)
        shared |= attend_is_shared(v, v->layers.items[l]);
    chosen[FIELD_VARIANT].heading = NULL;
    if (!shared)
        chosen[FIELD_KV_HEAD].heading = NULL;
}

static struct attend_row row_of(const struct attend_view *v, int at)
{
    const struct attend_head *h = &v->figures[at];
    struct attend_row row = {.layer = h->layer,
                             .head = h->head,
                             .kv_head = attend_kv_head(v, h),
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
                 attend_weight(h->strongest).text);
    return row;
}

/* --- the keys of a query --------------------------------------------------------------------- */

/* Room for a column's name. */
#define COLUMN_NAME 96

struct keys_table {
    const struct attend_view *v;
    enum table_format format;
    struct report report;
    struct json json;        /* of the JSON forms, whose rows are no tables' */
    struct token_score *top; /* [n_top] positions and weights */
    int n_top;               /* no more than there are */
    struct report_field *columns;
    char (*names)[COLUMN_NAME]; /* of columns */
    char *cell;                 /* where a row's keys are joined */
    size_t cell_cap;
};

/* Whether another key of the query has the same token. */
static bool is_repeated(const struct attend_view *v, int position)
{
    for (int i = 0; i <= v->wanted.query; i++)
        if (i != position && v->tokens[i] == v->tokens[position])
            return true;
    return false;
}

/* "cat .61, The .20"; "cat@4 .61" where there are several cats. */
static void put_joined_keys(struct keys_table *t)
{
    size_t used = 0;
    for (int k = 0; k < t->n_top; k++) {
        const int position = t->top[k].id;
        char at[16] = "";
        if (is_repeated(t->v, position))
            snprintf(at, sizeof at, "@%d", position);
        used += (size_t)snprintf(t->cell + used, t->cell_cap - used, "%s%s%s %s", k ? ", " : "",
                                 attend_label(t->v, position, LABEL_COLUMNS, false).text, at,
                                 attend_weight(t->top[k].logprob).text);
    }
    report_text(&t->report, (struct text){t->cell, used});
}

static void put_key_cells(struct keys_table *t, const struct token_score *key)
{
    const struct attend_view *v = t->v;
    const int32_t id = v->tokens[key->id];
    report_u64(&t->report, (uint64_t)key->id);
    report_u64(&t->report, (uint64_t)id);
    if (v->tokenizer)
        report_text(&t->report, tokenizer_bytes(v->tokenizer, id));
    else
        report_null(&t->report);
    report_double(&t->report, key->logprob, "%.4f");
}

static void put_keys_json(struct keys_table *t, const struct attend_row *row)
{
    struct json *j = &t->json;
    json_begin_object(j, NULL);
    report_members(j, fields, FIELD_FIGURES, row);
    json_int(j, "query", t->v->wanted.query);
    json_begin_array(j, "top");
    for (int k = 0; k < t->n_top; k++) {
        json_begin_object(j, NULL);
        json_int(j, "position", t->top[k].id);
        token_json(j, t->v->tokenizer, t->v->tokens[t->top[k].id]);
        json_double(j, "weight", t->top[k].logprob);
        json_end(j);
    }
    json_end(j);
    json_end(j);
    if (t->format == TABLE_JSONL)
        output_puts(j->out, "\n");
}

static void put_keys(struct keys_table *t, int at)
{
    const struct attend_view *v = t->v;
    const size_t n = (size_t)v->wanted.query + 1;
    const struct attend_row row = row_of(v, at);
    score_top(v->found.query + (size_t)at * n, (int)n, 0, t->n_top, t->top);
    if (table_is_json(t->format)) {
        put_keys_json(t, &row);
        return;
    }
    for (int i = 0; i < FIELD_FIGURES; i++)
        if (report_name(t->format, &t->columns[i]))
            report_cell(&t->report, &t->columns[i], &row);
    if (t->format != TABLE_CSV)
        put_joined_keys(t);
    for (int k = 0; k < t->n_top && t->format == TABLE_CSV; k++)
        put_key_cells(t, &t->top[k]);
}

/* Names *n columns: four more a key in CSV, one for all of them else. */
static enum status name_columns(struct keys_table *t, int *n, struct err *e)
{
    static const char *const kinds[] = {"position", "id", "text", "weight"};
    const struct attend_view *v = t->v;
    const bool csv = t->format == TABLE_CSV;
    struct report_field first[N_FIELDS];
    *n = FIELD_FIGURES + (csv ? 4 * t->n_top : 1);
    t->cell_cap = ((size_t)t->n_top + 1) * 2 * sizeof(struct attend_label);
    t->cell = malloc(t->cell_cap);
    t->columns = calloc((size_t)*n, sizeof *t->columns);
    t->names = calloc((size_t)*n, sizeof *t->names);
    t->top = calloc((size_t)t->n_top, sizeof *t->top);
    if (!t->columns || !t->names || !t->top || !t->cell)
        return err_no_memory(e, "the table's columns", (size_t)*n * sizeof *t->columns);
    choose_fields(v, first);
    memcpy(t->columns, first, FIELD_FIGURES * sizeof *first);
    for (int i = FIELD_FIGURES; i < *n; i++) {
        const int k = i - FIELD_FIGURES;
        if (csv)
            snprintf(t->names[i], COLUMN_NAME, "top%d_%s", k / 4 + 1, kinds[k % 4]);
        else
            snprintf(t->names[i], COLUMN_NAME, "%s: (token %d)",
                     attend_label(v, v->wanted.query, LABEL_COLUMNS, true).text, v->wanted.query);
        t->columns[i] =
            (struct report_field){t->names[i], t->names[i], .type = REPORT_TEXT, .list = true};
    }
    return STATUS_OK;
}

static void put_all_keys(struct keys_table *t)
{
    for (int at = 0; at < t->v->n_rows * t->v->n_columns; at++)
        put_keys(t, at);
}

static enum status print_keys(struct keys_table *t, struct output *out, struct err *e)
{
    int n_columns;
    TRY(name_columns(t, &n_columns, e));
    if (!table_is_json(t->format)) {
        report_begin(&t->report, t->format, t->columns, n_columns, out);
        put_all_keys(t);
        return report_end(&t->report, e);
    }
    json_init(&t->json, out, t->format == TABLE_JSON);
    if (t->format == TABLE_JSON)
        json_begin_array(&t->json, NULL);
    put_all_keys(t);
    if (t->format == TABLE_JSON) {
        json_end(&t->json);
        output_puts(out, "\n");
    }
    return STATUS_OK;
}

static enum status print_query(const struct attend_view *v, enum table_format format,
                               struct output *out, struct err *e)
{
    const int n = v->wanted.query + 1;
    struct keys_table t = {
        .v = v, .format = format, .n_top = v->wanted.n_top < n ? v->wanted.n_top : n};
    const enum status s = print_keys(&t, out, e);
    free(t.columns);
    free(t.names);
    free(t.top);
    free(t.cell);
    return s;
}

/* --- figures --------------------------------------------------------------------------------- */

int attend_tables(const void *values, struct table *tables)
{
    (void)values;
    *tables = (struct table){.fields = fields, .n = N_FIELDS};
    return 1;
}

enum status attend_print(const struct attend_view *v, enum table_format format, const char *columns,
                         struct output *out, struct err *e)
{
    struct report_field own[N_FIELDS];
    struct columns chosen;
    struct report r;
    if (v->wanted.query >= 0)
        return print_query(v, format, out, e);
    choose_fields(v, own);
    columns_choose(columns, format, columns ? fields : own, N_FIELDS, &chosen);
    report_begin(&r, format, chosen.fields, chosen.n, out);
    for (int at = 0; at < v->n_rows * v->n_columns; at++) {
        const struct attend_row row = row_of(v, at);
        report_row(&r, &row);
    }
    return report_end(&r, e);
}

/* --- files ----------------------------------------------------------------------------------- */

static void put_numbers(struct json *j, const char *key, const struct choice *c)
{
    json_begin_array(j, key);
    for (int i = 0; i < c->n; i++)
        json_int(j, NULL, c->items[i]);
    json_end(j);
}

static void put_axes(struct json *j, const struct attend_view *v)
{
    static const char *const axes[] = {"layer", "head", "query", "key"};
    json_begin_array(j, "axes");
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++)
        json_string(j, NULL, axes[i]);
    json_end(j);
    put_numbers(j, "layers", &v->layers);
    put_numbers(j, "heads", &v->heads);
    json_begin_array(j, "tokens");
    for (int i = 0; i < v->n_tokens; i++) {
        json_begin_object(j, NULL);
        json_int(j, "position", i);
        token_json(j, v->tokenizer, v->tokens[i]);
        json_end(j);
    }
    json_end(j);
}

enum status attend_write_json(const struct attend_view *v, const char *path, struct err *e)
{
    struct file_output file;
    struct json j;
    file_output_init(&file);
    TRY(file_output_open(&file, path, e));
    json_init(&j, &file.out, 2);
    json_begin_object(&j, NULL);
    json_string(&j, "model", v->subject);
    put_axes(&j, v);
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
    struct npy_writer *w;
    TRY(npy_open(&w, path, shape, 4, e));
    for (int at = 0; at < v->n_rows * v->n_columns; at++)
        npy_put(w, v->arrays[at].cell, (size_t)n * (size_t)n);
    return npy_commit(w, e);
}
