/*
 * plot_chart - a plot made fit to draw: its lines, its axes, and where on the page a value is.
 *
 * Private to the files of plot.
 */
#ifndef DECODE_SHOW_PLOT_CHART_H
#define DECODE_SHOW_PLOT_CHART_H

#include <math.h>
#include <stdbool.h>

#include "show/plot.h"
#include "show/scale.h"
#include "show/svg.h"

/* Pixels of the viewBox; it grows higher where legends need it. */
#define PLOT_WIDTH        860
#define PLOT_MARGIN       22
#define PLOT_INNER_MARGIN 14    /* keeps markers off the data area's left and right */
#define PLOT_MAX_ONE_X    130.0 /* between lines that share one x */

/* The attribute of lines that are drawn again. */
#define PLOT_AGAIN " stroke-dasharray=\"7 5\""

/* One series without what cannot be drawn. */
struct plot_line {
    struct text name;
    struct plot_point *points; /* by rising x; NaN for what is left out */
    int n_points;
    int n_mid, n_band, n_predicted;        /* points that have one */
    const struct plot_point *first, *last; /* of those with a mid; NULL: none */
    int style;                             /* the series' place among those given, but for those
                                              that show one again: they have its */
    bool again;
};

/* The most ticks of the x axis. */
#define PLOT_X_TICKS 9

struct plot_chart {
    struct output *out;
    const struct plot *plot; /* texts and series as they were given */
    struct plot_line *lines; /* at least one point each */
    int n_lines;
    struct plot_point *points; /* the lines' own; one allocation */

    double x_lo, x_hi, y_lo, y_hi; /* the data's ends at those of the axes; y includes 0, but with
                                      y_near */
    bool one_x;                    /* all points share x: lines stand side by side */
    bool has_lines, has_bars, has_bands, has_predicted, has_again;
    struct scale_ticks y_ticks;
    struct {
        double at;
        struct figure label;
    } x_ticks[PLOT_X_TICKS];
    int n_x_ticks; /* 0 if one_x */

    /* The layout, which the drawing decides. */
    bool direct; /* names stand at the lines' right ends, not in the legend */
    double height;
    double left, right, top, bottom; /* of the data area */
};

static inline struct text plot_text(const char *s)
{
    return text_of(s ? s : "");
}

/* Whether a line shows spreads as bars, not as a band. */
static inline bool plot_has_bars(const struct plot_chart *c, const struct plot_line *line)
{
    return c->one_x || line->n_mid == 1;
}

/* Pixels between neighbouring lines that share one x. */
static inline double plot_one_x_spacing(const struct plot_chart *c)
{
    return fmin(PLOT_MAX_ONE_X, (c->right - c->left) / c->n_lines);
}

/* Pixels of a point of line i. */
static inline double plot_x(const struct plot_chart *c, int i, double x)
{
    if (c->one_x)
        return (c->left + c->right) / 2 + (i - (c->n_lines - 1) / 2.0) * plot_one_x_spacing(c);
    const double from = c->left + PLOT_INNER_MARGIN, to = c->right - PLOT_INNER_MARGIN;
    double lo = c->x_lo, hi = c->x_hi;
    if (c->plot->x_doubles) {
        x = log2(x);
        lo = log2(lo);
        hi = log2(hi);
    }
    return from + (x - lo) / (hi - lo) * (to - from);
}

static inline double plot_y(const struct plot_chart *c, double y)
{
    return c->bottom - (y - c->y_lo) / (c->y_hi - c->y_lo) * (c->bottom - c->top);
}

/* --- labels, which take room that the layout must know: it draws them to nowhere first ------ */

/* Lines of the title and the subtitle; returns the height they take. */
double plot_headings(const struct plot_chart *c);
/* The rows of the legend from `top` down; likewise. */
double plot_legend(const struct plot_chart *c, double top);

/* The width right of the data area that the names at the lines' ends take; 0: they do not fit. */
double plot_direct_width(const struct plot_chart *c);
void plot_direct_labels(const struct plot_chart *c);

#endif
