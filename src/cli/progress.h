/*
 * progress - one line about long work on standard error, if that is a terminal.
 */
#ifndef DECODE_CLI_PROGRESS_H
#define DECODE_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/common.h"

struct progress {
    const char *unit;   /* of what is counted; NULL: bytes */
    uint64_t done, all; /* as last told; 0 of 0: nothing yet */
    bool terminal;      /* something is shown: it is one, and -q is not given */
    uint64_t started_ns, shown_ns;
};

struct progress progress_start(const struct common_options *c, const char *unit);

/* For the tools' `progress`, with a struct progress as `arg`: rewrites the line, "<done> of <all>
 * <unit>, <rate> <unit>/s, <time> left", at most ten times a second. */
void progress_show(void *arg, uint64_t done, uint64_t all);

/* The same for texts made side by side: "<done> done, <rate> tokens/s, <time> left", the time only
 * where it is known how much of all the `begun` ones are: share, from 0 to 1, else negative. */
void progress_show_texts(struct progress *p, uint64_t done, uint64_t begun, uint64_t tokens,
                         double share);

/* The same for what takes unequal times: "<done> of <all> <unit>, <time> left", `share` of the work
 * done, from 0 to 1. */
void progress_show_share(struct progress *p, uint64_t done, uint64_t all, double share);

/* Takes the line away. */
void progress_end(const struct progress *p);

/* For the tools' `stop`: whether the first Ctrl-C has come. */
bool progress_stop(void *arg);

#endif
