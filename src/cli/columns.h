/*
 * columns - the columns that --columns chooses.
 */
#ifndef DECODE_CLI_COLUMNS_H
#define DECODE_CLI_COLUMNS_H

#include <stdbool.h>

#include "base/status.h"
#include "show/report.h"

/* VALUES has the value as `columns`. */
#define OPT_COLUMNS                                                                                \
    OPT_STRING(                                                                                    \
        "columns", columns, "A,B,...",                                                             \
        "the columns of a table, in this order, by their headings or as --format csv calls "       \
        "them",                                                                                    \
        .otherwise = "all, on a terminal without -v those that fit")

/* Of any table. */
#define COLUMNS_MOST 64

struct columns {
    struct report_field fields[COLUMNS_MOST];
    int n;
};

struct columns_table {
    const struct report_field *fields;
    int n;
};

/* Whether each of the names "a,b" is, in this form, that of a column of one of the tables: if not,
 * STATUS_USAGE, with the nearest; so is a name twice. NULL has nothing to check. */
enum status columns_check(const char *names, enum table_format format,
                          const struct columns_table *tables, int n_tables, struct err *e);

/* Whether the table has a column for each of the names. */
bool columns_all(const char *names, enum table_format format, const struct columns_table *table);

/* The columns of a table that `names` names, in that order; NULL: all. A column that this form does
 * not show by itself is shown under the name it was asked for by. The fields' strings, and names,
 * are borrowed. */
void columns_choose(const char *names, enum table_format format, const struct report_field *fields,
                    int n, struct columns *out);

#endif
