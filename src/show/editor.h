/*
 * editor - a line that is typed and corrected with a shell's keys: arrows, Home, End, Delete, and
 * Ctrl with A, B, D, E, F, H, K, N, P, U, W; the lines before it come back. Lines that are pasted
 * are one, with line feeds in it. Any other byte is typed or does nothing.
 *
 * It takes bytes of a terminal and makes bytes for it. Its user reads and writes them, and sets the
 * terminal to give each byte as it is typed.
 */
#pragma once

#include "base/text.h"

/* The place in a sequence of bytes that begins with Esc and is one key. */
enum editor_escape { ESCAPE_NONE, ESCAPE_BEGUN, ESCAPE_NUMBERS };

/* Zeroed it has no lines; editor_free is due. */
struct editor {
    struct bytes line;    /* for the user to read; valid until the next call of editor_begin */
    struct bytes history; /* earlier lines, each with a zero behind it */
    size_t cursor;        /* bytes of the line that stand before the cursor */
    size_t shown;         /* the line's place in the history; the history's end: it is new */
    const char *prompt;   /* borrowed */
    enum editor_escape escape;
    int number;        /* the last one of the sequence */
    bool pastes;       /* the bytes that come are pasted */
    struct bytes text; /* the line as it is drawn */
    bool drawn;        /* the terminal shows the line as it is */
    int width, column; /* of the terminal and of the cursor at the last drawing; 0: none yet */
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

/* Takes the next byte that was typed. Unless the state is EDITOR_GOES_ON, editor_begin is due. */
enum editor_state editor_type(struct editor *ed, char byte);

/*
 * Appends to *out the bytes that make a terminal of `width` columns show the line in the row where
 * it was drawn before; none if the terminal shows it already. The line is cut to that row, and what
 * would command the terminal is escaped. The first drawing of a line makes the terminal mark what
 * is pasted; the drawing of its last state ends that and the row. False without memory: *out is of
 * no use then.
 */
bool editor_draw(struct editor *ed, enum editor_state state, int width, struct bytes *out);

void editor_free(struct editor *ed);
