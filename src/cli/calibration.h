/*
 * calibration - the text that a conversion is fitted to: read, or written by the model itself.
 */
#pragma once

#include "cli/common.h"
#include "compute/kernels.h"
#include "model/model.h"

#define CALIBRATION_TOKENS      65536
#define CALIBRATION_SELF_TOKENS 16384 /* that a model writes itself */
#define CALIBRATION_SELF_CTX    16    /* of a model that can, at least */

struct calibration {
    int32_t *tokens; /* [n] malloc'd, freed by the caller */
    size_t n;
};

/* The text's tokens: all of them, or `wanted` in whole windows at equal distances. `name` is the
 * text's in messages, o who is warned of too few. STATUS_USAGE for fewer than CONVERT_MIN_TOKENS;
 * the failures of tokenizer_encode. */
enum status calibration_of_text(const struct common_options *o, const struct tokenizer *t,
                                const struct config *c, struct text text, const char *name,
                                size_t wanted, struct calibration *out, struct err *e);

/* What the checkpoint's model writes itself, in whole windows, at temperature 1. STATUS_USAGE or
 * STATUS_BAD_FILE for one that cannot; the failures of model_create and own_text_write. */
struct calibration_writer {
    const char *path;                    /* of the checkpoint, which messages name */
    const struct checkpoint *checkpoint; /* needs no model */
    const struct kernels *kernels;
    struct pool *pool;
    uint64_t seed;
    int n_tokens;
    struct callbacks callbacks; /* of tokens */
};
enum status calibration_write(const struct calibration_writer *w, struct calibration *out,
                              struct err *e);
