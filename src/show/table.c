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

static bool is_json(const struct table *t)
{
    return t->format == TABLE_JSON || t->format == TABLE_JSONL;
}

static bool is_kept(const struct table *t)
{
    return t->format == TABLE_ALIGNED || t->format == TABLE_MD;
}

static void keep(struct table *t, const char *bytes, size_t len)
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

static void keep_escaped(struct table *t, struct text bytes)
{
    while (bytes.len > 0) {
        const struct printable p = printable_next(&bytes);
        if (t->format == TABLE_MD && p.text[0] == '|')
            keep(t, "\\", 1);
        keep(t, p.text, strlen(p.text));
    }
    keep(t, "", 1);
}

/* RFC 4180; bytes that are not UTF-8 become U+FFFD, as in JSON, and so do control characters, for
 * which CSV has no escapes; but line feed and tab stay. */
static void put_csv(struct output *out, struct text s)
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
            put_csv(out, text_of(columns[i].name));
        }
        output_puts(out, "\n");
    } else if (is_json(t)) {
        json_init(&t->json, out, format == TABLE_JSON ? 1 : 0);
        if (format == TABLE_JSON)
            json_begin_array(&t->json);
    }
}

static void begin_cell(struct table *t)
{
    if (is_json(t)) {
        if (t->at == 0)
            json_begin_object(&t->json);
        json_key(&t->json, t->columns[t->at].name);
    } else if (t->format == TABLE_CSV && t->at > 0) {
        output_puts(t->out, ",");
    }
}

static void end_cell(struct table *t)
{
    t->any_row = true;
    if (++t->at < t->n_columns)
        return;
    t->at = 0;
    if (is_json(t))
        json_end(&t->json);
    if (t->format == TABLE_CSV || t->format == TABLE_JSONL)
        output_puts(t->out, "\n");
}

void table_text(struct table *t, struct text bytes)
{
    begin_cell(t);
    if (is_json(t))
        json_text(&t->json, bytes);
    else if (t->format == TABLE_CSV)
        put_csv(t->out, bytes);
    else
        keep_escaped(t, bytes);
    end_cell(t);
}

void table_string(struct table *t, const char *s)
{
    table_text(t, text_of(s));
}

void table_u64(struct table *t, uint64_t x)
{
    begin_cell(t);
    char digits[24];
    const int n = snprintf(digits, sizeof digits, "%" PRIu64, x);
    if (is_json(t))
        json_u64(&t->json, x);
    else if (t->format == TABLE_CSV)
        output_puts(t->out, digits);
    else
        keep(t, digits, (size_t)n + 1);
    end_cell(t);
}

void table_double(struct table *t, double x)
{
    if (!isfinite(x)) {
        table_null(t);
        return;
    }
    begin_cell(t);
    if (is_json(t)) {
        json_double(&t->json, x);
    } else if (t->format == TABLE_CSV) {
        output_puts(t->out, figure_exact(x).text);
    } else {
        char digits[512];
        const int n = snprintf(digits, sizeof digits, "%.*f", t->columns[t->at].decimals, x);
        keep(t, digits, (size_t)n + 1);
    }
    end_cell(t);
}

void table_null(struct table *t)
{
    begin_cell(t);
    if (is_json(t))
        json_null(&t->json);
    else if (is_kept(t))
        keep(t, "", 1);
    end_cell(t);
}

/* Column widths of the headings and all kept cells. */
static void measure(const struct table *t, size_t *widths)
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
static void put_cell(const struct table *t, int at, const char *cell, size_t width, size_t *pad)
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

static void put_rule(const struct table *t, const size_t *widths)
{
    for (int i = 0; i < t->n_columns; i++) {
        output_puts(t->out, t->columns[i].left ? "|:" : "|-");
        output_repeat(t->out, '-', widths[i]);
        output_puts(t->out, t->columns[i].left ? "-" : ":");
    }
    output_puts(t->out, "|\n");
}

static void put_kept(struct table *t)
{
    size_t *widths = calloc((size_t)t->n_columns, sizeof *widths);
    if (!widths) {
        t->no_memory = true;
        return;
    }
    measure(t, widths);
    size_t pad = 0;
    for (int i = 0; i < t->n_columns; i++)
        put_cell(t, i, t->columns[i].name, widths[i], &pad);
    if (t->format == TABLE_MD)
        put_rule(t, widths);
    int at = 0;
    for (size_t i = 0; i < t->cells_len; i += strlen(t->cells + i) + 1) {
        put_cell(t, at, t->cells + i, widths[at], &pad);
        at = (at + 1) % t->n_columns;
    }
    free(widths);
}

enum status table_end(struct table *t, struct err *e)
{
    assert(t->at == 0 || t->no_memory);
    if (is_kept(t) && !t->no_memory)
        put_kept(t);
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
