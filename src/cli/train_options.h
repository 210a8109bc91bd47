/*
 * train_options - the options of a training: the sizes and kinds of a new model, the steps, and the
 * specification that follows from them.
 */
#pragma once

#include "cli/job.h"
#include "train/train.h"

#define TRAIN_KINDS 5

/* What options say of a new model. */
struct train_shape {
    int n_layers, d_model, n_heads, head_dim, d_ff, n_ctx, n_vocab;
    const char *kv_heads, *window, *score_scale;
    int arch, kinds[TRAIN_KINDS]; /* choices: norm, placement, position, ffn, score */
    bool no_bias, share_layers;
};
extern const struct option train_size_options[], train_kind_options[];

/* Their values are members of a struct train_spec. */
extern const struct option train_step_options[], train_held_out_options[];

/* Fills in what the options left open: rate, warm-up, intervals, the length of windows; and the
 * model that training starts from, spec->from_path or a new one of this shape, and the teacher.
 * *from and *teacher, zeroed before, are for the caller to close in any case. STATUS_USAGE names an
 * option that cannot be with the others; the failures of job_open. */
enum status train_spec_complete(struct train_spec *spec, struct train_shape *shape,
                                struct checkpoint *from, struct checkpoint *teacher, struct err *e);

/* Reads the terms of --loss into *loss; a term that is not named has weight 0. NULL leaves *loss as
 * it is. STATUS_USAGE. */
enum status train_loss_parse(const char *text, struct loss_weights *loss, struct err *e);
