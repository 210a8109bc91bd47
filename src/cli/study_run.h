/*
 * study_run - makes the cells of a study, each by the commands that would make it alone.
 *
 * A cell's checkpoint is DIR/NAME.gguf. While it is trained it is DIR/NAME.part.gguf, with the
 * state that an interrupted training goes on from. Whatever is there whole is not made again.
 */
#ifndef DECODE_CLI_STUDY_RUN_H
#define DECODE_CLI_STUDY_RUN_H

#include "cli/common.h"
#include "cli/study_plan.h"
#include "cli/train_shape.h"
#include "train/train.h"

/* The part of the text that is not held out, as a file in DIR: what conversions are calibrated on.
 */
#define STUDY_CALIB "calib.txt"

struct study_setting {
    const struct common_options *common;
    const char *dir, *text;
    const char *threads; /* -t; NULL: not given */
    const struct train_shape *shape;
    const struct train_spec *steps; /* as the options of training say */
    struct study_shard shard;
    bool given; /* the MHA checkpoints are there already */
    int lock;   /* of study_lock_open */
    struct study_plan *plan;
    size_t text_bytes;
    int length; /* tokens of a window */
};

/* Takes the lock of that name, waiting for another run that has it, which is said.
 * STATUS_INTERRUPTED. */
enum status study_lock(const struct study_setting *s, const char *name, struct err *e);

/* Makes all cells of the shard, and those that they are made from, and keeps the records. The
 * failures of the commands, with the cell's name; STATUS_INTERRUPTED, with what a training saved.
 */
enum status study_run(const struct study_setting *s, struct err *e);

#endif
