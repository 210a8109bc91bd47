#include "show/report.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "show/paragraph.h"
#include "text/unicode.h"

const char *const table_formats[] = {"table", "md", "csv", "json", "jsonl", NULL};

const char *report_name(enum table_format format, const struct report_field *f)
{
    return table_is_for_people(format) ? f->heading : f->key;
}

static const char *column_name(const struct report *r, int at)
{
    return report_name(r->format, &r->fields[at]);
}

/* The next field that the form shows, after the last one the first; -1 comes before the first. */
static int next_column(const struct report *r, int at)
{
    do
        at = (at + 1) % r->n_fields;
    while (!column_name(r, at));
    return at;
}

/* --- tables for people ----------------------------------------------------------------------- */

/* Between two columns. */
#define GAP 2
/* A last column that is broken into lines is no narrower. */
#define NARROWEST 24

/* Of a terminal, see enum report_accent. */
static const char *const accents[] = {
    [ACCENT_NONE] = "", [ACCENT_ROW] = "\033[1m", [ACCENT_CELL] = "\033[33m"};
#define PLAIN "\033[m"

/* One that the form shows. */
struct column {
    const struct report_field *field;
    size_t width;
    bool left;     /* aligned */
    bool left_out; /* of the table, as it is too wide */
    bool filled;   /* it has a cell that is not empty, below its heading */
};

struct table {
    const struct report *r;
    const char **cells; /* [n_rows, n] as they are stored, headings first */
    int n_rows;
    struct column *columns; /* [n] */
    int n, last;            /* last: that is not left out */
    int n_left_out;         /* filled ones */
};

static struct text cell_of(const struct table *t, int row, int column)
{
    return text_of(t->cells[row * t->n + column]);
}

static void take_table(struct table *t)
{
    const struct report *r = t->r;
    for (int i = 0; i < r->n_fields; i++)
        if (column_name(r, i))
            t->columns[t->n++] =
                (struct column){.field = &r->fields[i],
                                .left = r->fields[i].type >= REPORT_TEXT && !r->fields[i].right};
    t->last = t->n - 1;
    const char *at = r->cells;
    for (; at < r->cells + r->cells_len; t->n_rows++) {
        for (int i = 0; i < t->n; i++, at += strlen(at) + 1) {
            struct column *c = &t->columns[i];
            const size_t width = text_columns(text_of(at));
            t->cells[t->n_rows * t->n + i] = at;
            c->width = width > c->width ? width : c->width;
            c->filled |= t->n_rows > 0 && width > 0;
        }
    }
}

/* Whether the last column's cells may go on in further lines: of a text that is never left out. */
static bool last_is_broken(const struct table *t)
{
    return t->columns[t->last].left && t->columns[t->last].field->rank == 0;
}

static size_t width_before_last(const struct table *t)
{
    size_t width = 0;
    for (int i = 0; i < t->last; i++)
        width += t->columns[i].left_out ? 0 : t->columns[i].width + GAP;
    return width;
}

static bool fits(const struct table *t)
{
    size_t last = t->columns[t->last].width;
    if (last_is_broken(t) && last > NARROWEST)
        last = NARROWEST;
    return width_before_last(t) + last <= (size_t)t->r->out->columns;
}

/* What there is for a text that is broken, behind what is before it. */
static size_t width_behind(const struct table *t, size_t before)
{
    const size_t all = (size_t)t->r->out->columns;
    return all > before + NARROWEST ? all - before : NARROWEST;
}

static void leave_out(struct table *t, int at)
{
    t->columns[at].left_out = true;
    t->n_left_out += t->columns[at].filled;
    while (t->last > 0 && t->columns[t->last].left_out)
        t->last--;
}

/* Empty columns go first, but for a table that is only headings; then those of the highest rank, of
 * several the last. */
