/*
 * manual - the manual page decode(1), made of what the help is made of.
 */
#ifndef DECODE_CLI_MANUAL_H
#define DECODE_CLI_MANUAL_H

#include "base/output.h"

/* As source for man(1), in the macros of man(7). */
void manual_print(struct output *out);

#endif
