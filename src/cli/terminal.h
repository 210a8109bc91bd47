/*
 * terminal - what people see: standard output, and on standard error lines that -q and -v forbid or
 * ask for, the summary at a command's end, and one line about long work, if it is a terminal.
 */
#pragma once

#include "base/output.h"
#include "base/status.h"
#include "show/heatmap.h"

struct common_options;

/* Returns the columns of the terminal that the descriptor is, 1 or more. Where it is none, or does
 * not tell, they are COLUMNS or else 80. */
int terminal_width(int fd);

/* Whether the descriptor is a terminal that moves its cursor and has colours when it is told to:
 * TERM is set, and not "dumb". An empty variable counts as unset. */
bool terminal_obeys(int fd);

/* Returns colours, if standard output is such a terminal and NO_COLOR is not set; else plain. */
enum heatmap_ink terminal_ink(void);

/* Returns an environment variable; NULL if it is unset or empty. */
const char *environment(const char *name);

/* --- descriptors ----------------------------------------------------------------------------- */

/* An output that goes to a file descriptor, checked: standard output. */
struct descriptor {
    struct output out; /* first */
    int fd;
    int error; /* errno of the first failure, 0 before it; EPIPE: its reader closed the pipe */
};

void descriptor_init(struct descriptor *d, int fd);

/* Flushes and closes the descriptor. STATUS_FAILED with the reason if anything was lost;
 * STATUS_INTERRUPTED if that was because nobody read and the program was interrupted. */
enum status descriptor_close(struct descriptor *d, struct err *e);

/* --- lines on standard error ----------------------------------------------------------------- */

/* Prints one line about the run on standard error, behind "decode: "; nothing with -q. Names from
 * files may be in it: control characters become '?'. */
void log_info(const struct common_options *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints one line about what went wrong in the same form, also with -q. */
void log_error(const char *text);

/* Does the same as log_info, with -v only. */
#define log_verbose(c, ...) ((c)->verbose ? log_info((c), __VA_ARGS__) : (void)0)

/* Prints a line of the summary at a command's end, which begins with a heading as "prompt       ".
 */
#define notice_summary(...) notice(true, __VA_ARGS__)
/* Shows a line in place of the one before, on standard error, which is a terminal. */
#define notice_show(...) notice(false, __VA_ARGS__)
void notice(bool stays, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Removes the line of notice_show, if there is one. Whoever writes to standard error calls this
 * first. */
void notice_clear(void);

/* --- progress -------------------------------------------------------------------------------- */

struct progress {
    const char *unit;   /* of what is counted, in the singular; NULL: bytes */
    uint64_t done, all; /* as last shown; 0 of 0: nothing yet */
    bool terminal;      /* something is shown: it is one, and -q is not given */
    uint64_t started_ns, shown_ns;
};

/* A callback `progress`, whose `arg` is a struct progress: rewrites the line at most ten times a
 * second. */
void progress_show(void *arg, uint64_t done, uint64_t all);

/* Removes the line. */
void progress_end(const struct progress *p);

/* A callback `stop`: whether the first Ctrl-C has come. */
bool progress_stop(void *arg);