static void fit_columns(struct table *t)
{
    const bool spared = t->n_rows == 1 || fits(t);
    for (int i = 0; i < t->n && !spared; i++)
        if (!t->columns[i].filled)
            leave_out(t, i);
    while (!fits(t)) {
        int least = -1, rank = 1;
        for (int i = 0; i < t->n; i++) {
            if (!t->columns[i].left_out && t->columns[i].field->rank >= rank) {
                rank = t->columns[i].field->rank;
                least = i;
            }
        }
        if (least < 0)
            break;
        leave_out(t, least);
    }
    struct column *last = &t->columns[t->last];
    const size_t width = width_behind(t, width_before_last(t));
    if (last_is_broken(t) && last->width > width)
        last->width = width;
}

static void name_left_out(const struct table *t)
{
    struct paragraph p = paragraph_begin(t->r->out, 2);
    paragraph_puts(&p, "Too wide, left out:");
    for (int i = 0, n = 0; i < t->n; i++) {
        if (!t->columns[i].left_out || !t->columns[i].filled)
            continue;
        paragraph_puts(&p, " ");
        paragraph_puts(&p, t->columns[i].field->heading);
        paragraph_puts(&p, ++n < t->n_left_out ? "," : "; -v shows all.");
    }
    paragraph_end(&p);
}

/* After the spaces that are owed: at a line's end they are not paid. */
static void put_padded(struct output *out, const char *accent, struct text s, size_t *pad)
{
    if (s.len == 0)
        return;
    output_repeat(out, ' ', *pad);
    output_puts(out, accent);
    output_put(out, s);
    output_puts(out, *accent ? PLAIN : "");
    *pad = 0;
}

/* What is left of a column's cell, in further lines. */
static void put_below(const struct table *t, int column, struct text rest, size_t indent,
                      size_t width)
{
    struct output *out = t->r->out;
    while (rest.len > 0) {
        output_repeat(out, ' ', indent);
        output_put(out, paragraph_line(&rest, width, t->columns[column].field->list));
        output_puts(out, "\n");
    }
}

static void print_row(const struct table *t, int row)
{
    struct output *out = t->r->out;
    const bool md = t->r->format == TABLE_MD, plain = row == 0 || !out->colours || md;
    enum report_accent of_row = ACCENT_NONE;
    for (int i = 0; i < t->n && !plain; i++)
        if (t->columns[i].field->accent == ACCENT_ROW && cell_of(t, row, i).len > 0)
            of_row = ACCENT_ROW;
    struct text rest = {"", 0};
    size_t pad = 0;
    for (int i = 0; i <= t->last; i++) {
        const struct column *c = &t->columns[i];
        struct text cell = cell_of(t, row, i);
        if (c->left_out)
            continue;
        if (i == t->last && !md) {
            rest = cell;
            cell = paragraph_line(&rest, c->width, c->field->list);
        }
        const size_t blank = c->width - text_columns(cell);
        const bool own = !plain && c->field->accent == ACCENT_CELL;
        put_padded(out, "", text_of(md ? "| " : ""), &pad);
        pad += c->left ? 0 : blank;
        put_padded(out, accents[own ? ACCENT_CELL : of_row], cell, &pad);
        pad += (c->left ? blank : 0) + (md ? 1 : GAP);
    }
    put_padded(out, "", text_of(md ? "|" : ""), &pad);
    output_puts(out, "\n");
    put_below(t, t->last, rest, width_before_last(t), t->columns[t->last].width);
}

/* Between a Markdown table's headings and its rows. */
static void print_rule(const struct table *t)
{
    for (int i = 0; i < t->n; i++) {
        const struct column *c = &t->columns[i];
        output_puts(t->r->out, c->left ? "|:" : "|-");
        output_repeat(t->r->out, '-', c->width);
        output_puts(t->r->out, c->left ? "-" : ":");
    }
    output_puts(t->r->out, "|\n");
}

