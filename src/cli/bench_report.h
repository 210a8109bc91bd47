/*
 * bench_report - what decode bench prints: the table, what stands around it, the plot.
 */
#pragma once

#include "cli/common.h"
#include "cli/job.h"
#include "cli/shape.h"
#include "measure/bench.h"

/* A row's variant on the text of --text, converted by fit on its first nine tenths. */
struct bench_advice {
    const struct bench_row *row;
    double bits_per_byte, lost; /* on the last tenth; and more than the checkpoint's, */
    double lost_error;          /* with its standard error */
    char beyond[24];            /* the limits that it exceeds: "loss, time"; "": none */
    /* At its depth and batch: the smallest cache within the limits, if there are any; and whether
     * no other row is as good in loss, time and cache and better in one. */
    bool chosen, undominated;
};

/* The options; the run; and what is printed of one row beside it. */
struct bench_run {
    struct common_options common;
    struct shape_options shape;
    const char *kv_heads, *depths, *batches, *types, *kv_types;
    struct bench_spec spec; /* its numbers; specify_bench adds the rest */
    const char *plot;
    double max_loss, max_us; /* bits per byte, microseconds of a step; 0: any */
    const char *max_cache;   /* bytes of all caches, as the option has them; NULL: any */
    size_t max_cache_bytes;  /* the same as a number */
    int calib_tokens;        /* that a variant is calibrated on; 0: the default */
    struct text calibration; /* the job's text but for its last tenth */

    bool fills_context; /* a depth is the context, and one less is measured */
    int threads_asked;  /* the most, which may be more than there are */

    struct job *job;
    struct bench bench;
    const char *subject;         /* the checkpoint's path, or the shape as given */
    char title[512];             /* the same for people: a path may have control characters */
    const char *model;           /* the path; NULL: a shape */
    char cpu[128], machine[512]; /* the processor's name; it, threads and what they run */
    const char *isa, *architecture, *version, *compiler;
    char date[24];

    struct bench_row row;
    const char *mark, *verdict; /* what it is at its depth and batch: see print_footer */
    const char *type;
    bool noisy;
    char hash[20], note[96], speedup_range[32];
    struct bench_advice *advice; /* malloc'd [rows] in the order to print them; NULL: no text */
    struct bench_advice advised; /* that of the row in print; only with a text */
};

/* Whether the options limit what a variant may lose, take or hold: else none is chosen. */
static inline bool advice_is_limited(const struct bench_run *r)
{
    return r->max_loss > 0 || r->max_us > 0 || r->max_cache;
}

/* Prints what was measured, and writes the plot. The failures of the table and of the file. */
enum status bench_report(struct bench_run *r, struct err *e);
