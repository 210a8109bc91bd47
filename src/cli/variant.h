/*
 * variant - conversion to fewer K/V heads, as the commands offer it: options, calibration text,
 * memory plan, progress.
 */
#pragma once

#include "cli/common.h"
#include "model/model.h"

/* What is converted and how; all is borrowed. */
struct variant_request {
    const struct common_options *common;
    const char *path;                    /* of the checkpoint, which messages name */
    const struct checkpoint *checkpoint; /* needs no model */
    uint64_t seed;                       /* of random heads */
    const struct kernels *kernels;
    struct pool *pool;
    /* Of several conversions, the nth, from 0 on, of n_conversions: the progress line of all. NULL:
     * there is one, which has its own. */
    struct progress *progress;
    int nth, n_conversions;
};

/* Converts the checkpoint. *spec becomes what was asked for, without its tokens and its numbers by
 * layer. convert_free is due on success. The failures of convert_run; STATUS_USAGE for options that
 * do not fit together, or as many K/V heads as the checkpoint has. */
enum status variant_convert(const struct variant_request *q, struct convert_spec *spec,
                            struct convert *out, struct err *e);

/* Whether the checkpoint has as many K/V heads as are asked for. */
bool variant_is_there(const struct variant_options *o, const struct config *c);

/* Makes the checkpoint's model, which model_free releases, with its K/V heads converted, in memory;
 * unchanged if it has as many. The failures of variant_convert and model_create. */
enum status variant_load(const struct variant_request *q, struct model **out, struct err *e);
