#include "show/report.h"

#include <assert.h>
#include <math.h>

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

/* --- cells and members ----------------------------------------------------------------------- */

void report_cell(struct table *t, const struct report_field *f, const void *row)
{
    const struct report_value v = report_value(f, row);
    const bool people = table_is_for_people(t->format);
    if (v.type == VALUE_NONE && f->none && !table_is_json(t->format))
        table_string(t, f->none);
    else if (v.type == VALUE_NONE)
        table_null(t);
    else if (v.type == VALUE_TEXT)
        table_text(t, v.text);
    else if (people && f->figure)
        table_string(t, f->figure(v.number).text);
    else if (people && f->grouped)
        table_string(t, figure_grouped(v.integer).text);
    else if (v.type == VALUE_DOUBLE)
        table_double(t, v.number, f->format);
    else
        table_u64(t, v.integer);
}

void report_properties(struct table *t, const struct report_field *fields, int n_fields,
                       const void *row)
{
    for (int i = 0; i < n_fields; i++) {
        const struct report_field *f = &fields[i];
        const struct report_value v = report_value(f, row);
        const bool empty = v.type == VALUE_NONE || (v.type == VALUE_TEXT && v.text.len == 0);
        if (!f->heading || (empty && !f->none))
            continue;
        table_string(t, f->heading);
        report_cell(t, f, row);
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
    assert(n_fields <= REPORT_MAX_FIELDS);
    r->fields = fields;
    r->n_fields = n_fields;
    int n = 0;
    for (int i = 0; i < n_fields; i++) {
        const char *name = report_name(format, &fields[i]);
        const bool text = fields[i].type >= REPORT_TEXT;
        if (name)
            r->columns[n++] = (struct table_column){name, text && !fields[i].right};
    }
    table_begin(&r->table, format, r->columns, n, out);
}

void report_row(struct report *r, const void *row)
{
    for (int i = 0; i < r->n_fields; i++)
        if (report_name(r->table.format, &r->fields[i]))
            report_cell(&r->table, &r->fields[i], row);
}

enum status report_end(struct report *r, struct err *e)
{
    return table_end(&r->table, e);
}
