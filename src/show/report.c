#include "show/report.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "formats/json_write.h"
#include "show/paragraph.h"

const char *const table_formats[] = {"table", "md", "csv", "json", "jsonl", NULL};

const char *report_name(enum table_format format, const struct report_field *f)
{
    return table_is_for_people(format) ? f->heading : f->key;
}

/* --- tables for people ----------------------------------------------------------------------- */

/* Spaces between two columns. */
#define GAP 2
/* The least width of a last column that is broken into lines. */
#define NARROWEST 24

/* A terminal's codes for the accents, see enum report_accent. */
static const char *const accents[] = {
    [ACCENT_NONE] = "", [ACCENT_ROW] = "\033[1m", [ACCENT_CELL] = "\033[33m"};
#define PLAIN "\033[m"

/* A column of the table. */
struct column {
    const struct report_field *field;
    size_t width;
    bool left;     /* aligned */
    bool breaks;   /* what is too wide goes on in further lines, if it is the last one */
    bool left_out; /* of the table, as it is too wide */
    bool filled;   /* it has a cell that is not empty, below its heading */
    bool differs;  /* it has two that are not the same */
};

/* A table of texts, which is written once the widths of its columns are known. */
struct text_table {
    struct output *out;
    const char **cells; /* [n_rows, n] as they are stored, headings first */
    int n_rows;
    struct column *columns; /* [n] */
    int n, last;            /* last: that is not left out */
    size_t pad;             /* spaces owed in a line: at its end they are not paid */
};

static struct text cell_of(const struct text_table *t, int row, int column)
{
    return text_of(t->cells[row * t->n + column]);
}

static size_t width_before_last(const struct text_table *t)
{
    size_t width = 0;
    for (int i = 0; i < t->last; i++) {
        const struct column *c = &t->columns[i];
        width += c->left_out ? 0 : c->width + GAP;
    }
    return width;
}

static bool table_fits(const struct text_table *t)
{
    const struct column *c = &t->columns[t->last];
    const size_t least = c->breaks && c->width > NARROWEST ? NARROWEST : c->width;
    return width_before_last(t) + least <= (size_t)t->out->columns;
}

/* The width that a line has left for a text that is broken, after `before` columns. */
static size_t width_behind(const struct text_table *t, size_t before)
{
    const size_t all = t->out->columns;
    return all > before + NARROWEST ? all - before : NARROWEST;
}

/* The rank by which columns are left out, the largest first: those that are the same in all rows,
 * then by the field's rank. 0 is never left out. */
static int rank_of(const struct column *c)
{
    const int rank = c->field->rank;
    return rank > 0 && !c->differs ? INT_MAX : rank;
}

/* Leaves out columns until the others fit: empty ones first, but for a table that is only headings;
 * then those of the highest rank, of several the last. */
static void fit_columns(struct text_table *t)
{
    if (t->n_rows > 1 && !table_fits(t))
        for (int i = 0; i < t->n; i++)
            t->columns[i].left_out = !t->columns[i].filled;
    for (;;) {
        struct column *least = NULL;
        while (t->last > 0 && t->columns[t->last].left_out)
            t->last--;
        for (int i = 0; i < t->n; i++) {
            struct column *c = &t->columns[i];
            if (!c->left_out && rank_of(c) >= (least ? rank_of(least) : 1))
                least = c;
        }
        if (!least || table_fits(t))
            break;
        least->left_out = true;
    }
    struct column *last = &t->columns[t->last];
    const size_t width = width_behind(t, width_before_last(t));
    if (last->breaks && last->width > width)
        last->width = width;
}

static void put_padded(struct text_table *t, const char *accent, struct text s)
{
    if (s.len == 0)
        return;
    output_repeat(t->out, ' ', t->pad);
    output_puts(t->out, accent);
    output_put(t->out, s);
    output_puts(t->out, *accent ? PLAIN : "");
    t->pad = 0;
}

/* A cell, and what is wider than its column in further lines, behind `indent` spaces each. */
static void put_lines(struct text_table *t, const struct column *c, struct text cell,
                      const char *accent, size_t indent)
{
    put_padded(t, accent, paragraph_line(&cell, c->width, c->field->list));
    while (cell.len > 0) {
        output_puts(t->out, "\n");
        output_repeat(t->out, ' ', indent);
        output_put(t->out, paragraph_line(&cell, c->width, c->field->list));
    }
}

