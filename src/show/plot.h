/*
 * plot - a line chart, as one standalone SVG file (see show/canvas.h).
 *
 * The points of one line are joined at `mid`, with a marker and an error bar from `low` to `high`
 * at each; `predicted` is a thin dashed line behind. A legend names them. Where all points share
 * one x, the lines stand side by side. All figures are finite.
 */
#pragma once

#include "base/output.h"
#include "base/status.h"
#include "show/paragraph.h"

struct plot_point {
    double x;
    double low, mid, high; /* low <= mid <= high */
    double predicted;
    const char *mark;  /* a few letters above it; "": none */
    const char *doubt; /* why it cannot be trusted: its marker is hollow; "": it can */
    int line;          /* the number of its line; lines are drawn by rising number */
    const char *name;  /* its line's; all points of a line have it */
};

/* Texts may hold any bytes; what is too long is wrapped or cut. */
struct plot {
    const char *title, *subtitle;
    const char *x_label, *y_label; /* with units */
    bool x_doubles; /* the x axis is logarithmic, its ticks powers of two, all x above 0 */
    /* What the legend calls a line, its bars, its dashed line and hollow markers. */
    const char *mid_label, *band_label, *predicted_label, *doubt_label;
    struct plot_point *points; /* [n_points], one or more, in any order; plot_write sorts them */
    int n_points;
};

/* Replaces the file at `path` atomically. STATUS_NO_MEMORY; the failures of file_writer. */
enum status plot_write(const struct plot *p, const char *path, struct err *e);
