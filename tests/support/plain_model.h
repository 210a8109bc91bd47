/* plain_model - what checkpoints of any architecture predict, in double, once more and plainly. */
#ifndef TESTS_PLAIN_MODEL_H
#define TESTS_PLAIN_MODEL_H

#include <stdint.h>

#include "model/pack.h"
#include "train/backprop.h"

/* A checkpoint's tensors in double, in the places that the list says, and what a training step does
 * to it. */
struct plain_model {
    const struct config *config;
    const struct param_list *list;
    const double *flat;
    int length; /* of a window, at most PLAIN_LENGTH */
    struct dropout dropout, attn_dropout;
    /* Of each window [n_layers + 1][length][d_model]: the residual stream before the blocks and
     * behind each, which is written; NULL: it is not. */
    double *streams;
};
#define PLAIN_LENGTH 64
#define PLAIN_WIDTH  128

/* What an element of a site's [rows, n], counted from the first, is multiplied by: 0 or
 * 1 / (1 - share). */
float dropout_factor(const struct dropout *d, int site, uint64_t element);

/* What a feed-forward network of this kind makes of x; of a gated one, of the gate. */
double plain_activation(enum ffn_kind kind, double x);

/* log softmax of the logits at each position of a batch's window `window`, [length][n_vocab]. */
void plain_log_probabilities(const struct plain_model *m, int window, const int32_t *inputs,
                             double *out);

#endif
