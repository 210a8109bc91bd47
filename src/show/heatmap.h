/*
 * heatmap - numbers as levels, and levels as colours: of pictures, and of terminals.
 *
 * A number from 0 up is at level 0, which is left blank, or at one of nine. Everything is a pure
 * function of its arguments.
 */
#ifndef DECODE_SHOW_HEATMAP_H
#define DECODE_SHOW_HEATMAP_H

#include <stdbool.h>

#include "base/output.h"

#define HEATMAP_LEVELS 9

/* --- levels --------------------------------------------------------------------------------- */

struct heatmap_scale {
    bool log;
    double top;                  /* where the last level is, above 0; else all is level 0 */
    double from[HEATMAP_LEVELS]; /* the least number of each level from 1 on */
};

/* Linear: level k is what is nearest to k / 9 of `top`. Log: nearest to top / 10^((9 - k) / 3), so
 * that three levels are a factor of ten; below a 681st of `top` is level 0. */
struct heatmap_scale heatmap_scale(double top, bool log);

/* 0 to HEATMAP_LEVELS; NaN: 0. */
int heatmap_level(const struct heatmap_scale *s, double x);

/* A number in the middle of a level from 1 on. */
double heatmap_middle(const struct heatmap_scale *s, int level);

/* --- in pictures (see show/svg.h) ----------------------------------------------------------- */

/* Opens the root element: a title and a description for those who cannot see the picture, the
 * rules, for light and dark pages, of svg.h and these, more `styles`, and the paper. Class h1 to h9
 * sets `color` to a level's, and "cell" fills with it; "ground" fills what level 0 lies on, "frame"
 * stands around several. */
void heatmap_begin_picture(struct output *out, const char *title, const char *subtitle,
                           const char *styles, double width, double height);

/* The class of text that stands on a level from 1 on. */
const char *heatmap_text_class(int level);

/* What a map [rows, columns] of levels has above level 0, in units of cells from (0, 0): a group of
 * a path a level, of horizontal lines one unit thick. */
void heatmap_paths(struct output *out, const unsigned char *map, int rows, int columns);

/* `what` ("weight"), then samples of all levels between the numbers they stand for; the left end is
 * at x, their middle at y. Returns the right end. */
double heatmap_legend(struct output *out, const struct heatmap_scale *s, const char *what, double x,
                      double y);

/* --- on terminals --------------------------------------------------------------------------- */

/* How levels are shown: as the characters " .:-=+*#%@", or as colours of 256, for a background that
 * is dark, or light. */
enum heatmap_ink { HEATMAP_PLAIN, HEATMAP_DARK, HEATMAP_LIGHT };

/* What colours all that follows it: the background by its level, the text so that it can be read
 * there. Level 0 ends that. "" for plain. */
struct heatmap_sequence {
    char text[24];
};
struct heatmap_sequence heatmap_colour(enum heatmap_ink ink, int level);

/* The levels of n cells side by side, each `width` columns wide. */
void heatmap_put_cells(struct output *out, enum heatmap_ink ink, const unsigned char *row, int n,
                       int width);

/* A line "weight 0  .:-=+*#%@ 1". */
void heatmap_put_legend(struct output *out, enum heatmap_ink ink, const struct heatmap_scale *s,
                        const char *what);

#endif
