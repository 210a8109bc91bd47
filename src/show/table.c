#include "show/table.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "show/figures.h"
#include "show/printable.h"
#include "text/unicode.h"

const char *const table_formats[] = {"table", "md", "csv", "json", "jsonl", NULL};

static void store_bytes(struct table *t, const char *bytes, size_t len)
{
    if (t->no_memory)
        return;
    if (len > t->cells_cap - t->cells_len) {
        const size_t cap = 2 * t->cells_cap + len + 256;
        char *cells = realloc(t->cells, cap);
        if (!cells) {
            t->no_memory = true;
            return;
        }
        t->cells = cells;
        t->cells_cap = cap;
    }
    memcpy(t->cells + t->cells_len, bytes, len);
    t->cells_len += len;
}

static void store_escaped(struct table *t, struct text bytes)
{
    while (bytes.len > 0) {
        const struct printable p = printable_next(&bytes);
        if (t->format == TABLE_MD && p.text[0] == '|')
            store_bytes(t, "\\", 1);
        store_bytes(t, p.text, strlen(p.text));
    }
    store_bytes(t, "", 1);
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
        const size_t len = utf8_decode(s, &code);
        if (code == UNICODE_INVALID || (utf8_is_control(code) && code != '\n' && code != '\t'))
            output_puts(out, "\xef\xbf\xbd");
        else
            output_put(out, (struct text){s.data, len});
        if (code == '"')
            output_puts(out, "\"");
        s.data += len;
        s.len -= len;
    }
    if (quoted)
        output_puts(out, "\"");
}

void table_begin(struct table *t, enum table_format format, const struct table_column *columns,
                 int n_columns, struct output *out)
{
    *t = (struct table){.columns = columns, .n_columns = n_columns, .format = format, .out = out};
    if (format == TABLE_CSV) {
        for (int i = 0; i < n_columns; i++) {
            output_puts(out, i ? "," : "");
            csv_put_text(out, text_of(columns[i].name));
        }
        output_puts(out, "\n");
    } else if (table_is_json(t->format)) {
        json_init(&t->json, out, format == TABLE_JSON ? 1 : 0);
        if (format == TABLE_JSON)
            json_begin_array(&t->json);
    }
}

static void begin_cell(struct table *t)
{
    if (table_is_json(t->format)) {
        if (t->at == 0)
            json_begin_object(&t->json);
        json_key(&t->json, t->columns[t->at].name);
    } else if (t->format == TABLE_CSV && t->at > 0) {
        output_puts(t->out, ",");
    }
}

static void end_cell(struct table *t)
{
    if (++t->at < t->n_columns)
        return;
    t->at = 0;
    if (table_is_json(t->format))
        json_end(&t->json);
    if (t->format == TABLE_CSV || t->format == TABLE_JSONL)
        output_puts(t->out, "\n");
}

void table_text(struct table *t, struct text bytes)
{
    begin_cell(t);
    if (table_is_json(t->format))
        json_text(&t->json, bytes);
    else if (t->format == TABLE_CSV)
        csv_put_text(t->out, bytes);
    else
        store_escaped(t, bytes);
    end_cell(t);
}

void table_string(struct table *t, const char *s)
{
    table_text(t, text_of(s));
}

/* A cell that is the same in a table for people and in CSV, and needs no escapes. */
static void put_plain(struct table *t, const char *s)
{
    if (t->format == TABLE_CSV)
        output_puts(t->out, s);
    else
        store_bytes(t, s, strlen(s) + 1);
}

void table_u64(struct table *t, uint64_t x)
{
    begin_cell(t);
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, x);
    if (table_is_json(t->format))
        json_u64(&t->json, x);
    else
        put_plain(t, digits);
    end_cell(t);
}

void table_double(struct table *t, double x, const char *format)
{
    char digits[512];
    if (!isfinite(x)) {
        table_null(t);
        return;
    }
    begin_cell(t);
    if (table_is_json(t->format)) {
        json_double(&t->json, x);
    } else if (t->format == TABLE_CSV) {
        output_puts(t->out, figure_exact(x).text);
    } else {
        snprintf(digits, sizeof digits, format, x);
        put_plain(t, digits);
    }
    end_cell(t);
}

void table_null(struct table *t)
{
    begin_cell(t);
    if (table_is_json(t->format))
        json_null(&t->json);
    else
        put_plain(t, "");
    end_cell(t);
}

/* Column widths of the headings and all stored cells. */
static void measure_columns(const struct table *t, size_t *widths)
{
    for (int i = 0; i < t->n_columns; i++)
        widths[i] = text_columns(text_of(t->columns[i].name));
    int at = 0;
    for (size_t i = 0; i < t->cells_len; i += strlen(t->cells + i) + 1) {
        const char *cell = t->cells + i;
        const size_t width = text_columns(text_of(cell));
        if (width > widths[at])
            widths[at] = width;
        at = (at + 1) % t->n_columns;
    }
}

/* `pad` counts spaces that are owed: at a line's end they are not paid. */
static void print_cell(const struct table *t, int at, const char *cell, size_t width, size_t *pad)
{
    const size_t blank = width - text_columns(text_of(cell));
    const bool left = t->columns[at].left;
    if (t->format == TABLE_MD)
        output_puts(t->out, "| ");
    else if (at > 0)
        *pad += 2;
    if (!left)
        *pad += blank;
    if (cell[0] || t->format == TABLE_MD) {
        output_repeat(t->out, ' ', *pad);
        *pad = 0;
    }
    output_puts(t->out, cell);
    *pad += left ? blank : 0;
    if (t->format == TABLE_MD) {
        output_repeat(t->out, ' ', *pad + 1);
        *pad = 0;
    }
    if (at + 1 == t->n_columns) {
        output_puts(t->out, t->format == TABLE_MD ? "|\n" : "\n");
        *pad = 0;
    }
}

static void print_rule(const struct table *t, const size_t *widths)
{
    for (int i = 0; i < t->n_columns; i++) {
        output_puts(t->out, t->columns[i].left ? "|:" : "|-");
        output_repeat(t->out, '-', widths[i]);
        output_puts(t->out, t->columns[i].left ? "-" : ":");
    }
    output_puts(t->out, "|\n");
}

static void print_stored(struct table *t)
{
    size_t *widths = calloc((size_t)t->n_columns, sizeof *widths);
    if (!widths) {
        t->no_memory = true;
        return;
    }
    measure_columns(t, widths);
    size_t pad = 0;
    for (int i = 0; i < t->n_columns; i++)
        print_cell(t, i, t->columns[i].name, widths[i], &pad);
    if (t->format == TABLE_MD)
        print_rule(t, widths);
    int at = 0;
    for (size_t i = 0; i < t->cells_len; i += strlen(t->cells + i) + 1) {
        print_cell(t, at, t->cells + i, widths[at], &pad);
        at = (at + 1) % t->n_columns;
    }
    free(widths);
}

enum status table_end(struct table *t, struct err *e)
{
    assert(t->at == 0 || t->no_memory);
    if (table_is_for_people(t->format) && !t->no_memory)
        print_stored(t);
    if (t->format == TABLE_JSON) {
        json_end(&t->json);
        output_puts(t->out, "\n");
    }
    free(t->cells);
    t->cells = NULL;
    if (t->no_memory)
        return err_set(e, STATUS_NO_MEMORY, "out of memory: the table's cells");
    return STATUS_OK;
}
