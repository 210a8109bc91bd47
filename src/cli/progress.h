/*
 * progress - one line about long work on standard error, if that is a terminal.
 *
 * The callbacks of the tools take a struct progress, or a struct that begins with one, as `arg`.
 */
#ifndef DECODE_CLI_PROGRESS_H
#define DECODE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct common_options;

struct progress {
    bool terminal; /* something is shown: it is one, and -q is not given */
    uint64_t started_ns, shown_ns;
};

struct progress progress_start(const struct common_options *c);

/* Rewrites the line: "<done> of <all> <unit>, <rate> <unit>/s, <time> left"; at most ten times a
 * second. done > 0. */
void progress_show(struct progress *p, const char *unit, double done, double all);

/* The same with numbers of bytes. */
void progress_show_bytes(struct progress *p, double done, double all);

/* Takes the line away. */
void progress_end(const struct progress *p);

/* For the tools' `stop`: whether the first Ctrl-C has come. */
bool progress_stop(void *arg);

#endif
