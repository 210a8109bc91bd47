/*
 * columns - the columns that --columns chooses.
 */
#ifndef DECODE_CLI_COLUMNS_H
#define DECODE_CLI_COLUMNS_H

#include <stdbool.h>

#include "base/status.h"
#include "show/report.h"

/* A table: its columns, and its rows: an array, or made one after the other. */
struct table {
    const struct report_field *fields; /* [n] */
    int n;
    const void *rows; /* [n_rows], of row_bytes each */
    int n_rows;
    size_t row_bytes;
    /* Instead, if not NULL: row i, which lives until the next call; NULL after the last. */
    const void *(*row)(void *arg, int i);
    void *arg;
};

/* The table of an array of rows. */
#define TABLE_OF(columns, array, length)                                                           \
    {                                                                                              \
        .fields = columns, .n = REPORT_LENGTH(columns), .rows = array, .n_rows = length,           \
        .row_bytes = sizeof *(array)                                                               \
    }

/* Prints the columns that `names` names ("a,b", NULL: all), in that order; a column that this form
 * does not show by itself is shown under the name it was asked for by. STATUS_NO_MEMORY. */
enum status table_print(const struct table *t, const char *names, enum table_format format,
                        struct output *out, struct err *e);

/* Whether each of the names is, in this form, that of a column of one of the tables: if not,
 * STATUS_USAGE, with the nearest; so is a name twice. NULL has nothing to check. */
enum status columns_check(const char *names, enum table_format format, const struct table *tables,
                          int n_tables, struct err *e);

/* Of any command. */
#define TABLES_MOST 8

/* Checks, and prints of several tables (TABLES_MOST) those that have columns of these names; where
 * one has all, only such, because tables have some by the same names. */
enum status columns_print(const char *names, enum table_format format, const struct table *tables,
                          int n_tables, struct output *out, struct err *e);

#endif
