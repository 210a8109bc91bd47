/*
 * head_choice - which heads of a model a command is about: --layer and --head.
 */
#ifndef DECODE_CLI_HEAD_CHOICE_H
#define DECODE_CLI_HEAD_CHOICE_H

#include "base/status.h"
#include "cli/options.h"
#include "model/config.h"

/* Of the options; a command has them in a table of its own, with its VALUES. */
#define OPT_LAYER(member, ...) OPT_STRING("layer", member, "L,...|all", __VA_ARGS__)
#define OPT_HEAD(member, ...)  OPT_STRING("head", member, "H,...|all", __VA_ARGS__)

/* Ascending numbers, each once. */
struct choice {
    int *items; /* malloc'd */
    int n;
};

/* The numbers below n_all that a list "0,3", or "all", or NULL (all) names. STATUS_USAGE names the
 * option, the range and what was found; STATUS_NO_MEMORY. choice_free is due in every case. */
enum status choice_of(const char *option, const char *text, int n_all, const char *what,
                      struct choice *out, struct err *e);
void choice_free(struct choice *c); /* legal on a zeroed struct and twice */

/* One head, "L.H". STATUS_USAGE names the option and the ranges. */
enum status head_of_option(const char *option, const char *text, const struct config *c, int *layer,
                           int *head, struct err *e);

#endif
