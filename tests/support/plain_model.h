/* plain_model - a second, plain implementation of every architecture, in double. */
#ifndef TESTS_PLAIN_MODEL_H
#define TESTS_PLAIN_MODEL_H

#include <stdint.h>

#include "train/backprop.h"

/* A checkpoint's tensors in double, in the places that the list says, and what a training step does
 * to it. */
struct plain_model {
    const struct config *config;
    const struct param_list *list;
    const double *flat;
    int length; /* of a window, at most PLAIN_LENGTH */
    struct dropout dropout, attn_dropout;
    /* [windows][n_layers + 1][length][d_model], written: the residual stream before the blocks and
     * behind each of them. NULL: not wanted. */
    double *streams;
};
#define PLAIN_LENGTH 64
#define PLAIN_WIDTH  128

/* What dropout multiplies an element by, 0 or 1 / (1 - share); elements of a site's [rows, n] are
 * counted from the first. */
float dropout_factor(const struct dropout *d, int site, uint64_t element);

/* The activation function of a feed-forward network of this kind at x (of its gate, if gated). */
double plain_activation(enum ffn_kind kind, double x);

/* Writes log softmax of the logits at each position of one window of a batch: [length][n_vocab]. */
void plain_log_probabilities(const struct plain_model *m, int window, const int32_t *inputs,
                             double *out);

#endif
