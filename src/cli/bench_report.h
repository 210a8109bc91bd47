/*
 * bench_report - a benchmark's rows, printed, traced and drawn.
 */
#ifndef DECODE_CLI_BENCH_REPORT_H
#define DECODE_CLI_BENCH_REPORT_H

#include "cli/job.h"
#include "measure/bench.h"

/* What is reported, and where. */
struct bench_report {
    struct bench *bench; /* its rows are filled in, see struct bench_shown */
    const char *subject; /* the checkpoint's path, or the shape as given */
    enum table_format format;
    const char *trace; /* the file that gets every sample, one CSV line each: the row's setting,
                          repeat, index in it, nanoseconds; NULL: none is wanted */
    /* The file that gets the median latency a token as SVG against depth, or against batch
     * (bench_x_axis): a line for each variant; NULL likewise. */
    const char *plot;
};

/* Prints the table, and writes the files. Forms for people begin with a few lines about the
 * machine; the other ones hold the documented keys and nothing else. STATUS_FAILED,
 * STATUS_NO_MEMORY. */
enum status bench_print(const struct bench_report *r, struct output *out, struct err *e);

/* The line about the machine: processor, instruction set, threads, compiler, version. */
void bench_machine(const struct bench_spec *spec, char line[512]);

#endif
