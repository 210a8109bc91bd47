/*
 * cmd_help - the commands of the program, and decode help, which prints what they are.
 */
#pragma once

#include "cli/command.h"

/* In the order of the help; NULL after the last. */
const struct command *command_at(int index);
/* The command of that name. STATUS_USAGE says which was probably meant. */
enum status command_named(const char *name, const struct command **out, struct err *e);

/* The list of commands, and what holds for all. */
void help_print(struct output *out);
