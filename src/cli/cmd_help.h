/*
 * cmd_help - the commands of the program, and what decode help and --help print of them.
 */
#pragma once

#include "cli/command.h"

/* In the order of the help; NULL after the last. */
const struct command *command_at(int index);
/* The command of that name. STATUS_USAGE says which was probably meant. */
enum status command_named(const char *name, const struct command **out, struct err *e);

/* Both are as wide as the terminal, or where `out` is none as COLUMNS says, if it says something. */

/* The list of commands, and what holds for all. */
void help_print(struct output *out);
/* Examples, a command's options and what is said of it, or of long helps one screen. */
void command_print_help(const struct command *c, bool all, struct output *out);
