#include "show/sheet.h"

#include <math.h>
#include <stdio.h>

/* --- properties ------------------------------------------------------------------------------ */

static void add(struct sheet *s, const char *key, bool is_literal, struct text value)
{
    assert(s->n_properties < SHEET_PROPERTIES);
    s->properties[s->n_properties++] = (struct sheet_property){s->object, key, is_literal, value};
}

void sheet_text(struct sheet *s, const char *key, struct text value)
{
    add(s, key, false, value);
}

void sheet_string(struct sheet *s, const char *key, const char *value)
{
    sheet_text(s, key, value ? text_of(value) : (struct text){NULL, 0});
}

void sheet_bool(struct sheet *s, const char *key, bool value)
{
    add(s, key, true, text_of(value ? "true" : "false"));
}

void sheet_number(struct sheet *s, const char *key, double value)
{
    char *digits = s->digits[s->n_properties];
    snprintf(digits, sizeof s->digits[0], value == trunc(value) ? "%.0f" : "%.7g", value);
    add(s, key, true, value >= 0 ? text_of(digits) : (struct text){NULL, 0});
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void put_properties(struct json *j, const struct sheet *s)
{
    const char *object = NULL;
    for (int i = 0; i < s->n_properties; i++) {
        const struct sheet_property *p = &s->properties[i];
        if (object && p->object != object)
            json_end(j);
        if (p->object && p->object != object)
            json_begin_object(j, p->object);
        object = p->object;
        if (!p->value.data)
            json_null(j, p->key);
        else if (p->is_literal)
            json_literal(j, p->key, p->value);
        else
            json_text(j, p->key, p->value);
    }
    if (object)
        json_end(j);
}

static const void *row_of(const struct table *t, int i)
{
    return (const char *)t->rows + i * t->row_bytes;
}

/* An object for each field behind the first. */
static void put_columns(struct json *j, const struct table *t)
{
    assert(t->fields[0].type == REPORT_STRING);
    for (const struct report_field *f = t->fields + 1; f < t->fields + t->n; f++) {
        if (!f->key)
            continue;
        json_begin_object(j, f->key);
        for (int i = 0; i < t->n_rows; i++) {
            const char *row = row_of(t, i);
            report_member(j, *(const char *const *)(row + t->fields[0].offset), f, row);
        }
        json_end(j);
    }
}

static void print_json(const struct sheet *s, const struct sheet_table *tables, int n,
                       enum table_format format, struct output *out)
{
    struct json j;
    json_init(&j, out, format == TABLE_JSONL ? 0 : 2);
    json_begin_object(&j, NULL);
    put_properties(&j, s);
    for (int i = 0; i < n; i++) {
        const struct table *t = &tables[i].table;
        if (!tables[i].key)
            put_columns(&j, t);
        if (!tables[i].key || t->n_rows == 0)
            continue;
        json_begin_array(&j, tables[i].key);
        for (int row = 0; row < t->n_rows; row++)
            report_object(&j, t->fields, t->n, t->shown, row_of(t, row));
        json_end(&j);
    }
    json_end(&j);
    output_puts(out, "\n");
}

/* --- for people ------------------------------------------------------------------------------ */

static const struct report_field property_fields[] = {
    {NULL, "property", MEMBER(sheet_property, key)},
    {NULL, "value", MEMBER(sheet_property, value)},
};

static enum status print_tables(const struct sheet *s, const struct sheet_table *tables, int n,
                                enum table_format format, struct output *out, struct err *e)
{
    struct report r;
    report_begin(&r, format, property_fields, LENGTH(property_fields), 0, out);
    for (int i = 0; i < s->n_properties; i++)
        if (s->properties[i].value.len > 0)
            report_row(&r, &s->properties[i]);
    TRY(report_end(&r, e));
    for (int i = 0; i < n; i++) {
        if (tables[i].table.n_rows == 0)
            continue;
        output_puts(out, "\n");
        TRY(table_print(&tables[i].table, format, out, e));
    }
    return STATUS_OK;
}

enum status sheet_print(const struct sheet *s, const struct sheet_table *tables, int n,
                        enum table_format format, struct output *out, struct err *e)
{
    const struct table *last = NULL; /* of those that CSV may be */
    for (int i = 0; i < n; i++)
        if (tables[i].in_csv && tables[i].table.n_rows > 0)
            last = &tables[i].table;
    if (format == TABLE_CSV)
        return last ? table_print(last, format, out, e) : STATUS_OK;
    if (!table_is_json(format))
        return print_tables(s, tables, n, format, out, e);
    print_json(s, tables, n, format, out);
    return STATUS_OK;
}
