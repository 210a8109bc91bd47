/*
 * curve - the course of a training as a CSV file: a row for each step, one for each evaluation.
 */
#pragma once

#include <stdio.h>

#include "train/spec.h"

struct curve {
    const char *path; /* borrowed */
    FILE *file;       /* NULL: none is kept */
};

/* Opens the file at `path`; NULL: no curve is kept. Behind `first_step` steps, if they are more
 * than 0, it is gone on with: rows of steps that are made again, and a torn one, are cut off.
 * STATUS_FAILED if it cannot be written. Between it and curve_close no row is newer than what is in
 * the file. */
enum status curve_open(struct curve *curve, const char *path, int first_step, struct err *e);

/* Adds the row of a TRAIN_STEP of so many tokens, or of a TRAIN_EVALUATED; `seconds` have passed
 * since the first step of this run. */
void curve_put(const struct curve *curve, const struct train_event *ev, int tokens, double seconds);

/* Closes it. STATUS_FAILED if any row was lost. */
enum status curve_close(struct curve *curve, struct err *e);
