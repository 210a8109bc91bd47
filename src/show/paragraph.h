/*
 * paragraph - text made fit for table cells and terminals: what must not be shown as it is escaped,
 * widths in columns, lines broken between words.
 */
#pragma once

#include "base/output.h"
#include "base/utf8.h"

/* --- characters ----------------------------------------------------------------------------- */

/* Room for one character: an escape or UTF-8, at most four bytes, and the zero. */
struct printable {
    char text[5];
};

/* Cuts the first character off a nonempty *rest: as it is, or the escape \n, \r, \t, \\, or \xNN
 * for each byte of other control characters and of what is not UTF-8. */
struct printable printable_next(struct text *rest);

/* Puts whole characters as they are, but on a terminal, other than line feed, tab and backslash, as
 * printable_next has them. */
void printable_put(struct output *out, struct text bytes);

/* Whether all of it is well-formed UTF-8. */
bool text_is_utf8(struct text bytes);

/* Columns on most terminals: two for characters of East Asian scripts and pictures, none for
 * combining marks, else one. */
size_t text_columns(struct text utf8);

/* What names a token, a row or a column. */
struct text_label {
    char text[64];
};

/* A token's text in at most so many columns, else cut with an ellipsis: without its leading space,
 * spaces alone as U+2423; printable, or the bytes as they are. */
struct text_label text_label(struct text t, size_t columns, bool printable);

/* --- lines ---------------------------------------------------------------------------------- */

/* The longest beginning that takes no more than so many columns. */
struct text paragraph_cut(struct text utf8, size_t columns);

/* Cuts the next line of at most `columns` >= 1 off a nonempty *rest, with the spaces after it: of a
 * list behind a comma, if an item fits, else between words; a longer word is a line. */
struct text paragraph_line(struct text *rest, size_t columns, bool is_list);

/* A paragraph under way: what is put is kept as a word until a space or the end. */
struct paragraph {
    struct output *out;
    size_t indent; /* of the lines after the first */
    size_t at;     /* columns of the line so far */
    size_t word_len;
    char word[256]; /* longer ones are no longer kept together */
};

/* Lines are as long as they are where out has no columns. */
struct paragraph paragraph_begin(struct output *out, size_t indent);
/* A line feed ends the line; a vertical tab is a space, or ends it where out has no columns. A word
 * that is longer than a line is broken behind its commas. */
void paragraph_puts(struct paragraph *p, const char *s);
void paragraph_printf(struct paragraph *p, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* at most 1023 bytes a call */
/* Ends the last line, if there is any. */
void paragraph_end(struct paragraph *p);

/* Text in lines, such as a help, each behind `indent` more spaces. A line that is too long for
 * out's columns goes on below its last column (what stands behind two spaces), and takes the lines
 * after it along that begin there. */
void paragraph_reflow(struct output *out, const char *text, size_t indent);
