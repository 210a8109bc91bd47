/*
 * completion - the script that completes decode's command lines in bash, made of the tables of
 * options: commands, options, the values of those that name some, and files where a value is one.
 */
#ifndef DECODE_CLI_COMPLETION_H
#define DECODE_CLI_COMPLETION_H

#include "base/output.h"

/* For bash-completion's folder, or to be sourced. */
void completion_bash(struct output *out);

#endif
