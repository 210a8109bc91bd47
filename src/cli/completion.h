/*
 * completion - scripts that complete decode's command lines in a shell, made of the tables of
 * options: commands, options, the values of those that name some, and files where a value is one.
 */
#ifndef DECODE_CLI_COMPLETION_H
#define DECODE_CLI_COMPLETION_H

#include "base/output.h"

/* For bash-completion's folder, or to be sourced. */
void completion_bash(struct output *out);
/* The function _decode, for a folder of $fpath. */
void completion_zsh(struct output *out);
/* For a folder of $fish_complete_path. */
void completion_fish(struct output *out);

#endif
