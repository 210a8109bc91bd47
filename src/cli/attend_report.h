/*
 * attend_report - what heads look at, as tables, JSON and arrays.
 */
#ifndef DECODE_CLI_ATTEND_REPORT_H
#define DECODE_CLI_ATTEND_REPORT_H

#include "base/output.h"
#include "base/status.h"
#include "cli/attend_view.h"
#include "show/report.h"

/* The table of figures, without its rows, for a command's `tables`. */
int attend_tables(const void *values, struct table *tables);

/* A row a head, the figures, of them those columns, or, of one query, the keys.
 * STATUS_NO_MEMORY. */
enum status attend_print(const struct attend_view *v, enum table_format format, const char *columns,
                         struct output *out, struct err *e);

/* An object with what the arrays' axes stand for, the tokens with their text, and the figures. The
 * failures of file_writer. */
enum status attend_write_json(const struct attend_view *v, const char *path, struct err *e);

/* The weights, float32 [layers, heads, n, n]. The failures of npy_open and npy_commit.
 */
enum status attend_write_npy(const struct attend_view *v, const char *path, struct err *e);

#endif
