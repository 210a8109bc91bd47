/*
 * plain_model - random checkpoints of any architecture, and their loss in double, written once more
 * and plainly.
 */
#ifndef TESTS_PLAIN_MODEL_H
#define TESTS_PLAIN_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "model/params.h"
#include "train/dropout.h"

/* What a checkpoint may have beside what a new one has. */
enum { EXTRA_OUTPUT = 1 /* of its own */, EXTRA_ROPE_FACTORS = 2 };

/* Writes a random checkpoint of a completed config, without a tokenizer, to `path`; fails the
 * running test if it cannot. */
void write_any_checkpoint(const char *path, const struct config *c, unsigned extras, uint64_t seed);

/* A checkpoint's tensors in double, in the places that the list says, and what a training step does
 * to it. */
struct plain_model {
    const struct config *config;
    const struct param_list *list;
    const double *flat;
    int length; /* of a window, at most PLAIN_LENGTH */
    struct dropout dropout, attn_dropout;
};
#define PLAIN_LENGTH 64
#define PLAIN_WIDTH  128

/* log softmax of the logits at each position of a batch's window `window`, [length][n_vocab]. */
void plain_log_probabilities(const struct plain_model *m, int window, const int32_t *inputs,
                             double *out);

#endif
