/*
 * train_report - what a training run shows while it runs: progress, lines and the log.
 */
#ifndef DECODE_CLI_TRAIN_REPORT_H
#define DECODE_CLI_TRAIN_REPORT_H

#include <stdio.h>

#include "cli/job.h"
#include "train/train.h"

struct train_report {
    const struct common_options *common;
    const struct train_spec *spec;
    bool terminal;   /* show a progress line */
    const char *log; /* path; NULL: none */

    /* Private. */
    FILE *log_file;
    int first_step;              /* steps made before this run */
    int step;                    /* steps made so far */
    uint64_t started_ns;         /* of the first step */
    uint64_t step_ns;            /* spent in steps */
    double loss;                 /* smoothed */
    double val_loss;             /* the last one; NaN before */
    double best_loss, best_bits; /* the lowest so far; not finite before */
    int best_step;
    char tried[240];  /* of the probe: its trials so far, */
    int n_tried;      /* the steps of each, */
    uint64_t n_aside; /* and the windows that judge them */
};

/* Begins the log, or in a resumed run goes on with it: rows of steps that are made again are cut
 * off. STATUS_FAILED if the file cannot be written. */
enum status train_report_begin(struct train_report *r, const struct train_plan *p, struct err *e);

/* The `event` of a train_spec; arg is the report. */
void train_report_event(void *arg, const struct train_event *ev);

/* Clears the progress line and closes the log. STATUS_FAILED if the log lost something. */
enum status train_report_end(struct train_report *r, struct err *e);

/* Tokens a second in the steps of this run. */
double train_report_rate(const struct train_report *r);

#endif
