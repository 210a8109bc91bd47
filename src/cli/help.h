/*
 * help - what a command's --help prints.
 */
#pragma once

#include "cli/command.h"

/* Sets the width of help on what is no terminal to COLUMNS, if that is set. */
void help_set_width(struct output *out);

/* Prints a command's examples and options: those for every day, which fit on a screen, or all of
 * them with what figures mean. */
void command_print_help(const struct command *c, bool all, struct output *out);
