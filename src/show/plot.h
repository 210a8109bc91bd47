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

/*
 * Values are in the units that the axes' labels name. One that cannot be drawn (NaN, infinite,
 * above 1e100 in magnitude) is left out and the line joins its neighbours: x takes the whole
 * point with it, mid its bar, low or high the other of the two.
 */
struct plot_point {
    double x;
    double low, mid, high; /* low <= mid <= high; NaN for no bar */
    double predicted;      /* NaN for none */
};

struct plot_series {
    const char *name;
    const struct plot_point *points; /* in any order: drawn by rising x */
    int n_points;
};

/*
 * Everything is borrowed for the call alone. Texts may hold any bytes (control characters are
 * dropped, what is not UTF-8 becomes U+FFFD, what is too long is wrapped or cut).
 */
struct plot {
    const char *title, *subtitle;
    const char *x_label, *y_label; /* with units */
    bool x_doubles; /* equal steps of the x axis are equal ratios, its ticks powers of two; points
                       whose x is not positive are left out */
    bool y_near;    /* the y axis begins near the lowest value instead of at zero: what is shown are
                       differences */
    /* What the legend calls a line, its bars and its dashed line; NULL for no such entry. One that
     * nothing drawn needs is left out too. */
    const char *mid_label, *band_label, *predicted_label;
    const struct plot_series *series;
    int n_series;
};

/*
 * Replaces the file at `path` atomically. Fails with STATUS_USAGE if no series has a point whose
 * x and mid can be drawn, else as file_writer does; the file is then as it was.
 */
enum status plot_write(const struct plot *p, const char *path, struct err *e);

#endif
