/*
 * plot - a line chart of several series, as one standalone SVG file (see show/canvas.h).
 *
 * Every series is a line through the points' `mid`, with a marker at each, error bars from `low` to
 * `high`, and `predicted` as a thin dashed line behind. A legend says which is which. Where all
 * points share one x, the series stand side by side.
 */
#ifndef DECODE_SHOW_PLOT_H
#define DECODE_SHOW_PLOT_H

#include <stdbool.h>

#include "base/status.h"

/* A value that cannot be drawn (NaN, infinite, above 1e100 in magnitude) is left out and the line
 * joins its neighbours: x takes the whole point with it, mid its bar, low or high the other. */
struct plot_point {
    double x;
    double low, mid, high; /* low <= mid <= high; NaN for no bar */
    double predicted;      /* NaN for none */
};

struct plot_series {
    const char *name;
    const struct plot_point *points; /* in any order: drawn by rising x */
    int n_points;
    /* Where several series share a colour or a marker, which are numbered from 0: what the legend
     * calls these, in place of the series' names. NULL: each series has its own. */
    const char *colour_name, *marker_name;
    int colour, marker;
    bool dashed;
};

/* Texts may hold any bytes; what is too long is wrapped or cut. */
struct plot {
    const char *title, *subtitle;
    const char *x_label, *y_label; /* with units */
    bool x_doubles; /* the x axis is logarithmic, its ticks powers of two; points whose x is not
                       positive are left out */
    bool x_crowds;  /* the x axis is that of log(1 + x / the least above 0), ticks at the points */
    bool y_near; /* the y axis begins near the lowest value instead of at zero, and is logarithmic
                    where the highest is more than twice as much */
    /* What the legend calls a line, its bars and its dashed line; NULL for no such entry. */
    const char *mid_label, *band_label, *predicted_label;
    const struct plot_series *series;
    int n_series;
};

/* Replaces the file at `path` atomically. STATUS_USAGE if nothing can be drawn; the failures of
 * file_writer. */
enum status plot_write(const struct plot *p, const char *path, struct err *e);

#endif
