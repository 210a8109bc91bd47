/*
 * editor - a line that is typed on a terminal and corrected with a shell's keys: arrows, Home, End,
 * Delete, and Ctrl with A, B, D, E, F, H, K, N, P, U, W; the lines before it come back.
 */
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Zeroed it has no lines; editor_free is due. */
struct editor {
    struct bytes line, history; /* history: lines, each with its line feed */
    size_t cursor;              /* bytes of the line before it */
    size_t shown;               /* where the line is from in the history; its end: it is new */
    struct bytes screen;        /* the line as it is drawn */
};

/* The next line of standard input behind a prompt of ASCII on standard error, both terminals; valid
 * until the next call, without data if the input has ended. STATUS_INTERRUPTED after a signal,
 * STATUS_NO_MEMORY. */
enum status editor_read(struct editor *ed, const char *prompt, struct text *line, struct err *e);

void editor_free(struct editor *ed);
