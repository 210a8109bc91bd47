#include "show/report.h"

#include <inttypes.h>
#include <math.h>

#include "formats/json_write.h"
#include "show/paragraph.h"

const char *const table_formats[] = {"table", "md", "csv", "json", "jsonl", NULL};

/* Returns the name of a field in a form; NULL if the form does not show it. */
static const char *report_name(enum table_format format, const struct report_field *f)
{
    return table_is_for_people(format) ? f->heading : f->key;
}

static bool is_wanted(const struct report_field *f, unsigned shown)
{
    return f->when == 0 || (f->when & shown);
}

static bool is_text(enum report_type type)
{
    return type == REPORT_TEXT || type == REPORT_STRING || type == REPORT_CHARS;
}

/* --- tables for people ----------------------------------------------------------------------- */

/* Spaces between two columns. */
#define GAP 2
/* The least width of a last column whose texts are broken into lines. */
#define NARROWEST 24
/* Spaces before texts below their rows. */
#define BELOW 4

static size_t width_before_last(const struct report *r)
{
    size_t width = 0;
    for (int i = 0; i < r->last; i++)
        width += r->columns[i].left_out ? 0 : r->columns[i].width + GAP;
    return width;
}

/* Whether the table fits if texts of the last column are broken into lines as short as may be. */
static bool table_fits(const struct report *r)
{
    const struct report_column *c = &r->columns[r->last];
    const size_t least = c->left && c->width > NARROWEST ? NARROWEST : c->width;
    return width_before_last(r) + least <= (size_t)r->out->columns;
}

/* Leaves out details, the last one first, until the table fits. If it is still too wide, texts of
 * the last column go below their rows. */
static void fit_columns(struct report *r)
{
    for (int i = r->n - 1; i >= 0 && !table_fits(r); i--) {
        r->columns[i].left_out = r->columns[i].field->detail;
        while (r->last > 0 && r->columns[r->last].left_out)
            r->last--;
    }
    struct report_column *last = &r->columns[r->last];
    const size_t all = r->out->columns, before = width_before_last(r);
    if (!last->left || before + last->width <= all)
        return;
    r->below = before + MIN(last->width, NARROWEST) > all;
    last->width = r->below ? MAX(all, 2 * BELOW) - BELOW : all - before;
}

static void put_padded(struct report *r, struct text s)
{
    if (s.len == 0)
        return;
    output_repeat(r->out, ' ', r->pad);
    output_put(r->out, s);
    r->pad = 0;
}

/* Prints a row of cells, and returns the next. */
static const char *print_row(struct report *r, const char *cells)
{
    const bool md = r->format == TABLE_MD, headings = cells == r->cells.data;
    const size_t indent = r->below ? BELOW : width_before_last(r);
    r->pad = 0;
    for (int i = 0; i < r->n; i++) {
        const struct report_column *c = &r->columns[i];
        struct text cell = text_of(cells);
        const size_t width = text_columns(cell), blank = width < c->width ? c->width - width : 0;
        cells += cell.len + 1;
        if (c->left_out)
            continue;
        put_padded(r, text_of(md ? "| " : ""));
        r->pad += c->left ? 0 : blank;
        if (i < r->last || !r->below)
            put_padded(r, paragraph_line(&cell, c->width, c->field->list));
        while (cell.len > 0) { /* only of the last column */
            output_puts(r->out, "\n");
            output_repeat(r->out, ' ', indent);
            output_put(r->out, paragraph_line(&cell, c->width, c->field->list));
        }
        r->pad += (c->left ? blank : 0) + (md ? 1 : GAP);
    }
    put_padded(r, text_of(md ? "|" : ""));
    output_puts(r->out, "\n");
    for (int i = 0; i < r->n && md && headings; i++) { /* the rule below them */
        const struct report_column *c = &r->columns[i];
        output_puts(r->out, c->left ? "|:" : "|-");
        output_repeat(r->out, '-', c->width);
        output_puts(r->out, c->left ? "-" : ":");
    }
    output_puts(r->out, md && headings ? "|\n" : "");
    return cells;
}

/* Prints the stored cells. An aligned table on a terminal has the columns that fit, and below it
 * the names of those left out. */
static void print_table(struct report *r)
{
    r->last = r->n - 1;
    if (r->format == TABLE_ALIGNED && r->out->columns > 0)
        fit_columns(r);
    for (const char *at = r->cells.data; at < r->cells.data + r->cells.len;)
        at = print_row(r, at);
    struct paragraph p = paragraph_begin(r->out, 2);
    const char *before = "Too wide, left out:";
    for (int i = 0; i < r->n; i++)
        if (r->columns[i].left_out) {
            paragraph_printf(&p, "%s %s", before, r->columns[i].field->heading);
            before = ",";
        }
    paragraph_puts(&p, *before == ',' ? "; -v shows all." : "");
    paragraph_end(&p);
}

