/*
 * environment - the variables that the program reads.
 */
#ifndef DECODE_CLI_ENVIRONMENT_H
#define DECODE_CLI_ENVIRONMENT_H

/* NULL if it is unset or empty. */
const char *environment(const char *name);

#endif
