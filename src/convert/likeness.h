/*
 * likeness - how alike the heads of a checkpoint are, which `cluster` groups by.
 */
#pragma once

#include "convert/spec.h"

/* How well two heads of a layer could share a key and a value, by which `cluster` groups: the
 * shares of both heads' energy that are kept. */
struct head_likeness {
    double score;  /* of their scores, with one key: 1 for heads that have one already */
    double output; /* of what they add to the residual stream, with one value */
};

/* The likeness of every two heads of every layer, out [n_layers, n_heads, n_heads], on
 * spec->tokens; 1 of a head with itself. `model` is that of spec->gguf; what else spec wants must
 * be zeroed. Layers that share a block have the same. The same bits for any number of threads.
 * STATUS_USAGE without a token; STATUS_NO_MEMORY; STATUS_INTERRUPTED; STATUS_FAILED if weights are
 * not finite. */
enum status convert_likeness(const struct convert_spec *spec, const struct model *model,
                             struct head_likeness *out, struct err *e);