static void print_row(struct text_table *t, int row, bool md)
{
    const bool plain = row == 0 || !t->out->colours || md;
    enum report_accent of_row = ACCENT_NONE;
    for (int i = 0; i < t->n; i++)
        if (!plain && t->columns[i].field->accent == ACCENT_ROW && cell_of(t, row, i).len > 0)
            of_row = ACCENT_ROW;
    t->pad = 0;
    for (int i = 0; i <= t->last; i++) {
        const struct column *c = &t->columns[i];
        const struct text cell = cell_of(t, row, i);
        const size_t width = text_columns(cell), blank = width < c->width ? c->width - width : 0;
        const bool own = !plain && c->field->accent == ACCENT_CELL;
        if (c->left_out)
            continue;
        put_padded(t, "", text_of(md ? "| " : ""));
        t->pad += c->left ? 0 : blank;
        put_lines(t, c, cell, accents[own ? ACCENT_CELL : of_row], width_before_last(t));
        t->pad += (c->left ? blank : 0) + (md ? 1 : GAP);
    }
    put_padded(t, "", text_of(md ? "|" : ""));
    output_puts(t->out, "\n");
    for (int i = 0; i < t->n && md && row == 0; i++) { /* the rule below the headings */
        const struct column *c = &t->columns[i];
        output_puts(t->out, c->left ? "|:" : "|-");
        output_repeat(t->out, '-', c->width);
        output_puts(t->out, c->left ? "-" : ":");
    }
    output_puts(t->out, md && row == 0 ? "|\n" : "");
}

/* Prints a single row that does not fit: nothing is left out, each column is a line. */
static void print_downwards(struct text_table *t)
{
    size_t indent = 0;
    for (int i = 0; i < t->n; i++) {
        const size_t width = text_columns(cell_of(t, 0, i)) + GAP;
        indent = t->columns[i].filled && width > indent ? width : indent;
    }
    for (int i = 0; i < t->n; i++) {
        struct column *c = &t->columns[i];
        const struct text heading = cell_of(t, 0, i);
        if (!c->filled)
            continue;
        c->width = width_behind(t, indent);
        put_padded(t, "", heading);
        t->pad = indent - text_columns(heading);
        put_lines(t, c, cell_of(t, 1, i), "", indent);
        output_puts(t->out, "\n");
    }
}

/* What is stored: of an aligned table those columns that fit, and which ones do not. */
static void print_table(const struct report *r, struct text_table *t)
{
    const bool md = r->format == TABLE_MD, fitted = !md && t->out->columns > 0;
    for (int i = 0; i < r->n_fields; i++) {
        const struct report_field *f = &r->fields[i];
        const bool left = f->type >= REPORT_TEXT && !f->right;
        if (f->heading)
            t->columns[t->n++] =
                (struct column){.field = f, .left = left, .breaks = left && f->rank == 0};
    }
    t->last = t->n - 1;
    t->n_rows = (int)r->n_cells / t->n;
    const char *at = r->cells.data;
    for (int i = 0; i < (int)r->n_cells; i++, at += strlen(at) + 1) {
        struct column *c = &t->columns[i % t->n];
        const size_t width = text_columns(text_of(at));
        t->cells[i] = at;
        c->width = MAX(width, c->width);
        c->filled |= i >= t->n && width > 0;
        c->differs |= i >= 2 * t->n && !str_is(at, t->cells[i - t->n]);
    }
    if (fitted && t->n_rows == 2 && !table_fits(t))
        return print_downwards(t);
    if (fitted)
        fit_columns(t);
    for (int row = 0; row < t->n_rows; row++)
        print_row(t, row, md);
    struct paragraph p = paragraph_begin(t->out, 2);
    const char *before = "Too wide, left out:";
    for (int i = 0; i < t->n; i++) {
        const struct column *c = &t->columns[i];
        if (c->left_out && c->filled) {
            paragraph_printf(&p, "%s %s", before, c->field->heading);
            before = ",";
        }
    }
    paragraph_puts(&p, *before == ',' ? "; -v shows all." : "");
    paragraph_end(&p);
}

/* --- values ---------------------------------------------------------------------------------- */

/* A member, whatever its type, as people read it or programs do. */
struct value {
    bool none;
    struct text text; /* what stands for it; of programs "" for none */
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
    case REPORT_LIST: /* has items for values */
        break;
    }
    if (v->none)
        v->text = text_of(people && f->none ? f->none : "");
    if (v->none || f->type >= REPORT_BOOL)
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

/* The list that is a member of a row; its item i. */
static const struct report_list *list_of(const struct report_field *f, const void *row)
{
    return (const void *)((const char *)row + f->offset);
}

static const void *list_item(const struct report_field *f, const struct report_list *list, int i)
{
    return (const char *)list->items + i * f->item_size;
}

/* --- cells ----------------------------------------------------------------------------------- */

