#include "show/report.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "show/printable.h"
#include "show/report_table.h"
#include "text/unicode.h"

const char *const table_formats[] = {"table", "md", "csv", "json", "jsonl", NULL};

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

/* --- cells ----------------------------------------------------------------------------------- */

/* One cell. What is not text is a number, or empty: null in JSON. */
static void put_cell(struct report *r, struct text bytes, bool is_text)
{
    const bool json = table_is_json(r->format);
    const char *name = report_column_name(r, r->at);
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

    r->at = report_next_column(r, r->at);
    if (json && r->at == r->first)
        json_end(&r->json);
    if (r->format == TABLE_CSV && r->at != r->first)
        output_puts(r->out, ",");
    else if (r->at == r->first && (r->format == TABLE_CSV || r->format == TABLE_JSONL))
        output_puts(r->out, "\n");
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
    enum { VALUE_NONE, VALUE_INTEGER, VALUE_BOOL, VALUE_DOUBLE, VALUE_TEXT } type;
    uint64_t integer;
    double number; /* VALUE_INTEGER too, rounded */
    struct text text;
};

static struct report_value integer_value(uint64_t x)
{
    return (struct report_value){.type = VALUE_INTEGER, .integer = x, .number = (double)x};
}

static struct report_value text_value(struct text text)
{
    return (struct report_value){.type = VALUE_TEXT, .text = text};
}

static struct report_value report_value(const struct report_field *f, const void *row)
{
    struct report_value v = {.type = VALUE_NONE};
    const void *member = (const char *)row + f->offset;
    switch (f->type) {
    case REPORT_INT:
        return integer_value((uint64_t) * (const int *)member);
    case REPORT_COUNT:
        return *(const int64_t *)member < 0 ? v : integer_value(*(const uint64_t *)member);
    case REPORT_U64:
        return integer_value(*(const uint64_t *)member);
    case REPORT_BOOL:
        v = integer_value(*(const bool *)member);
        v.type = VALUE_BOOL;
        return v;
    case REPORT_DOUBLE:
        v.number = *(const double *)member;
        v.type = isfinite(v.number) ? VALUE_DOUBLE : VALUE_NONE;
        return v;
    case REPORT_TEXT:
        v.text = *(const struct text *)member;
        v.type = v.text.len == 0 && f->none ? VALUE_NONE : VALUE_TEXT;
        return v;
    case REPORT_STRING:
        return *(const char *const *)member ? text_value(text_of(*(const char *const *)member)) : v;
    case REPORT_CHARS:
        return text_value(text_of(member));
    }
    return v;
}

/* --- fields ---------------------------------------------------------------------------------- */

void report_cell(struct report *r, const struct report_field *f, const void *row)
{
    const struct report_value v = report_value(f, row);
    const bool people = table_is_for_people(r->format);
    if (v.type == VALUE_NONE && f->none && people)
        report_string(r, f->none);
    else if (v.type == VALUE_NONE)
        report_null(r);
    else if (v.type == VALUE_TEXT)
        report_text(r, v.text);
    else if (people && f->figure)
        report_string(r, f->figure(v.number).text);
    else if (people && f->grouped)
        report_string(r, figure_grouped(v.integer).text);
    else if (v.type == VALUE_DOUBLE)
        report_double(r, v.number, f->format);
    else if (v.type == VALUE_BOOL)
        put_cell(r, text_of(v.integer ? "true" : "false"), false);
    else
        report_u64(r, v.integer);
}

void report_properties(struct report *r, const struct report_field *fields, int n_fields,
                       const void *row)
{
    for (int i = 0; i < n_fields; i++) {
        const struct report_field *f = &fields[i];
        const struct report_value v = report_value(f, row);
        const bool empty = v.type == VALUE_NONE || (v.type == VALUE_TEXT && v.text.len == 0);
        if (!f->heading || (empty && !f->none))
            continue;
        report_string(r, f->heading);
        report_cell(r, f, row);
    }
}

void report_member(struct json *j, const char *key, const struct report_field *f, const void *row)
{
    const struct report_value v = report_value(f, row);
    if (v.type == VALUE_NONE)
        json_null(j, key);
    else if (v.type == VALUE_TEXT)
        json_text(j, key, v.text);
    else if (v.type == VALUE_DOUBLE)
        json_double(j, key, v.number);
    else if (v.type == VALUE_BOOL)
        json_bool(j, key, v.integer != 0);
    else
        json_u64(j, key, v.integer);
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

const char *report_name(enum table_format format, const struct report_field *f)
{
    return table_is_for_people(format) ? f->heading : f->key;
}

void report_begin(struct report *r, enum table_format format, const struct report_field *fields,
                  int n_fields, struct output *out)
{
    *r = (struct report){.fields = fields, .n_fields = n_fields, .format = format, .out = out};
    r->at = r->first = report_next_column(r, -1);
    json_init(&r->json, out, format == TABLE_JSON ? 1 : 0);
    if (format == TABLE_JSON)
        json_begin_array(&r->json, NULL);
    for (int i = 0; i < n_fields && !table_is_json(format); i++)
        if (report_column_name(r, i))
            report_string(r, report_column_name(r, i));
}

void report_row(struct report *r, const void *row)
{
    for (int i = 0; i < r->n_fields; i++)
        if (report_column_name(r, i))
            report_cell(r, &r->fields[i], row);
}

enum status report_end(struct report *r, struct err *e)
{
    assert(r->at == r->first);
    if (table_is_for_people(r->format))
        report_print_table(r);
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
