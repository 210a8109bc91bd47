/*
 * budget - K/V heads by layer for so many bytes.
 */
#pragma once

#include "convert/spec.h"

struct convert_budget {
    struct config config;          /* of the checkpoint */
    struct convert_spec spec;      /* of the conversions that are measured, to `chosen` */
    int equal[CONFIG_MAX_LAYERS];  /* K/V heads, the same in every layer that can have so many, as
                                      many as the bytes allow */
    int chosen[CONFIG_MAX_LAYERS]; /* those that are measured; in the end those that may do better
                                    */
    int all, most;                 /* K/V heads of all layers together, of one, at most */
    double *lost; /* [n_layers, most + 1] divergences by K/V heads; HUGE_VAL: not possible */
};

/* Fills in everything but `chosen`. STATUS_USAGE if the bytes are too few for any choice, or enough
 * for all K/V heads that there are. */
enum status convert_budget_plan(struct convert_budget *b, const struct convert_spec *spec,
                                struct err *e);
/* Fills in `chosen`. STATUS_NO_MEMORY and the failures of convert_open. */
enum status convert_budget_choose(struct convert_budget *b, struct err *e);
