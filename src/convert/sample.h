/*
 * sample - the tokens of a text that a conversion is fitted to.
 */
#pragma once

#include "convert/convert.h"
#include "text/tokenizer.h"

#define CALIBRATION_TOKENS 65536 /* by default */

struct text_sample {
    int32_t *tokens; /* [n] malloc'd, freed by the caller */
    size_t n;
};

/* Takes the text's tokens, without BOS: all of them, or, of more than `wanted`, about so many in
 * whole windows at equal distances. Of a text that is longer by far only the beginning is read.
 * STATUS_USAGE for fewer tokens than CONVERT_MIN_TOKENS; the failures of tokenizer_encode. */
enum status text_sample_take(const struct tokenizer *t, int n_ctx, struct text text, size_t wanted,
                             struct text_sample *out, struct err *e);
