/*
 * study - what the files of the command study share: its options, its run, its report.
 */
#ifndef DECODE_CLI_STUDY_H
#define DECODE_CLI_STUDY_H

#include "base/output.h"
#include "cli/job.h"
#include "cli/train_shape.h"
#include "study/study.h"
#include "train/train.h"

struct study_options {
    struct common_options common; /* its positional is TEXT, its model stays NULL */
    const char *dir, *from, *kv_heads, *methods, *latent, *alphas, *scratch, *shard, *plot;
    int n_seeds;
    struct option_u64 first_seed;
    bool teacher;
    struct train_shape shape;
    struct train_spec steps; /* as the options of training say */
};

/* The part of the text that is not held out, as a file in DIR: what conversions are calibrated on.
 */
#define STUDY_CALIB "calib.txt"

/* One run of the command. */
struct study_job {
    const struct study_options *options;
    struct common_options quiet; /* of what makes a cell */
    struct study_plan plan;
    int shard, n_shards; /* every n_shards-th cell from that one on */
    struct text text;    /* malloc'd */
    int lock;            /* of study_lock_open; -1: none yet */

    struct job *job;

    /* Of study_run. */
    struct progress progress;
    const struct study_cell *current; /* the cell that is made */
    int n_done, n_all;
};

/* The options of a table whose values, in the struct at `values`, are not the default, as they are
 * written on a command line: " --embd 8 --layers 1". */
struct study_given {
    char text[768];
};
struct study_given study_given(const struct option *table, const void *values);

/* Takes the lock of that name, waiting for another run that has it, which is said.
 * STATUS_INTERRUPTED. */
enum status study_lock(const struct study_job *job, const char *name, struct err *e);

/*
 * Makes all cells of the shard, and those that they are made from, and keeps the records. A cell's
 * checkpoint is DIR/NAME.gguf. While it is trained it is DIR/NAME.part.gguf, with the state that an
 * interrupted training goes on from. Whatever is there whole is not made again. Fails with the
 * cell's name; STATUS_INTERRUPTED, with what a training saved.
 */
enum status study_run(struct study_job *job, struct err *e);

/*
 * Prints the cells that are done, then their means, and draws --plot: bits per byte over alpha, a
 * line for K/V heads and method, a band from the least seed to the most. For people the means are a
 * row for K/V heads and method and a column for each alpha; CSV has them under a header of their
 * own after an empty line, JSON in an object {"cells": [], "means": []}, JSON lines in lines of
 * their own. With --columns only these of the cells, and of the means, which are rows then in every
 * form; a table without one of them is left out. STATUS_NO_MEMORY; the failures of plot_write.
 */
enum status study_report(const struct study_job *job, struct output *out, struct err *e);

/* Whether cells or means have the columns of --columns, see cli/columns.h. */
enum status study_check_columns(const struct study_options *o, struct err *e);

#endif
