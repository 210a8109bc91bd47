/*
 * editor - a line that is typed on a terminal and corrected with a shell's keys: arrows, Home, End,
 * Delete, and Ctrl with A, B, D, E, F, H, K, N, P, U, W; the lines before it come back. Lines that
 * are pasted are one, with line feeds in it. Any other byte is typed or does nothing.
 */
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Zeroed it has no lines; editor_free is due. */
struct editor {
    struct bytes line, history; /* history: lines, each with a zero behind it */
    size_t cursor;              /* bytes of the line before it */
    size_t shown;               /* where the line is from in the history; its end: it is new */
    struct bytes screen;        /* the line as it is drawn */
    const char *prompt;         /* of the line that is typed */
    bool pastes;                /* what comes is pasted */
};

enum editor_end {
    EDITOR_LINE,         /* the line is complete */
    EDITOR_CANCELLED,    /* Ctrl-C: it is as it was until then */
    EDITOR_END_OF_INPUT, /* Ctrl-D on an empty line, or nothing more can be read */
};

/* The next line of standard input behind a prompt of ASCII on standard error, both terminals, and
 * how it ended; valid until the next call. STATUS_INTERRUPTED after a signal, STATUS_NO_MEMORY. */
enum status editor_read(struct editor *ed, const char *prompt, enum editor_end *end,
                        struct text *line, struct err *e);

void editor_free(struct editor *ed);
