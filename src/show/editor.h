/*
 * editor - a line that is typed and corrected with a shell's keys: arrows, Home, End, Delete, and
 * Ctrl with A, B, D, E, F, H, K, N, P, U, W; the lines before it come back. Lines that are pasted
 * are one, with line feeds in it. Any other byte is typed or does nothing.
 *
 * Bytes of a terminal in, bytes for it out: what reads and writes them, and sets the terminal to
 * give each byte as it is typed, is its user's.
 */
#pragma once

#include "base/text.h"

/* How far what is typed is in a sequence that begins with Esc, which is one key. */
enum editor_escape { ESCAPE_NONE, ESCAPE_BEGUN, ESCAPE_NUMBERS };

/* Zeroed it has no lines; editor_free is due. */
struct editor {
    struct bytes line;    /* for the user to read; valid until the next call of editor_begin */
    struct bytes history; /* the lines before it, each with a zero behind it */
    size_t cursor;        /* bytes of the line before it */
    size_t shown;         /* where the line is from in the history; its end: it is new */
    const char *prompt;   /* borrowed */
    enum editor_escape escape;
    int number;        /* the last one of the sequence */
    bool pastes;       /* what comes is pasted */
    struct bytes text; /* the line as it is drawn */
    bool drawn;        /* the terminal shows the line as it is */
    int width, column; /* of the terminal when it was drawn last, and the cursor's; 0: not yet */
};

enum editor_state {
    EDITOR_GOES_ON,
    EDITOR_LINE,         /* Enter: the line is complete */
    EDITOR_CANCELLED,    /* Ctrl-C: it is as it was until then */
    EDITOR_END_OF_INPUT, /* Ctrl-D on an empty line */
    EDITOR_NO_MEMORY,
};

/* Begins an empty line behind a prompt of ASCII, a character or more. */
void editor_begin(struct editor *ed, const char *prompt);

/* Takes the next byte that was typed. Behind one that does not go on editor_begin is due. */
enum editor_state editor_type(struct editor *ed, char byte);

/*
 * Appends to *out what makes a terminal of `width` columns show the line in the row where it was
 * drawn before: nothing if it does already. The line is cut to that row, and what would command the
 * terminal is escaped. Between the first drawing of a line and that of a state in which it does not
 * go on, behind which the next row begins, the terminal marks what is pasted. False without memory:
 * *out is of no use.
 */
bool editor_draw(struct editor *ed, enum editor_state state, int width, struct bytes *out);

void editor_free(struct editor *ed);
