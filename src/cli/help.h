/*
 * help - what is said of the program as a whole, in `decode help` and in the manual page.
 */
#ifndef DECODE_CLI_HELP_H
#define DECODE_CLI_HELP_H

#include "base/output.h"

extern const char help_summary[]; /* the program in one line */

struct help_section {
    const char *title; /* NULL ends the list */
    const char *text;  /* as a command's notes are written */
};
extern const struct help_section help_sections[];

/* The commands, then the sections. */
void help_print(struct output *out);

#endif
