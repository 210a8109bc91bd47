/*
 * variant - K/V heads as --kv-heads names them, and the checkpoint with as many in memory.
 */
#pragma once

#include "cli/calibration.h"
#include "convert/convert.h"

/* What is converted, and by what; all is borrowed. */
struct variant_request {
    const char *path;                    /* of the checkpoint, which messages name */
    const struct checkpoint *checkpoint; /* needs no model */
    const struct kernels *kernels;
    struct pool *pool;
    struct callbacks callbacks; /* of windows of a text */
};

/* A conversion by fit, from the weights alone, whose K/V heads are not set yet. */
struct convert_spec variant_spec(const struct variant_request *q, const struct config *c);

/* Sets the K/V heads of *spec, all the same or by layer: `layers` [CONFIG_MAX_LAYERS] is then where
 * they are; and whether they are fewer than there are. STATUS_USAGE for what is no number, no
 * divisor of the query heads, or more than there are. */
enum status variant_parse(const char *kv_heads, const struct config *c, int *layers,
                          struct convert_spec *spec, bool *fewer, struct err *e);

/* Plans and runs a conversion of the request's checkpoint; convert_free is due on success. Says
 * with -v what memory it needs. The failures of convert_run, which name the file. */
enum status variant_convert(const struct variant_request *q, const struct common_options *o,
                            const struct convert_spec *spec, struct convert *out, struct err *e);

/* Makes the checkpoint's model, which model_free releases, with so many K/V heads, converted by fit
 * in memory: from the weights alone if `text` is NULL, else on it and with refit. Unchanged if it
 * has as many. The failures of variant_parse, convert_run and model_create. */
enum status variant_load(const struct variant_request *q, const struct common_options *o,
                         const char *kv_heads, const struct calibration *text, struct model **out,
                         struct err *e);
