/*
 * bench_report - a run of decode bench, and what it prints: the table, what stands around it, the
 * plot.
 */
#pragma once

#include "cli/job.h"
#include "measure/verdicts.h"

/* The values of the options. */
struct bench_options {
    struct common_options common;
    const char *shape;            /* NULL: a checkpoint */
    struct option_strings others; /* checkpoints beside the first */
    const char *kv_heads, *depths, *batches, *types;
    int n, repeats, warmup, prompt;
    const char *svg;
    double max_loss, max_us; /* bits per byte, microseconds of a step; 0: any */
    const char *max_cache;   /* bytes of all caches, as the option has them; NULL: any */
    int calib_tokens;        /* that a variant is calibrated on; 0: the default */
};

struct bench_run {
    const struct bench_options *o;
    struct job *job;
    struct checkpoint *others;      /* [o->others.n], malloc'd */
    struct bench_subject *subjects; /* [1 + o->others.n], malloc'd */
    struct bench_spec spec;
    struct bench bench;
    struct bench_limits limits;     /* of what is chosen on a text */
    struct text_sample calibration; /* of a text, but for its last tenth; its tokens malloc'd */
    bool has_losses;                /* what variants lose on a text is known */
};

/* Prints what was measured and writes the plot. Fails as job_print and plot_write do. */
enum status bench_report(struct bench_run *r, struct err *e);