/* Of a single row that does not fit nothing is left out: the columns are lines. */
static void print_downwards(const struct table *t)
{
    struct output *out = t->r->out;
    size_t indent = 0, pad = 0;
    for (int i = 0; i < t->n; i++) {
        const size_t width = text_columns(cell_of(t, 0, i)) + GAP;
        indent = t->columns[i].filled && width > indent ? width : indent;
    }
    const size_t width = width_behind(t, indent);
    for (int i = 0; i < t->n; i++) {
        const struct text heading = cell_of(t, 0, i);
        struct text rest = cell_of(t, 1, i);
        if (!t->columns[i].filled)
            continue;
        put_padded(out, "", heading, &pad);
        output_repeat(out, ' ', indent - text_columns(heading));
        output_put(out, paragraph_line(&rest, width, t->columns[i].field->list));
        output_puts(out, "\n");
        put_below(t, i, rest, indent, width);
    }
}

/* Prints what is stored, of an aligned table the columns that fit; or sets no_memory. */
static void print_table(struct report *r)
{
    size_t n_cells = 0;
    for (size_t i = 0; i < r->cells_len; i++)
        n_cells += !r->cells[i];
    struct table t = {.r = r,
                      .cells = calloc(n_cells, sizeof *t.cells),
                      .columns = calloc((size_t)r->n_fields, sizeof *t.columns)};
    r->no_memory = r->no_memory || !t.cells || !t.columns;
    if (!r->no_memory) {
        take_table(&t);
        const bool fitted = r->format == TABLE_ALIGNED && r->out->columns > 0;
        if (fitted && t.n_rows == 2 && !fits(&t)) {
            print_downwards(&t);
        } else {
            if (fitted)
                fit_columns(&t);
            for (int row = 0; row < t.n_rows; row++) {
                print_row(&t, row);
                if (row == 0 && r->format == TABLE_MD)
                    print_rule(&t);
            }
            if (t.n_left_out > 0)
                name_left_out(&t);
        }
    }
    free(t.cells);
    free(t.columns);
}

/* --- cells ----------------------------------------------------------------------------------- */

static void store_bytes(struct report *r, const char *bytes, size_t len)
{
    if (r->no_memory)
        return;
    if (len > r->cells_cap - r->cells_len) {
        const size_t cap = 2 * r->cells_cap + len + 256;
        char *cells = realloc(r->cells, cap);
        if (!cells) {
            r->no_memory = true;
            return;
        }
        r->cells = cells;
        r->cells_cap = cap;
    }
    memcpy(r->cells + r->cells_len, bytes, len);
    r->cells_len += len;
}

static void store_escaped(struct report *r, struct text bytes)
{
    while (bytes.len > 0) {
        const struct printable p = printable_next(&bytes);
        if (r->format == TABLE_MD && p.text[0] == '|')
            store_bytes(r, "\\", 1);
        store_bytes(r, p.text, strlen(p.text));
    }
    store_bytes(r, "", 1);
}

/* RFC 4180; bytes that are not UTF-8 become U+FFFD, as in JSON, and so do control characters, for
 * which CSV has no escapes; but line feed and tab stay. */
static void csv_put_text(struct output *out, struct text s)
{
    bool quoted = s.len > 0 && (s.data[0] == ' ' || s.data[s.len - 1] == ' ');
    for (size_t i = 0; i < s.len; i++)
        quoted |= s.data[i] && strchr(",\"\n", s.data[i]);
    if (quoted)
        output_puts(out, "\"");
    while (s.len > 0) {
        uint32_t code;
        const struct text bytes = utf8_next(&s, &code);
        if (code == UNICODE_INVALID || (utf8_is_control(code) && code != '\n' && code != '\t'))
            output_puts(out, "\xef\xbf\xbd");
        else
            output_put(out, bytes);
        if (code == '"')
            output_puts(out, "\"");
    }
    if (quoted)
        output_puts(out, "\"");
}

/* Goes on with the next column. */
static void end_cell(struct report *r)
{
    r->at = next_column(r, r->at);
    if (table_is_json(r->format) && r->at == r->first)
        json_end(&r->json);
    if (r->format == TABLE_CSV && r->at != r->first)
        output_puts(r->out, ",");
    else if (r->at == r->first && (r->format == TABLE_CSV || r->format == TABLE_JSONL))
        output_puts(r->out, "\n");
}

