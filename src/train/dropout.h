/*
 * dropout - which numbers of a training step are left out (Srivastava et al. 2014).
 *
 * It is a hash of key, site and place, so that the backward pass finds them again, and threads
 * need not agree on an order. Sites are the points of the residual stream (train/activations.h) for
 * what is added there, then one a layer for the probabilities of its attention.
 */
#ifndef DECODE_TRAIN_DROPOUT_H
#define DECODE_TRAIN_DROPOUT_H

#include <stdint.h>

struct dropout {
    double share; /* left out, 0 to below 1; the others are scaled up by 1 / (1 - share) */
    uint64_t key;
};

/* What an element of a site's [rows, n], counted from the first, is multiplied by: 0 or
 * 1 / (1 - share). */
float dropout_factor(const struct dropout *d, int site, uint64_t element);

/* out = start + x without what is left out, over n elements from element `first` of the site on;
 * out, start (NULL: zero) and x begin there. out may be x. */
void dropout_apply(const struct dropout *d, int site, float *out, const float *start,
                   const float *x, uint64_t first, uint64_t n);

#endif
