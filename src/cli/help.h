/*
 * help - what a command's --help prints.
 */
#pragma once

#include "cli/command.h"

/* Examples, a command's options and what is said of it, or of long helps one screen; as wide as
 * help_set_width makes it: where `out` is no terminal as COLUMNS says, if it says something. */
void help_set_width(struct output *out);
void command_print_help(const struct command *c, bool all, struct output *out);
