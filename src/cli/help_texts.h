/*
 * help_texts - what `decode help COMMAND --all` says below a command's options, and `decode help`
 * below the list of commands. The Makefile makes these strings, for paragraph_reflow, of the files
 * src/cli/help/NAME.txt.
 */
#pragma once

extern const char help_of_decode[]; /* of all commands */

extern const char help_of_attend[], help_of_bench[], help_of_convert[], help_of_eval[],
    help_of_generate[], help_of_heads[], help_of_info[], help_of_score[], help_of_train[];
