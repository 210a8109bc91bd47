/*
 * heads - what may be done with attention's heads on their way: their weights read, their results
 * left out.
 */
#ifndef DECODE_ENGINE_HEADS_H
#define DECODE_ENGINE_HEADS_H

#include <stddef.h>

#include "engine/batch.h"

/*
 * Gets every layer's attention weights: of row r of the batch and head h those of positions 0 to
 * the row's are weights[(r * n_heads + h) * stride] on, each at least 0, their sum 1 up to
 * rounding; what follows them means nothing. They are the softmax that the values were averaged
 * with, from the same scores and exponentials. Called between the stages of a step, from the thread
 * that steps, layer by layer; what it is given is valid until it returns.
 */
struct attention_watch {
    void (*take)(void *arg, int layer, const struct batch *batch, const float *weights,
                 size_t stride);
    void *arg;
};

/* Heads whose results are replaced before the output matrix takes them. */
struct head_ablation {
    const unsigned char *off; /* [n_layers, n_heads] not 0: replaced */
    const float *mean;        /* [n_layers, n_heads * value_dim] by these; NULL: by zeros */
};

#endif
