/*
 * calibration - the tokens of a text that a conversion is fitted to.
 */
#pragma once

#include "convert/spec.h"
#include "text/tokenizer.h"

#define CALIBRATION_TOKENS 65536 /* by default */

struct calibration {
    int32_t *tokens; /* [n] malloc'd, freed by the caller */
    size_t n;
};

/* The text's tokens, without BOS: all of them, or about `wanted` in whole windows at equal
 * distances; of many times as many only those at its beginning. STATUS_USAGE for fewer than
 * CONVERT_MIN_TOKENS; the failures of tokenizer_encode. */
enum status calibration_take(const struct tokenizer *t, int n_ctx, struct text text, size_t wanted,
                             struct calibration *out, struct err *e);