/* One cell. What is not text is a number, or empty: null in JSON. */
static void put_cell(struct report *r, struct text bytes, bool is_text)
{
    const bool json = table_is_json(r->format);
    const char *name = column_name(r, r->at);
    if (json && r->at == r->first)
        json_begin_object(&r->json, NULL);
    if (json && is_text)
        json_text(&r->json, name, bytes);
    else if (json)
        json_literal(&r->json, name, bytes.len ? bytes : text_of("null"));
    else if (r->format != TABLE_CSV)
        store_escaped(r, bytes);
    else
        csv_put_text(r->out, bytes);
    end_cell(r);
}

void report_text(struct report *r, struct text bytes)
{
    put_cell(r, bytes, true);
}

void report_string(struct report *r, const char *s)
{
    report_text(r, text_of(s));
}

void report_u64(struct report *r, uint64_t x)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, x);
    put_cell(r, text_of(digits), false);
}

void report_double(struct report *r, double x, const char *format)
{
    char digits[512] = "";
    if (isfinite(x) && table_is_for_people(r->format))
        snprintf(digits, sizeof digits, format, x);
    else if (isfinite(x))
        snprintf(digits, sizeof digits, "%s", figure_exact(x).text);
    put_cell(r, text_of(digits), false);
}

void report_null(struct report *r)
{
    put_cell(r, text_of(""), false);
}

/* --- values ---------------------------------------------------------------------------------- */

/* A member, whatever its type. */
struct report_value {
    bool none, is_text;
    struct text text;     /* if it is one */
    double number;        /* else; integers rounded */
    uint64_t integer;     /* of all but doubles */
    struct figure digits; /* the number exactly, or "true" or "false" */
};

static struct report_value report_value(const struct report_field *f, const void *row)
{
    struct report_value v = {.none = false};
    const void *member = (const char *)row + f->offset;
    const char *string = member;
    switch (f->type) {
    case REPORT_INT:
        v.integer = (uint64_t) * (const int *)member;
        break;
    case REPORT_COUNT:
        v.none = *(const int64_t *)member < 0;
        v.integer = *(const uint64_t *)member;
        break;
    case REPORT_U64:
        v.integer = *(const uint64_t *)member;
        break;
    case REPORT_BOOL:
        v.integer = *(const bool *)member;
        v.digits = v.integer ? (struct figure){"true"} : (struct figure){"false"};
        return v;
    case REPORT_DOUBLE:
        v.number = *(const double *)member;
        v.none = !isfinite(v.number);
        v.digits = figure_exact(v.number);
        return v;
    case REPORT_TEXT:
        v.is_text = true;
        v.text = *(const struct text *)member;
        v.none = !v.text.data || (v.text.len == 0 && f->none);
        return v;
    case REPORT_STRING:
        string = *(const char *const *)member;
        /* fall through */
    case REPORT_CHARS:
        v.is_text = true;
        v.none = !string;
        v.text = text_of(string ? string : "");
        return v;
    case REPORT_LIST:
        break;
    }
    v.number = (double)v.integer;
    snprintf(v.digits.text, sizeof v.digits.text, "%" PRIu64, v.integer);
    return v;
}

/* The cells of a list in CSV, or where it is NULL their headings. */
static void put_list_csv(struct report *r, const struct report_field *f,
                         const struct report_list *list)
{
    for (int i = 0; i < f->most * f->n_items; i++) {
        const struct report_field *item = &f->items[i % f->n_items];
        const int k = i / f->n_items;
        char heading[64];
        snprintf(heading, sizeof heading, "%s%d_%s", f->key, k + 1, item->key);
        output_puts(r->out, i > 0 ? "," : "");
        if (!list) {
            csv_put_text(r->out, text_of(heading));
        } else if (k < list->n) {
            const char *row = (const char *)list->items + (size_t)k * f->item_size;
            const struct report_value v = report_value(item, row);
            if (!v.none)
                csv_put_text(r->out, v.is_text ? v.text : text_of(v.digits.text));
        }
    }
    end_cell(r);
}

