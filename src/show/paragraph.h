/*
 * paragraph - text made fit for table cells and terminals: it escapes what must not be shown as it
 * is, counts columns, and breaks lines between words.
 */
#pragma once

#include "base/output.h"
#include "base/utf8.h"

/* --- characters ----------------------------------------------------------------------------- */

/* Room for one character: an escape or UTF-8, at most four bytes, and the zero. */
struct printable {
    char text[5];
};

/* Cuts the first character off a nonempty *rest and returns it, or its escape: \n, \r, \t, \\, and
 * \xNN for each byte of other control characters and of what is not UTF-8. */
struct printable printable_next(struct text *rest);

/* Puts bytes, which end with a whole character: on a terminal as printable_next has them, but for
 * line feed, tab and backslash; elsewhere as they are. */
void printable_put(struct output *out, struct text bytes);

/* Whether all of it is well-formed UTF-8. */
bool text_is_utf8(struct text bytes);

/* Returns the columns that a text takes on most terminals: a character of East Asian scripts and a
 * picture takes two, a combining mark none, another character one. */
size_t text_columns(struct text utf8);

/* What names a token, a row or a column. */
struct text_label {
    char text[64];
};

/* Returns a token's text without its leading space, cut with an ellipsis where it takes more
 * columns; spaces alone become U+2423. It is made printable, or left as it is. */
struct text_label text_label(struct text t, size_t columns, bool printable);

/* --- lines ---------------------------------------------------------------------------------- */

/* Returns the longest beginning that takes at most so many columns. */
struct text paragraph_cut(struct text utf8, size_t columns);

/* Cuts the next line of at most `columns` >= 1, and the spaces after it, off a nonempty *rest. A
 * line ends between words, in a list behind a comma if an item fits; a longer word is a line. */
struct text paragraph_line(struct text *rest, size_t columns, bool is_list);

/* A paragraph under way. What is put is kept until it ends. */
struct paragraph {
    struct output *out;
    size_t indent; /* of the lines after the first */
    size_t len;
    char kept[2048]; /* what is longer is no longer broken as a whole */
};

/* Where out has no columns, lines are not broken. */
struct paragraph paragraph_begin(struct output *out, size_t indent);
/* A line feed ends the line; a vertical tab ends it where out has no columns, and else is a space.
 * A word that is longer than a line is broken behind its commas. */
void paragraph_puts(struct paragraph *p, const char *s);
void paragraph_printf(struct paragraph *p, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* at most 1023 bytes a call */
/* Ends the last line, if there is any. */
void paragraph_end(struct paragraph *p);

/* Puts text that has lines, such as a help. A line that is too long for out's columns goes on below
 * its last column (what stands behind two spaces); lines after it that begin there become part of
 * it. */
void paragraph_reflow(struct output *out, const char *text);
