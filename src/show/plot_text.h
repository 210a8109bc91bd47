/*
 * plot_text - texts of any bytes, measured, cut and escaped for an SVG file.
 *
 * Widths are estimates for a wide sans-serif face, since the reader's font is not known: texts
 * come out a little narrower. Pieces point into the text that they were cut from.
 */
#ifndef DECODE_SHOW_PLOT_TEXT_H
#define DECODE_SHOW_PLOT_TEXT_H

#include <stdbool.h>

#include "base/file.h"
#include "base/text.h"

/* A part of a text that fits somewhere. */
struct plot_piece {
    struct text text;
    bool cut; /* to be followed by an ellipsis */
};

/* Pixels of one line at a font size of `size` pixels. */
double plot_text_width(struct text t, double size);
double plot_piece_width(struct plot_piece p, double size);

/* The whole text, or as much of it as leaves room for an ellipsis in `width` pixels. */
struct plot_piece plot_text_fit(struct text t, double size, double width);

/*
 * Cuts the next line off *rest: up to a space if one comes in time, else where the width ends,
 * at least one character. `last` asks for the last line, which takes what fits.
 */
struct plot_piece plot_text_line(struct text *rest, double size, double width, bool last);

void plot_puts(struct file_writer *w, const char *s);

/* Every '@' of the format is the next length (plot_length). */
void plot_shape(struct file_writer *w, const char *format, const double *lengths);

/* The text as XML character data: escaped, control characters dropped, U+FFFD for bytes that
 * are not UTF-8. */
void plot_put_text(struct file_writer *w, struct text t);
void plot_put_piece(struct file_writer *w, struct plot_piece p);

#endif
