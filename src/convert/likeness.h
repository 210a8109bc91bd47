/*
 * likeness - how well the heads of a layer could share keys and values, two by two: what
 * `convert_group` groups by, made visible.
 */
#ifndef DECODE_CONVERT_LIKENESS_H
#define DECODE_CONVERT_LIKENESS_H

#include "convert/spec.h"
#include "model/model.h"

/* The shares of the energy of two heads, both heads' together, that are kept if the two share. */
struct head_likeness {
    double score;  /* of their scores, with one key: 1 for heads that have one already */
    double output; /* of what they add to the residual stream, with one value */
};

/*
 * Of every two heads of every layer, kept [n_layers, n_heads, n_heads], on the text spec->tokens;
 * 1 of a head with itself. `model` is that of spec->gguf as it is; how spec converts is not read.
 * Layers that share a block have the same, over all of them. The same bits
 * for any number of threads. STATUS_USAGE without a token; STATUS_NO_MEMORY; STATUS_INTERRUPTED;
 * STATUS_FAILED if weights are not finite.
 */
enum status convert_likeness(const struct convert_spec *spec, const struct model *model,
                             struct head_likeness *kept, struct err *e);

#endif