void report_cell(struct report *r, const struct report_field *f, const void *row)
{
    if (f->type == REPORT_LIST) {
        put_list_csv(r, f, (const void *)((const char *)row + f->offset));
        return;
    }
    const struct report_value v = report_value(f, row);
    const bool people = table_is_for_people(r->format);
    if (v.none)
        put_cell(r, text_of(people && f->none ? f->none : ""), false);
    else if (v.is_text)
        report_text(r, v.text);
    else if (people && f->figure)
        report_string(r, f->figure(v.number).text);
    else if (people && f->grouped)
        report_string(r, figure_grouped(v.integer).text);
    else if (f->type == REPORT_DOUBLE)
        report_double(r, v.number, f->format);
    else
        put_cell(r, text_of(v.digits.text), false);
}

void report_member(struct json *j, const char *key, const struct report_field *f, const void *row)
{
    if (f->type == REPORT_LIST) {
        const struct report_list *list = (const void *)((const char *)row + f->offset);
        json_begin_array(j, key);
        for (int i = 0; i < list->n; i++)
            report_object(j, NULL, f->items, f->n_items,
                          (const char *)list->items + (size_t)i * f->item_size);
        json_end(j);
        return;
    }
    const struct report_value v = report_value(f, row);
    if (v.none)
        json_null(j, key);
    else if (v.is_text)
        json_text(j, key, v.text);
    else
        json_literal(j, key, text_of(v.digits.text));
    if (!f->bytes || v.none || text_is_utf8(v.text))
        return;
    json_begin_array(j, "bytes");
    for (size_t i = 0; i < v.text.len; i++)
        json_int(j, NULL, (unsigned char)v.text.data[i]);
    json_end(j);
}

void report_members(struct json *j, const struct report_field *fields, int n_fields,
                    const void *row)
{
    for (int i = 0; i < n_fields; i++)
        if (fields[i].key)
            report_member(j, fields[i].key, &fields[i], row);
}

void report_object(struct json *j, const char *key, const struct report_field *fields, int n_fields,
                   const void *row)
{
    json_begin_object(j, key);
    report_members(j, fields, n_fields, row);
    json_end(j);
}

/* --- reports --------------------------------------------------------------------------------- */

void report_begin(struct report *r, enum table_format format, const struct report_field *fields,
                  int n_fields, struct output *out)
{
    *r = (struct report){.fields = fields, .n_fields = n_fields, .format = format, .out = out};
    r->at = r->first = next_column(r, -1);
    json_init(&r->json, out, format == TABLE_JSON ? 1 : 0);
    if (format == TABLE_JSON)
        json_begin_array(&r->json, NULL);
    for (int i = 0; i < n_fields && !table_is_json(format); i++)
        if (fields[i].type == REPORT_LIST && format == TABLE_CSV)
            put_list_csv(r, &fields[i], NULL);
        else if (column_name(r, i))
            report_string(r, column_name(r, i));
}

void report_row(struct report *r, const void *row)
{
    if (table_is_json(r->format)) {
        report_object(&r->json, NULL, r->fields, r->n_fields, row);
        output_puts(r->out, r->format == TABLE_JSONL ? "\n" : "");
        return;
    }
    for (int i = 0; i < r->n_fields; i++)
        if (column_name(r, i))
            report_cell(r, &r->fields[i], row);
}

enum status report_end(struct report *r, struct err *e)
{
    assert(r->at == r->first);
    if (table_is_for_people(r->format))
        print_table(r);
    if (r->format == TABLE_JSON) {
        json_end(&r->json);
        output_puts(r->out, "\n");
    }
    free(r->cells);
    r->cells = NULL;
    if (r->no_memory)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: the table's cells");
    return STATUS_OK;
}
