/*
 * curve - the course of a training as a CSV file: a row for each step, one for each evaluation.
 */
#pragma once

#include "train/train.h"

struct curve {
    const char *path; /* borrowed; NULL: no curve is kept */
    int fd;
    int error; /* errno of the first row that was lost; 0: none was */
};

/* Opens the file at `path`; NULL: no curve is kept. A run that goes on after `first_step` > 0 steps
 * goes on with the file: rows of later steps, and a torn row, are cut off. STATUS_FAILED if it
 * cannot be written, STATUS_NO_MEMORY. */
enum status curve_open(struct curve *curve, const char *path, int first_step, struct err *e);

/* Writes the row of a TRAIN_STEP of so many tokens, or of a TRAIN_EVALUATED; `seconds` have passed
 * since the first step of this run. Rows are written at once, so that no state is newer than its
 * curve. */
void curve_put(struct curve *curve, const struct train_event *ev, int tokens, double seconds);

/* Closes it; legal on a zeroed struct and twice. STATUS_FAILED if a row was lost. */
enum status curve_close(struct curve *curve, struct err *e);
