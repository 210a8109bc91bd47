#include "cli/columns.h"

#include <assert.h>
#include <string.h>

#include "cli/numbers.h"
#include "cli/options.h"

#define MAX_NAME 64

static bool is_called(const char *called, const char *name)
{
    return called && called[0] && strcmp(called, name) == 0;
}

/* The column of that name, before others one that the form shows anyway; NULL: there is none. Rows
 * for programs have keys only. */
static const struct report_field *find_column(enum table_format format, const struct table *t,
                                              const char *name)
{
    const struct report_field *found = NULL;
    for (int i = 0; i < t->n; i++) {
        const struct report_field *f = &t->fields[i];
        const bool people = table_is_for_people(format);
        if (!is_called(f->key, name) && !(people && is_called(f->heading, name)))
            continue;
        if (report_name(format, f))
            return f;
        found = f;
    }
    return found;
}

static enum status refuse_name(enum table_format format, const struct table *tables, int n_tables,
                               const char *name, struct err *e)
{
    struct nearest near = {.word = name};
    for (int t = 0; t < n_tables; t++)
        for (int i = 0; i < tables[t].n; i++) {
            const struct report_field *f = &tables[t].fields[i];
            if (f->key)
                nearest_offer(&near, f->key);
            if (f->heading && f->heading[0] && table_is_for_people(format))
                nearest_offer(&near, f->heading);
        }
    if (near.best)
        return err_set(e, STATUS_USAGE, "--columns: no column is called '%.60s'; did you mean %s?",
                       name, near.best);
    return err_set(e, STATUS_USAGE,
                   "--columns: no column is called '%.60s'; expected headings of the table, or of "
                   "--format csv",
                   name);
}

enum status columns_check(const char *names, enum table_format format, const struct table *tables,
                          int n_tables, struct err *e)
{
    const char *rest = names;
    for (char end = ','; names && end;) {
        char name[MAX_NAME];
        const char *begin = rest;
        end = list_next(&rest, ",", name, sizeof name);
        bool is_known = false;
        for (int i = 0; i < n_tables && !is_known; i++)
            is_known = find_column(format, &tables[i], name) != NULL;
        if (!is_known)
            return refuse_name(format, tables, n_tables, name, e);
        for (const char *at = names; at < begin;) {
            char earlier[MAX_NAME];
            list_next(&at, ",", earlier, sizeof earlier);
            if (strcmp(earlier, name) == 0)
                return err_set(e, STATUS_USAGE, "--columns: '%.60s' is given twice", name);
        }
    }
    return STATUS_OK;
}

void columns_choose(const char *names, enum table_format format, const struct report_field *fields,
                    int n, struct columns *out)
{
    const struct table table = {.fields = fields, .n = n};
    assert(n <= COLUMNS_MOST);
    out->n = names ? 0 : n;
    if (!names)
        memcpy(out->fields, fields, (size_t)n * sizeof *fields);
    for (char end = ','; names && end;) {
        char name[MAX_NAME];
        end = list_next(&names, ",", name, sizeof name);
        const struct report_field *f = find_column(format, &table, name);
        if (!f || out->n == COLUMNS_MOST)
            continue;
        struct report_field *column = &out->fields[out->n++];
        *column = *f;
        column->rank = 0; /* what was asked for is shown */
        if (!report_name(format, f))
            column->heading = f->key; /* its name can have been nothing else */
        if (column->type == REPORT_DOUBLE && !column->format && !column->figure)
            column->format = "%.6g";
    }
}

enum status table_print(const struct table *t, const char *names, enum table_format format,
                        struct output *out, struct err *e)
{
    struct report r;
    struct columns chosen;
    columns_choose(names, format, t->fields, t->n, &chosen);
    report_begin(&r, format, chosen.fields, chosen.n, out);
    for (int i = 0; t->row || i < t->n_rows; i++) {
        const void *row =
            t->row ? t->row(t->arg, i) : (const char *)t->rows + (size_t)i * t->row_bytes;
        if (!row)
            break;
        report_row(&r, row);
    }
    return report_end(&r, e);
}

/* How many of the names are columns of the table; *all: each of them. */
static int count_columns(const char *names, enum table_format format, const struct table *t,
                         bool *all)
{
    int n = 0;
    *all = true;
    for (char end = ','; end;) {
        char name[MAX_NAME];
        end = list_next(&names, ",", name, sizeof name);
        const bool found = find_column(format, t, name) != NULL;
        n += found;
        *all &= found;
    }
    return n;
}

enum status columns_print(const char *names, enum table_format format, const struct table *tables,
                          int n_tables, struct output *out, struct err *e)
{
    bool one_has_all = false, all, any = false;
    TRY(columns_check(names, format, tables, n_tables, e));
    for (int i = 0; i < n_tables; i++) {
        count_columns(names, format, &tables[i], &all);
        one_has_all |= all;
    }
    for (int i = 0; i < n_tables; i++) {
        if (count_columns(names, format, &tables[i], &all) == 0 || (one_has_all && !all))
            continue;
        output_puts(out, any && format != TABLE_JSONL ? "\n" : "");
        any = true;
        TRY(table_print(&tables[i], names, format, out, e));
    }
    return STATUS_OK;
}
