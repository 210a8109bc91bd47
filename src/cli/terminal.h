/*
 * terminal - what standard output and standard error are shown on, and the output that goes there.
 */
#ifndef DECODE_CLI_TERMINAL_H
#define DECODE_CLI_TERMINAL_H

#include "base/output.h"
#include "base/status.h"
#include "show/heatmap.h"

/* Columns of a line, 1 or more: those of the terminal that the descriptor is, or, where it does not
 * tell or is none, COLUMNS, or 80. */
int terminal_width(int fd);

/* Tells standard output its columns and colours, if it is a terminal. */
void terminal_describe(struct output *out);

/*
 * Colours of 256, if standard output is a terminal whose TERM or COLORTERM says that it has them,
 * and NO_COLOR is unset or empty, or `always`; else plain. The background is dark unless COLORFGBG
 * says that it is light. Empty variables count as unset.
 */
enum heatmap_ink terminal_ink(bool always);

/* NULL if it is unset or empty. */
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
 * STATUS_INTERRUPTED if that was because of an interruption while nobody read: then it waits for
 * the reader no longer than a second. */
enum status descriptor_close(struct descriptor *d, struct err *e);

#endif
