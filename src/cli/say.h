/*
 * say - all that goes to standard error: lines that -q and -v forbid or ask for, the summary at a
 * command's end, and one line about long work, if it is a terminal.
 */
#ifndef DECODE_CLI_SAY_H
#define DECODE_CLI_SAY_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/common.h"

/* One line about the run on standard error, "decode: " before it; nothing with -q. Names from files
 * may be in it: control characters become '?'. */
void say(const struct common_options *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, with -v only. */
#define say_verbose(c, ...) ((c)->verbose ? say((c), __VA_ARGS__) : (void)0)

/* Shows a line in place of the one before, on standard error, which is a terminal. */
void notice_show(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Takes that line away, if there is one: whatever else is written there does so first. */
void notice_clear(void);

/* A line that stays; where it is broken the next begins after so many spaces. */
void notice_put(const char *line, int indent);

/* The same of a line that printf's format makes, below a heading of "prompt       ": the summary at
 * a command's end. */
void notice_summary(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Of what follows "decode: ". */
#define NOTICE_INDENT 8

/* --- progress -------------------------------------------------------------------------------- */

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
