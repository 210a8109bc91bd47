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

/* One cell. What is not text is a number, or empty: null in JSON. */
static void put_cell(struct table *t, struct text bytes, bool is_text)
{
    const bool json = table_is_json(t->format);
    const char *name = t->columns[t->at].name;
    if (json && t->at == 0)
        json_begin_object(&t->json, NULL);
    if (json && is_text)
        json_text(&t->json, name, bytes);
    else if (json)
        json_literal(&t->json, name, bytes.len ? bytes.data : "null");
    else if (t->format != TABLE_CSV)
        store_escaped(t, bytes);
    else
        csv_put_text(t->out, bytes);

    t->at = (t->at + 1) % t->n_columns;
    if (json && t->at == 0)
        json_end(&t->json);
    if (t->format == TABLE_CSV && t->at > 0)
        output_puts(t->out, ",");
    else if (t->at == 0 && (t->format == TABLE_CSV || t->format == TABLE_JSONL))
        output_puts(t->out, "\n");
}

void table_begin(struct table *t, enum table_format format, const struct table_column *columns,
                 int n_columns, struct output *out)
{
    *t = (struct table){.columns = columns, .n_columns = n_columns, .format = format, .out = out};
    json_init(&t->json, out, format == TABLE_JSON ? 1 : 0);
    if (format == TABLE_JSON)
        json_begin_array(&t->json, NULL);
    for (int i = 0; i < n_columns && !table_is_json(format); i++)
        table_string(t, columns[i].name);
}

void table_text(struct table *t, struct text bytes)
{
    put_cell(t, bytes, true);
}

void table_string(struct table *t, const char *s)
{
    table_text(t, text_of(s));
}

void table_u64(struct table *t, uint64_t x)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, x);
    put_cell(t, text_of(digits), false);
}

void table_double(struct table *t, double x, const char *format)
{
    char digits[512] = "";
    if (isfinite(x) && table_is_for_people(t->format))
        snprintf(digits, sizeof digits, format, x);
    else if (isfinite(x))
        snprintf(digits, sizeof digits, "%s", figure_exact(x).text);
    put_cell(t, text_of(digits), false);
}

void table_null(struct table *t)
{
    put_cell(t, text_of(""), false);
}

/* --- tables for people ----------------------------------------------------------------------- */

static void measure_columns(const struct table *t, size_t *widths)
{
    int at = 0;
    for (size_t i = 0; i < t->cells_len; i += strlen(t->cells + i) + 1) {
        const size_t width = text_columns(text_of(t->cells + i));
        if (width > widths[at])
            widths[at] = width;
        at = (at + 1) % t->n_columns;
    }
}

/* After the spaces that are owed: at a line's end they are not paid. */
static void put_padded(struct output *out, const char *s, size_t *pad)
{
    if (!*s)
        return;
    output_repeat(out, ' ', *pad);
    output_puts(out, s);
    *pad = 0;
}

static void print_cell(const struct table *t, int at, const char *cell, size_t width, size_t *pad)
{
    const size_t blank = width - text_columns(text_of(cell));
    const bool left = t->columns[at].left, md = t->format == TABLE_MD;
    if (md)
        put_padded(t->out, "| ", pad);
    else if (at > 0)
        *pad += 2;
    *pad += left ? 0 : blank;
    put_padded(t->out, cell, pad);
    *pad += (left ? blank : 0) + md;
    if (at + 1 < t->n_columns)
        return;
    put_padded(t->out, md ? "|" : "", pad);
    output_puts(t->out, "\n");
    *pad = 0;
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
    t->no_memory = t->no_memory || !widths;
    if (!t->no_memory)
        measure_columns(t, widths);
    size_t pad = 0;
    int at = 0;
    bool heading = true;
    for (size_t i = 0; i < t->cells_len && !t->no_memory; i += strlen(t->cells + i) + 1) {
        print_cell(t, at, t->cells + i, widths[at], &pad);
        at = (at + 1) % t->n_columns;
        if (at == 0 && heading && t->format == TABLE_MD)
            print_rule(t, widths);
        heading = heading && at > 0;
    }
    free(widths);
}

enum status table_end(struct table *t, struct err *e)
{
    assert(t->at == 0);
    if (table_is_for_people(t->format))
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
