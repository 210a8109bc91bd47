/*
 * train - trains a new checkpoint from text, or goes on with one.
 *
 * Each step takes `batch` windows at random places of the texts' first part, computes the
 * gradient of the mean cross-entropy, clips its norm and makes a step of AdamW, with linear
 * warm-up and cosine decay to a tenth of the rate. The last part of each text is held out; its
 * windows, always the same, tell how good the model is.
 *
 * Everything is a function of the spec: the same bits for any number of threads, and for a run
 * in one piece or resumed. What is needed to go on is in OUT.state: weights, moments, the random
 * generator and the step. OUT is written before OUT.state, both atomically: a crash between them
 * leaves a state that is older than OUT and comes to the same OUT again.
 *
 * Sources: Radford et al. 2019 (initialisation, decay on matrices only as in nanoGPT); Loshchilov
 * and Hutter 2019 (AdamW); Ainslie et al. 2023 (uptraining); Hinton et al. 2015 (teacher).
 */
#ifndef DECODE_TRAIN_TRAIN_H
#define DECODE_TRAIN_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "train/spec.h"

struct trainer;

/*
 * Learns the vocabulary, turns the texts into tokens, and checks everything that can be checked
 * before training; with spec->resume that OUT.state belongs to this run. The spec, but for its
 * texts, is borrowed until trainer_free.
 *
 * STATUS_USAGE: impossible values; a text that is too short, with the least length; a state that
 * another command line made, naming the option. STATUS_BAD_FILE: a checkpoint or state that cannot
 * be used. STATUS_INTERRUPTED, STATUS_NO_MEMORY. *out is NULL on failure.
 */
enum status trainer_open(const struct train_spec *spec, struct trainer **out, struct err *e);
const struct train_plan *trainer_plan(const struct trainer *t);

/*
 * Takes the memory and runs to the last step. STATUS_INTERRUPTED when `stop` ended it, after
 * saving. STATUS_FAILED: a loss that is not finite, with OUT and OUT.state left as last saved; or
 * a last save that failed. STATUS_NO_MEMORY.
 */
enum status trainer_run(struct trainer *t, struct err *e);

void trainer_free(struct trainer *t); /* NULL is legal */

#endif
