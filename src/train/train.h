/*
 * train - trains a new checkpoint from text, or goes on with one.
 *
 * Each step takes `batch` windows at random places of the texts' first part, computes the
 * gradient of the mean cross-entropy, clips its norm and makes a step of AdamW or Muon, with linear
 * warm-up and cosine decay to a tenth of the rate. The last part of each text is held out; its
 * windows, always the same, tell how good the model is.
 *
 * The same spec gives the same bits for any number of threads, in one piece or resumed from
 * OUT.state: weights, moments, random generator and step.
 *
 * Sources: Radford et al. 2019 (initialisation, decay on matrices only as in nanoGPT); Loshchilov
 * and Hutter 2019 (AdamW); Ainslie et al. 2023 (uptraining); Hinton et al. 2015 (teacher).
 */
#pragma once

#include "train/spec.h"

struct trainer;

/* The spec->options that the run which writes to `out` was given, from OUT.state: *options is the
 * caller's to free. STATUS_USAGE if there is no state; STATUS_BAD_FILE; STATUS_NO_MEMORY. */
enum status train_saved_options(const char *out, struct bytes *options, struct err *e);

/*
 * Learns the vocabulary, turns the texts into tokens, and checks all that can be checked before
 * training; with spec->resume that OUT.state belongs to this run: text, model and teacher are the
 * same, and the caller answers for the rest. The spec, but for its texts, is
 * borrowed until trainer_free. *out is NULL on failure.
 *
 * STATUS_USAGE: impossible values; too short a text; a state of another run.
 * STATUS_BAD_FILE: a checkpoint or state that cannot be used. STATUS_INTERRUPTED, STATUS_NO_MEMORY.
 */
enum status trainer_open(const struct train_spec *spec, struct trainer **out, struct err *e);
const struct train_plan *trainer_plan(const struct trainer *t);

/*
 * Takes the memory and runs to the last step. STATUS_INTERRUPTED when `stop` ended it, after
 * saving. STATUS_FAILED: a loss that is not finite, or a save that failed; OUT and OUT.state are
 * left as last saved. STATUS_NO_MEMORY.
 */
enum status trainer_run(struct trainer *t, struct err *e);

void trainer_free(struct trainer *t); /* NULL is legal */
