/*
 * heads_option - heads that an option names, "0.3,2.1": layer and head, both from 0.
 */
#ifndef DECODE_CLI_HEADS_OPTION_H
#define DECODE_CLI_HEADS_OPTION_H

#include "base/status.h"
#include "model/config.h"

/* Of --without, which several commands have. */
#define WITHOUT_HELP                                                                               \
    "leave out what these heads add: layer and head, from 0, of the model as it runs"

/* A byte for every head of the model, [n_layers, n_heads], 1 for those that `text` names, as
 * malloc'd memory of the caller. STATUS_USAGE names the option and the item that is no head of the
 * model, or is there twice; STATUS_NO_MEMORY. */
enum status heads_of_option(const char *option, const char *text, const struct config *c,
                            unsigned char **heads, struct err *e);

/* What of this is found out without a model: whether the items are heads at all. */
enum status heads_option_check(const char *option, const char *text, struct err *e);

#endif
