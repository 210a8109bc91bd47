/*
 * train_steps - the options of the steps of a training, of every command that trains.
 */
#ifndef DECODE_CLI_TRAIN_STEPS_H
#define DECODE_CLI_TRAIN_STEPS_H

#include "cli/options.h"
#include "cli/train_shape.h"
#include "model/checkpoint.h"
#include "train/train.h"

/* Their values are those of a struct train_spec, as far as they are given: a rate of 0 is none. */
extern const struct option train_step_options[], train_held_out_options[];

/*
 * Fills in what options left open: the rate, the warm-up, the intervals, the windows' length; and
 * where the model comes from, spec->from_path or a new one of this shape, and the teacher. What is
 * opened is in *from and *teacher, which are zeroed before, for the caller to close in any case.
 * STATUS_USAGE names an option that cannot be with the others; the failures of common_open.
 */
enum status train_spec_complete(struct train_spec *spec, const struct train_shape *shape,
                                struct checkpoint *from, struct checkpoint *teacher, struct err *e);

#endif
