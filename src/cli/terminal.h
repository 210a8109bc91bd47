/*
 * terminal - what standard output and standard error are shown on.
 */
#ifndef DECODE_CLI_TERMINAL_H
#define DECODE_CLI_TERMINAL_H

#include "base/output.h"
#include "show/heatmap.h"

/* Columns of a line, 1 or more: those of the terminal that the descriptor is, or, where it does not
 * tell or is none, COLUMNS, or 80. */
int terminal_width(int fd);

/* Tells standard output its columns and colours, if it is a terminal. */
void terminal_describe(struct output *out);

/*
 * Colours of 256, if standard output is a terminal whose TERM or COLORTERM says that it has them,
 * and NO_COLOR is unset or empty; else plain. The background is dark unless COLORFGBG says that it
 * is light. Empty variables count as unset.
 */
enum heatmap_ink terminal_ink(void);

/* The same colours wherever the output goes, and whatever the variables say of them. */
enum heatmap_ink terminal_forced_ink(void);

/* NULL if it is unset or empty. */
const char *environment(const char *name);

#endif
