/*
 * variant - K/V heads as --kv-heads names them, and the checkpoint with as many in memory.
 */
#pragma once

#include "cli/command.h"
#include "convert/convert.h"

/* The specification of a conversion of the job's checkpoint by fit, from the weights alone; its K/V
 * heads are still to be set. It borrows from the job. */
struct convert_spec variant_spec(const struct job *j, const struct config *c);

/* Sets the K/V heads of *spec, all the same or by layer: `layers` [CONFIG_MAX_LAYERS] is then where
 * they are; and whether they are fewer than there are. The failures of
 * heads_of_layers and config_needs_dot. */
enum status variant_parse(const char *kv_heads, const struct config *c, int *layers,
                          struct convert_spec *spec, bool *fewer, struct err *e);

/* Plans and runs a conversion of the job's checkpoint; convert_free is due on success. Says with -v
 * what memory it needs. The failures of convert_run, which name the file. */
enum status variant_convert(const struct job *j, const struct convert_spec *spec,
                            struct convert *out, struct err *e);

/* Makes the model of the job's checkpoint with so many K/V heads, stored as `how` says, for
 * model_free. If it has more it
 * is converted by fit in memory: from the weights alone if `text` is NULL, else on that text and
 * with refit, whose windows `callbacks` count. The failures of variant_parse, convert_run and
 * model_create. */
enum status variant_load(const struct job *j, const char *kv_heads, const struct model_options *how,
                         const struct text_sample *text, struct callbacks callbacks,
                         struct model **out, struct err *e);
