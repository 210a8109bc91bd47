/*
 * variant - conversion to fewer K/V heads, or to latent caches, as the commands offer it: options,
 * calibration text, memory plan, progress.
 */
#ifndef DECODE_CLI_VARIANT_H
#define DECODE_CLI_VARIANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/common.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "convert/convert.h"
#include "model/checkpoint.h"

/* Where a conversion starts and what it runs on; all borrowed. */
struct variant_source {
    const struct common_options *common;
    const char *path;
    const struct checkpoint *checkpoint; /* without a model */
    const struct kernels *kernels;
    struct pool *pool;
    uint64_t seed; /* of random heads */
};

/* What is converted is not quantized, unless that is asked for: STATUS_USAGE. */
enum status variant_check_types(const struct gguf *g, const char *path, struct err *e);

/* Converts, with everything said on standard error; *spec is what was asked for, but its tokens
 * and its numbers by layer are gone. convert_free is due on success. Signals are deferred but while
 * --calib's text is read. The failures of convert_run; STATUS_USAGE for options that do not fit
 * together, or as many K/V heads as the checkpoint has. */
enum status variant_convert(const struct variant_options *o, const struct variant_source *source,
                            struct convert_spec *spec, struct convert *out, struct err *e);

/* The checkpoint's model with its K/V heads converted, in memory; unchanged if it has as many. The
 * failures of variant_convert and model_create. */
enum status variant_load(const struct variant_options *o, const struct variant_source *source,
                         struct model **out, struct err *e);

#endif
