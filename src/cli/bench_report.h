/*
 * bench_report - a benchmark's rows, printed, traced and drawn.
 */
#ifndef DECODE_CLI_BENCH_REPORT_H
#define DECODE_CLI_BENCH_REPORT_H

#include "base/output.h"
#include "base/status.h"
#include "cli/columns.h"
#include "measure/bench.h"
#include "show/report.h"

/* What the rows were measured on. */
struct bench_report {
    const struct bench_spec *spec;
    const struct bench *bench;
    const char *subject; /* the checkpoint's path, or the shape as given */
    const char *columns; /* of the rows' table; NULL: all that say something */
};

/* The table of rows, without them, for the command's `tables`. */
int bench_tables(const void *values, struct table *tables);

/* Rows without samples are left out everywhere. */

/* The table in one of table_formats. Those for people begin with a few lines about the machine;
 * the other ones hold the documented keys and nothing else. STATUS_NO_MEMORY. */
enum status bench_print(const struct bench_report *r, enum table_format format, struct output *out,
                        struct err *e);

/* Every sample, one CSV line each: the row's setting, repeat, index in it, nanoseconds. */
enum status bench_write_trace(const struct bench_report *r, const char *path, struct err *e);

/* Median latency a token as SVG against depth, or against batch (bench_is_over_batch): a line for
 * each variant. STATUS_FAILED, STATUS_NO_MEMORY. */
enum status bench_write_plot(const struct bench_report *r, const char *path, struct err *e);

/* The line about the machine: processor, instruction set, threads, compiler, version. */
void bench_machine(const struct bench_report *r, char *line, size_t size);

#endif
