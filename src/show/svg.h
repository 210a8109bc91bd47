/*
 * svg - what pictures are made of: measured and escaped texts, shapes, a style sheet.
 *
 * Texts are any bytes. Widths are estimates for a wide sans-serif face, since the reader's font is
 * not known: texts come out a little narrower. The same calls give the same bytes, in any locale.
 */
#ifndef DECODE_SHOW_SVG_H
#define DECODE_SHOW_SVG_H

#include <stdbool.h>

#include "base/output.h"
#include "base/text.h"

/* Of the style sheet, in pixels. */
#define SVG_FONT_SIZE  13
#define SVG_TICK_SIZE  12 /* class "tick" */
#define SVG_TITLE_SIZE 18 /* class "title", bold */

/* --- texts ---------------------------------------------------------------------------------- */

/* A part of a text that fits somewhere; points into the text. */
struct svg_piece {
    struct text text;
    bool cut; /* to be followed by an ellipsis */
};

static inline struct svg_piece svg_whole(const char *s)
{
    return (struct svg_piece){text_of(s), false};
}

/* Pixels of one line at a font size of `size` pixels. */
double svg_text_width(struct text t, double size);
double svg_piece_width(struct svg_piece p, double size);

/* The whole text, or as much of it as leaves room for an ellipsis in `width` pixels. */
struct svg_piece svg_text_fit(struct text t, double size, double width);

/*
 * Cuts the next line off *rest: up to a space if one comes in time, else where the width ends,
 * at least one character. `last` asks for the last line, which takes what fits.
 */
struct svg_piece svg_text_line(struct text *rest, double size, double width, bool last);

/* XML character data: escaped, control characters dropped, U+FFFD for bytes that are not UTF-8. */
void svg_put_text(struct output *out, struct text t);
void svg_put_piece(struct output *out, struct svg_piece p);

/* A text element; `attributes` are all but its place, which is the left end of the base line
 * unless they say otherwise. */
void svg_label(struct output *out, const char *attributes, double x, double y, struct svg_piece p);

/* A title over a subtitle, wrapped, from the top of a picture on; returns where they end. */
double svg_headings(struct output *out, struct text title, struct text subtitle, double x,
                    double width);

/* --- pictures ------------------------------------------------------------------------------- */

/* Opens the root element, with a title for those who cannot see the picture. */
void svg_begin(struct output *out, double width, double height, struct text title);
/* Behind everything. */
void svg_put_paper(struct output *out);

/* --- shapes --------------------------------------------------------------------------------- */

/* Every '@' of the format is the next length, in pixels to a hundredth. */
void svg_shape(struct output *out, const char *format, const double *lengths);

/* Opens a group with the colour of a style, a number from 0 up; its marker goes inside. */
void svg_begin_group(struct output *out, int style);
/* Hollow where `again` and the style's are full, and the other way round. */
void svg_marker(struct output *out, int style, bool again, double x, double y);

/* The rules, for light and dark pages, of elements inside class "decode-plot": the classes paper,
 * title, muted, tick, grid, axis, note, line, band, bar, predicted, leader, and the markers. */
void svg_style_sheet(struct output *out);

/* A rule of a style sheet: a property's value on light pages, and on dark ones. */
struct svg_rule {
    const char *selector, *property, *light, *dark;
};
/* A style sheet of more: `common` rules that are the same on all pages, and those [n]. */
void svg_put_styles(struct output *out, const char *common, const struct svg_rule *r, int n);

#endif
