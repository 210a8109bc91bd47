/*
 * canvas - what line charts and heat maps have in common (private to show): an SVG file with
 * headings, a legend, and texts that fit.
 *
 * The file holds no script and refers to nothing outside; it follows the reader's light or dark
 * scheme. Texts may hold any bytes: control characters are dropped, what is not UTF-8 becomes
 * U+FFFD. Their widths are estimates for a wide sans-serif face.
 */
#pragma once

#include "base/output.h"
#include "base/status.h"

/* Pixels around all that is drawn, and between the entries of a legend. */
#define CANVAS_MARGIN 22
#define CANVAS_GAP    20

struct canvas {
    struct output *out;
    double width, height;
    double x, y; /* left end of the legend's next entry, and middle of its row */
};

/* Draws all of `what` but the end of the root element, and returns its height. */
typedef double canvas_draw(struct canvas *c, const void *what);

/* Draws twice: to nowhere, to learn the height, and to the file at `path`, which is replaced
 * atomically. The failures of file_writer. */
enum status canvas_write(canvas_draw *draw, const void *what, const char *path, struct err *e);

/*
 * Opens the root element and puts what all pictures have: style sheet, paper, and the headings.
 * A legend may follow. The style sheet has the class muted; for plots grid, axis, note, line, bar,
 * predicted, marker, doubt, and c0 to c7, which set `color`; for heat maps ground, on which level 0
 * lies, map, frame, h1 to h9, which set `color`, and cell, which is filled with it.
 */
void canvas_begin(struct canvas *c, double width, const char *title, const char *subtitle);

/* --- texts ---------------------------------------------------------------------------------- */

/* Returns the pixels that a text takes in one line. */
double canvas_text_width(const char *s);

/* Puts the text, escaped; what takes more than `room` pixels is cut, with an ellipsis. */
void canvas_put_text(struct output *out, const char *s, double room);

/* Puts an element of this name whose content is the whole text. */
void canvas_put_element(struct output *out, const char *name, const char *s);

/* Puts a text element of at most `room` pixels. The left end of its base line is at (x, y) unless
 * the attributes say otherwise. */
void canvas_label(struct canvas *c, const char *attributes, double x, double y, const char *s,
                  double room);

/* --- legend --------------------------------------------------------------------------------- */

/* Begins a row of the legend. */
void canvas_row(struct canvas *c);
/* Puts a text behind room for a sample of so many pixels, in the next row if this one has no room.
 * Returns the sample's left end. */
double canvas_entry(struct canvas *c, double sample, const char *s);