/* --- values ---------------------------------------------------------------------------------- */

/* A member of any type as text, for people or for programs. */
struct value {
    bool none; /* whether it has no value; programs then read "" */
    struct text text;
    char digits[512]; /* the text of a number */
};

static void value_of(const struct report_field *f, const void *row, bool people, struct value *v)
{
    const void *member = (const char *)row + f->offset;
    const bool is_double = f->type == REPORT_DOUBLE;
    struct figure (*const figure)(double) = people ? f->figure : is_double ? figure_exact : NULL;
    uint64_t integer = 0;
    double number = 0;
    v->none = false;
    v->text = text_of("");
    switch (f->type) {
    case REPORT_INT:
        integer = *(const int *)member;
        break;
    case REPORT_COUNT:
    case REPORT_U64:
        integer = *(const uint64_t *)member;
        v->none = f->type == REPORT_COUNT && (int64_t)integer < 0;
        break;
    case REPORT_DOUBLE:
        number = *(const double *)member;
        v->none = !isfinite(number);
        break;
    case REPORT_BOOL:
        v->text = text_of(*(const bool *)member ? "true" : "false");
        break;
    case REPORT_TEXT:
        v->text = *(const struct text *)member;
        v->none = !v->text.data || (v->text.len == 0 && f->none);
        break;
    case REPORT_STRING:
        v->none = !*(const char *const *)member;
        if (!v->none)
            v->text = text_of(*(const char *const *)member);
        break;
    case REPORT_CHARS:
        v->text = text_of(member);
        break;
    case REPORT_LIST:
        assert(false); /* its items have values */
    }
    if (v->none)
        v->text = text_of(people && f->none ? f->none : "");
    if (v->none || f->type == REPORT_BOOL || is_text(f->type))
        return;
    if (figure)
        chars_printf(v->digits, "%s", figure(is_double ? number : integer).text);
    else if (is_double)
        chars_printf(v->digits, f->format, number);
    else if (people && f->grouped)
        chars_printf(v->digits, "%s", figure_grouped(integer).text);
    else
        chars_printf(v->digits, "%" PRIu64, integer);
    v->text = text_of(v->digits);
}

/* Returns the list that is a member of a row. */
static const struct report_list *list_of(const struct report_field *f, const void *row)
{
    return (const void *)((const char *)row + f->offset);
}

static const void *list_item(const struct report_field *f, const struct report_list *list, int i)
{
    return (const char *)list->items + i * f->item_size;
}

/* --- cells ----------------------------------------------------------------------------------- */

static void put_cell(struct report *r, struct text bytes)
{
    struct output *out = r->out;
    if (r->format == TABLE_CSV) {
        /* RFC 4180. Bytes that are not UTF-8 become U+FFFD, as in JSON. CSV has no escapes, so
         * control characters become U+FFFD, too; line feed and tab stay. */
        bool quoted = bytes.len > 0 && (bytes.data[0] == ' ' || bytes.data[bytes.len - 1] == ' ');
        for (size_t i = 0; i < bytes.len; i++)
            quoted |= bytes.data[i] && strchr(",\"\n", bytes.data[i]);
        output_puts(out, r->in_line ? "," : "");
        r->in_line = true;
        output_puts(out, quoted ? "\"" : "");
        while (bytes.len > 0) {
            uint32_t code;
            const struct text c = utf8_next(&bytes, &code);
            const bool shown = code == '\n' || code == '\t' || !utf8_is_control(code);
            output_put(out, shown && code != UNICODE_INVALID ? c : text_of("\xef\xbf\xbd"));
            output_puts(out, code == '"' ? "\"" : "");
        }
        output_puts(out, quoted ? "\"" : "");
        return;
    }
    size_t width = 0;
    while (bytes.len > 0) {
        const struct printable p = printable_next(&bytes);
        const struct text mark = text_of(r->format == TABLE_MD && p.text[0] == '|' ? "\\" : "");
        width += mark.len + text_columns(text_of(p.text));
        r->no_memory |= !bytes_put(&r->cells, mark) || !bytes_put(&r->cells, text_of(p.text));
    }
    struct report_column *c = &r->columns[r->n_cells++ % r->n];
    c->width = MAX(width, c->width);
    r->no_memory |= !bytes_put(&r->cells, text_span("", 1));
}

