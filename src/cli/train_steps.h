/*
 * train_steps - the options of the steps of a training, of every command that trains.
 */
#ifndef DECODE_CLI_TRAIN_STEPS_H
#define DECODE_CLI_TRAIN_STEPS_H

#include "cli/options.h"
#include "train/train.h"

/* Their values are those of a struct train_spec, as far as they are given: a rate of 0 is none. */
extern const struct option train_step_options[], train_held_out_options[];

#endif
