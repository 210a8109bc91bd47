/*
 * printable - token bytes made fit for a table cell, or a terminal.
 */
#ifndef DECODE_SHOW_PRINTABLE_H
#define DECODE_SHOW_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/output.h"
#include "base/text.h"

/* Room for one character: an escape or UTF-8, at most four bytes, and the zero. */
struct printable {
    char text[5];
};

/*
 * Cuts the first character off a nonempty *rest: as it is if it is printable, else an escape:
 * \n, \r, \t, \\, or \xNN for other control characters and for bytes that are not UTF-8. C1
 * controls are escaped byte by byte.
 */
struct printable printable_next(struct text *rest);

/* Puts text from anywhere, whole characters: as it is, but on a terminal control characters other
 * than line feed and tab, and bytes that are not UTF-8, are shown as their escapes. */
void printable_put(struct output *out, struct text bytes);

/* Whether all of it is well-formed UTF-8. */
bool text_is_utf8(struct text bytes);

/* Columns that UTF-8 text takes as most monospaced faces and terminals show it: two for characters
 * of East Asian scripts and pictures, none for combining marks, else one. */
size_t text_columns(struct text utf8);

#endif