static void put_member(struct report *r, const struct report_field *f, const void *row)
{
    struct value v;
    value_of(f, row, table_is_for_people(r->format), &v);
    put_cell(r, v.text);
}

/* Puts the list of a row as columns of CSV, or their headings where there is no row. */
static void put_list(struct report *r, const struct report_field *f, const void *row)
{
    const struct report_list *list = row ? list_of(f, row) : NULL;
    for (int k = 0; k < f->most; k++)
        for (int i = 0; i < f->n_items; i++) {
            const struct report_field *item = &f->items[i];
            char heading[64];
            chars_printf(heading, "%s%d_%s", f->key, k + 1, item->key);
            if (list && k < list->n)
                put_member(r, item, list_item(f, list, k));
            else
                put_cell(r, text_of(list ? "" : heading));
        }
}

/* Puts a line of cells: those of a row, or the headings where there is no row. */
static void put_line(struct report *r, const void *row)
{
    for (int i = 0; i < r->n; i++) {
        const struct report_field *f = r->columns[i].field;
        if (f->type == REPORT_LIST)
            put_list(r, f, row);
        else if (row)
            put_member(r, f, row);
        else
            put_cell(r, text_of(report_name(r->format, f)));
    }
    output_puts(r->out, r->in_line ? "\n" : "");
    r->in_line = false;
}

/* --- JSON ------------------------------------------------------------------------------------ */

void report_member(struct json *j, const char *key, const struct report_field *f, const void *row)
{
    struct value v;
    if (f->type == REPORT_LIST) {
        const struct report_list *list = list_of(f, row);
        json_begin_array(j, key);
        for (int i = 0; i < list->n; i++)
            report_object(j, f->items, f->n_items, 0, list_item(f, list, i));
        json_end(j);
        return;
    }
    value_of(f, row, false, &v);
    if (v.none)
        json_null(j, key);
    else if (is_text(f->type))
        json_text(j, key, v.text);
    else
        json_literal(j, key, v.text);
    if (!f->bytes || text_is_utf8(v.text))
        return;
    json_begin_array(j, "bytes");
    for (size_t i = 0; i < v.text.len; i++)
        json_int(j, NULL, (unsigned char)v.text.data[i]);
    json_end(j);
}

void report_object(struct json *j, const struct report_field *fields, int n_fields, unsigned shown,
                   const void *row)
{
    json_begin_object(j, NULL);
    for (const struct report_field *f = fields; f < fields + n_fields; f++)
        if (f->key && is_wanted(f, shown))
            report_member(j, f->key, f, row);
    json_end(j);
}

/* --- reports --------------------------------------------------------------------------------- */

void report_begin(struct report *r, enum table_format format, const struct report_field *fields,
                  int n_fields, unsigned shown, struct output *out)
{
    *r = (struct report){
        .fields = fields, .n_fields = n_fields, .shown = shown, .format = format, .out = out};
    json_init(&r->json, out, format == TABLE_JSON ? 1 : 0);
    if (format == TABLE_JSON)
        json_begin_array(&r->json, NULL);
    if (table_is_json(format))
        return;
    r->columns = calloc(n_fields, sizeof *r->columns);
    r->no_memory = !r->columns;
    for (const struct report_field *f = fields; f < fields + n_fields && r->columns; f++)
        if (report_name(format, f) && is_wanted(f, shown))
            r->columns[r->n++] =
                (struct report_column){.field = f, .left = is_text(f->type) && !f->right};
    put_line(r, NULL);
}

void report_row(struct report *r, const void *row)
{
    if (table_is_json(r->format))
        report_object(&r->json, r->fields, r->n_fields, r->shown, row);
    else
        put_line(r, row);
    output_puts(r->out, r->format == TABLE_JSONL ? "\n" : "");
}

enum status report_end(struct report *r, struct err *e)
{
    if (table_is_for_people(r->format) && !r->no_memory)
        print_table(r);
    if (r->format == TABLE_JSON) {
        json_end(&r->json);
        output_puts(r->out, "\n");
    }
    free(r->columns);
    bytes_free(&r->cells);
    if (r->no_memory)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: the table's cells");
    return STATUS_OK;
}

enum status table_print(const struct table *t, enum table_format format, struct output *out,
                        struct err *e)
{
    struct report r;
    report_begin(&r, format, t->fields, t->n, t->shown, out);
    for (int i = 0; i < t->n_rows; i++)
        report_row(&r, (const char *)t->rows + i * t->row_bytes);
    return report_end(&r, e);
}
