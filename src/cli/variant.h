/*
 * variant - conversion to fewer K/V heads, or to latent caches, as the commands offer it: options,
 * calibration text, memory plan, progress.
 */
#ifndef DECODE_CLI_VARIANT_H
#define DECODE_CLI_VARIANT_H

#include "base/status.h"
#include "cli/job.h"
#include "convert/convert.h"

/* What is converted is not quantized, unless that is asked for: STATUS_USAGE. */
enum status variant_check_types(const struct gguf *g, const char *path, struct err *e);

/* Converts job.checkpoint, which needs no model, on job.pool; random heads are job.seed's. *spec is
 * what was asked for, but its tokens and its numbers by layer are gone. convert_free is due on
 * success. Signals are deferred but while --calib's text is read. The failures of convert_run;
 * STATUS_USAGE for options that do not fit together, or as many K/V heads as the checkpoint has. */
enum status variant_convert(struct job *j, const struct variant_options *o,
                            struct convert_spec *spec, struct convert *out, struct err *e);

/* Makes the model of job.checkpoint with its K/V heads converted, in memory; unchanged if it has as
 * many. The failures of variant_convert and model_create. */
enum status variant_load(struct job *j, struct err *e);

#endif
