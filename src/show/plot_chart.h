/*
 * plot_chart - a plot's data made fit to draw, its axes, and where on the page a value is.
 */
#ifndef DECODE_SHOW_PLOT_CHART_H
#define DECODE_SHOW_PLOT_CHART_H

#include <stdbool.h>

#include "show/plot.h"
#include "show/scale.h"
#include "show/svg.h"

/* Pixels of the viewBox; it grows higher where legends need it. */
#define PLOT_WIDTH        860
#define PLOT_MARGIN       22
#define PLOT_INNER_MARGIN 14 /* keeps markers off the data area's left and right */

/* One series without what cannot be drawn. */
struct plot_line {
    struct text name;
    struct plot_point *points; /* by rising x; NaN for what is left out */
    int n_points;
    int n_mid, n_band, n_predicted; /* points that have one */
    int style;                      /* the series' place among all that were given */
};

struct plot_chart {
    struct output *out;
    struct text title, subtitle, x_label, y_label, mid_label, band_label, predicted_label;
    struct plot_line *lines; /* at least one point each */
    int n_lines;
    struct plot_point *points; /* the lines' own; one allocation */

    double x_lo, x_hi, y_lo, y_hi; /* the data's ends at those of the axes; y includes 0 */
    bool one_x;                    /* all points share x: lines stand side by side */
    bool has_lines, has_bars, has_bands, has_predicted;
    struct scale_ticks x_ticks, y_ticks; /* x: none if one_x */

    /* The layout, which the drawing decides. */
    bool direct; /* names stand at the lines' right ends, not in the legend */
    double height;
    double left, right, top, bottom; /* of the data area */
};

/* Everything up to the layout; `path` is for the message. STATUS_USAGE if there is nothing to
 * draw, STATUS_NO_MEMORY. plot_chart_free is due in any case. */
enum status plot_chart_create(struct plot_chart *c, const struct plot *p, const char *path,
                              struct err *e);
void plot_chart_free(struct plot_chart *c);

/* Whether a line shows spreads as bars, not as a band. */
bool plot_has_bars(const struct plot_chart *c, const struct plot_line *line);

/* Pixels of a point of line i. */
double plot_x(const struct plot_chart *c, int i, double x);
double plot_y(const struct plot_chart *c, double y);
/* Between neighbouring lines that share one x. */
double plot_one_x_spacing(const struct plot_chart *c);

#endif
