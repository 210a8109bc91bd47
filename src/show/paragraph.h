/*
 * paragraph - text broken into lines between words, where there is a terminal to keep to.
 */
#ifndef DECODE_SHOW_PARAGRAPH_H
#define DECODE_SHOW_PARAGRAPH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/output.h"
#include "base/text.h"

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
