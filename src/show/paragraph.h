/*
 * paragraph - text made fit for table cells and terminals: what must not be shown as it is escaped,
 * widths in columns, lines broken between words.
 */
#ifndef DECODE_SHOW_PARAGRAPH_H
#define DECODE_SHOW_PARAGRAPH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/output.h"
#include "base/text.h"

/* --- characters ----------------------------------------------------------------------------- */

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

/* What names a token, a row or a column. */
struct text_label {
    char text[64];
};

/* A token's text in at most so many columns, cut with an ellipsis: without its leading space,
 * spaces alone as U+2423; as printable_next has it, or the bytes as they are. */
struct text_label text_label(struct text t, size_t columns, bool printable);

/* --- lines ---------------------------------------------------------------------------------- */

/* The longest beginning that takes no more than so many columns. */
struct text paragraph_cut(struct text utf8, size_t columns);

/* Cuts the next line of at most `columns` >= 1 columns off a nonempty *rest, with the spaces after
 * it: of a list behind one of its commas, if an item fits, else between words; a word that is
 * longer is a line. */
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
/* A line feed ends the line; a vertical tab breaks it where lines are as long as they are, else it
 * is a space. A word that is longer than a line is broken behind its commas, if it has any. */
void paragraph_puts(struct paragraph *p, const char *s);
void paragraph_printf(struct paragraph *p, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* at most 1023 bytes a call */
/* Ends the last line, if there is any. */
void paragraph_end(struct paragraph *p);

/*
 * Text in lines that are broken already, such as a help, each behind `indent` more spaces: as it is
 * where out has no columns. Else a line that is longer than they are goes on below its last column
 * (what stands behind two spaces), and takes the lines after it along that begin there.
 */
void paragraph_reflow(struct output *out, const char *text, size_t indent);

#endif
