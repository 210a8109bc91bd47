/*
 * trainer - what a training run holds, for the files that make it up.
 */
#ifndef DECODE_TRAIN_TRAINER_H
#define DECODE_TRAIN_TRAINER_H

#include "base/mem.h"
#include "train/backprop.h"
#include "train/data.h"
#include "train/state.h"
#include "train/template.h"

/* Streams of the seed. */
enum {
    STREAM_WEIGHTS,
    STREAM_WINDOWS,
    STREAM_DROPOUT, /* and all above: one a step */
};
#define STREAM_PROBE UINT64_MAX

/* Windows of a text that are always the same. */
struct windows {
    const struct tokens *tokens;
    size_t n;
    size_t last; /* where the last begins, the others evenly before it; 0: one after the other */
};

struct trainer {
    const struct train_spec *spec;
    struct train_spec copy; /* that `spec` points to: with the seed and keep_last that count */
    struct train_plan plan;
    struct train_template template;
    struct train_data data;
    struct param_list list, teacher_list;
    struct config teacher_config;
    char *state_path;
    struct state state; /* open while there is one to resume */
    struct identity identity;
    struct progress progress;

    struct arena arena; /* parameters, teacher, batch */
    struct optimizer optimizer;
    struct param_view teacher_weights;
    struct backprop *engine, *teacher;
    int32_t *inputs, *targets; /* [batch, length] */
    struct windows aside;      /* the probe's; no window of a step while it runs meets them */

    double loss_sum; /* since the last evaluation */
    int loss_steps;
    bool out_written; /* by this run, or it is the resumed state's best */
    int saved_step;
};

/* The weights are the checkpoint's again, and no step was made. */
void trainer_rewind(struct trainer *t);

#endif