void report_text(struct report *r, struct text bytes)
{
    struct output *out = r->out;
    const bool begins = r->at == 0;
    assert(!table_is_json(r->format));
    r->at = (r->at + 1) % r->n_columns;
    if (r->format == TABLE_CSV) {
        /* RFC 4180; bytes that are not UTF-8 become U+FFFD, as in JSON, and so do control
         * characters, for which CSV has no escapes; but line feed and tab stay. */
        bool quoted = bytes.len > 0 && (bytes.data[0] == ' ' || bytes.data[bytes.len - 1] == ' ');
        for (size_t i = 0; i < bytes.len; i++)
            quoted |= bytes.data[i] && strchr(",\"\n", bytes.data[i]);
        output_puts(out, begins ? "" : ",");
        output_puts(out, quoted ? "\"" : "");
        while (bytes.len > 0) {
            uint32_t code;
            const struct text c = utf8_next(&bytes, &code);
            const bool shown = code == '\n' || code == '\t' || !utf8_is_control(code);
            output_put(out, shown && code != UNICODE_INVALID ? c : text_of("\xef\xbf\xbd"));
            output_puts(out, code == '"' ? "\"" : "");
        }
        output_puts(out, quoted ? "\"" : "");
        output_puts(out, r->at == 0 ? "\n" : "");
        return;
    }
    while (bytes.len > 0) {
        const struct printable p = printable_next(&bytes);
        if (r->format == TABLE_MD && p.text[0] == '|')
            r->no_memory |= !bytes_put(&r->cells, text_of("\\"));
        r->no_memory |= !bytes_put(&r->cells, text_of(p.text));
    }
    r->no_memory |= !bytes_put(&r->cells, text_span("", 1));
    r->n_cells++;
}

void report_string(struct report *r, const char *s)
{
    report_text(r, text_of(s));
}

/* Writes a list as columns of CSV, or their headings where there is no list. */
static void put_list(struct report *r, const struct report_field *f, const struct report_list *list)
{
    for (int k = 0; k < f->most; k++)
        for (int i = 0; i < f->n_items; i++) {
            const struct report_field *item = &f->items[i];
            char heading[64];
            chars_printf(heading, "%s%d_%s", f->key, k + 1, item->key);
            if (list && k < list->n)
                report_cell(r, item, list_item(f, list, k));
            else
                report_string(r, list ? "" : heading);
        }
}

void report_cell(struct report *r, const struct report_field *f, const void *row)
{
    struct value v;
    if (f->type == REPORT_LIST)
        return put_list(r, f, list_of(f, row));
    value_of(f, row, table_is_for_people(r->format), &v);
    report_text(r, v.text);
}

void report_lines(struct report *r, const struct report_field *fields, int n_fields,
                  const void *row)
{
    struct value v;
    for (int i = 0; i < n_fields; i++) {
        const struct report_field *f = &fields[i];
        value_of(f, row, true, &v);
        if (!f->heading || v.text.len == 0)
            continue;
        report_string(r, f->heading);
        report_text(r, v.text);
    }
}

/* --- JSON ------------------------------------------------------------------------------------ */

void report_member(struct json *j, const char *key, const struct report_field *f, const void *row)
{
    struct value v;
    if (f->type == REPORT_LIST) {
        const struct report_list *list = list_of(f, row);
        json_begin_array(j, key);
        for (int i = 0; i < list->n; i++)
            report_object(j, NULL, f->items, f->n_items, list_item(f, list, i));
        json_end(j);
        return;
    }
    value_of(f, row, false, &v);
    if (v.none)
        json_null(j, key);
    else if (f->type >= REPORT_TEXT)
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

void report_members(struct json *j, const struct report_field *fields, int n_fields,
                    const void *row)
{
    for (int i = 0; i < n_fields; i++) {
        const struct report_field *f = &fields[i];
        if (f->key)
            report_member(j, f->key, f, row);
    }
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
    json_init(&r->json, out, format == TABLE_JSON ? 1 : 0);
    if (format == TABLE_JSON)
        json_begin_array(&r->json, NULL);
    if (table_is_json(format))
        return;
    r->n_columns = INT_MAX; /* until it is known */
    for (int i = 0; i < n_fields; i++) {
        const struct report_field *f = &fields[i];
        if (report_name(format, f) && f->type == REPORT_LIST)
            put_list(r, f, NULL);
        else if (report_name(format, f))
            report_string(r, report_name(format, f));
    }
    output_puts(out, format == TABLE_CSV ? "\n" : "");
    r->n_columns = r->at;
    r->at = 0;
}

void report_row(struct report *r, const void *row)
{
    if (table_is_json(r->format)) {
        report_object(&r->json, NULL, r->fields, r->n_fields, row);
        output_puts(r->out, r->format == TABLE_JSONL ? "\n" : "");
        return;
    }
    for (int i = 0; i < r->n_fields; i++) {
        const struct report_field *f = &r->fields[i];
        if (report_name(r->format, f))
            report_cell(r, f, row);
    }
}

enum status report_end(struct report *r, struct err *e)
{
    assert(r->at == 0);
    if (table_is_for_people(r->format)) {
        struct text_table t = {.out = r->out,
                               .cells = calloc(r->n_cells, sizeof *t.cells),
                               .columns = calloc(r->n_fields, sizeof *t.columns)};
        r->no_memory |= !t.cells || !t.columns;
        if (!r->no_memory)
            print_table(r, &t);
        free(t.cells);
        free(t.columns);
    }
    if (r->format == TABLE_JSON) {
        json_end(&r->json);
        output_puts(r->out, "\n");
    }
    bytes_free(&r->cells);
    if (r->no_memory)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: the table's cells");
    return STATUS_OK;
}
