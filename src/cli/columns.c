#include "cli/columns.h"

#include <assert.h>
#include <string.h>

#include "cli/numbers.h"
#include "cli/options.h"

#define MAX_NAME     64
#define COLUMNS_MOST 64 /* of any table */

struct columns {
    struct report_field fields[COLUMNS_MOST];
    int n;
};

/* The column of that name, before others one that the form shows anyway; NULL: there is none. Rows
 * for programs have keys only. */
static const struct report_field *find_column(enum table_format format, const struct table *t,
                                              const char *name)
{
    const struct report_field *found = NULL;
    for (int i = 0; name[0] && i < t->n; i++) {
        const struct report_field *f = &t->fields[i];
        const char *heading = table_is_for_people(format) ? f->heading : NULL;
        if (!(f->key && strcmp(f->key, name) == 0) && !(heading && strcmp(heading, name) == 0))
            continue;
        if (report_name(format, f))
            return f;
        found = f;
    }
    return found;
}

enum status columns_check(const char *names, enum table_format format, const struct table *tables,
                          int n_tables, struct err *e)
{
    const char *rest = names;
    for (char end = ','; names && end;) {
        char name[MAX_NAME], earlier[MAX_NAME];
        const char *begin = rest;
        struct nearest near = {.word = name};
        bool is_known = false;
        end = list_next(&rest, ",", name, sizeof name);
        for (const struct table *t = tables; t < tables + n_tables; t++) {
            is_known |= find_column(format, t, name) != NULL;
            for (const struct report_field *f = t->fields; f < t->fields + t->n; f++) {
                if (f->key)
                    nearest_offer(&near, f->key);
                if (f->heading && f->heading[0] && table_is_for_people(format))
                    nearest_offer(&near, f->heading);
            }
        }
        if (!is_known)
            return err_set(e, STATUS_USAGE, "--columns: no column is called '%.60s'; %s%s%s", name,
                           near.best ? "did you mean " : "expected headings of the table, or of ",
                           near.best ? near.best : "--format csv", near.best ? "?" : "");
        for (const char *at = names; at < begin;) {
            list_next(&at, ",", earlier, sizeof earlier);
            if (strcmp(earlier, name) == 0)
                return err_set(e, STATUS_USAGE, "--columns: '%.60s' is given twice", name);
        }
    }
    return STATUS_OK;
}

/* The columns of a table that are shown. */
static void choose(const char *names, enum table_format format, const struct table *t,
                   struct columns *out)
{
    assert(t->n <= COLUMNS_MOST);
    out->n = names ? 0 : t->n;
    if (!names)
        memcpy(out->fields, t->fields, (size_t)t->n * sizeof *t->fields);
    for (char end = ','; names && end;) {
        char name[MAX_NAME];
        end = list_next(&names, ",", name, sizeof name);
        const struct report_field *f = find_column(format, t, name);
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
    choose(names, format, t, &chosen);
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

enum status columns_print(const char *names, enum table_format format, const struct table *tables,
                          int n_tables, struct output *out, struct err *e)
{
    /* How many columns the names choose of a table; `most` of any. */
    int chosen[TABLES_MOST], most = 0, n_names = 1;
    struct columns columns;
    bool any = false;
    TRY(columns_check(names, format, tables, n_tables, e));
    for (const char *c = names; *c; c++)
        n_names += *c == ',';
    for (int i = 0; i < n_tables; i++) {
        choose(names, format, &tables[i], &columns);
        chosen[i] = columns.n;
        most = chosen[i] > most ? chosen[i] : most;
    }
    for (int i = 0; i < n_tables; i++) {
        if (chosen[i] == 0 || (most == n_names && chosen[i] < most))
            continue;
        output_puts(out, any ? "\n" : "");
        any = true;
        TRY(table_print(&tables[i], names, format, out, e));
    }
    return STATUS_OK;
}
