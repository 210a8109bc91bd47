/*
 * plot_private - what the parts of plot share: the data made fit to draw, and where it goes.
 */
#ifndef DECODE_SHOW_PLOT_PRIVATE_H
#define DECODE_SHOW_PLOT_PRIVATE_H

#include <stdbool.h>

#include "base/file.h"
#include "show/plot.h"
#include "show/plot_scale.h"
#include "show/plot_text.h"

/* Pixels of the viewBox; it grows higher where legends need it. */
#define PLOT_WIDTH      860
#define PLOT_HEIGHT     480
#define PLOT_MARGIN     22
#define PLOT_FONT_SIZE  13
#define PLOT_TICK_SIZE  12
#define PLOT_TICK_GAP   10 /* between a tick's label and the data area */
#define PLOT_MAX_DIRECT 12 /* more lines than this have their names in the legend */

/* One series without what cannot be drawn. */
struct plot_line {
    struct text name;
    struct plot_point *points; /* by rising x; NaN for what is left out */
    int n_points;
    int n_mid, n_band, n_predicted; /* points that have one */
    int style;                      /* the series' place among all that were given */
};

struct plot_chart {
    struct file_writer *out;
    struct text title, subtitle, x_label, y_label, mid_label, band_label, predicted_label;
    struct plot_line *lines; /* at least one point each */
    int n_lines;
    struct plot_point *points; /* the lines' own; one allocation */

    double x_lo, x_hi, y_lo, y_hi; /* the data's ends at those of the axes; y includes 0 */
    bool one_x;                    /* all points share x: lines stand side by side */
    bool has_lines, has_bars, has_bands, has_predicted;
    struct plot_ticks x_ticks, y_ticks;

    bool direct; /* names stand at the lines' right ends, not in the legend */
    double width, height;
    double left, right, top, bottom; /* of the data area */
};

/* Whether line i shows spreads as bars, not as a band. */
bool plot_has_bars(const struct plot_chart *c, const struct plot_line *line);

/* Pixels of a point of line i. */
double plot_x(const struct plot_chart *c, int i, double x);
double plot_y(const struct plot_chart *c, double y);
/* Between neighbouring lines that share one x. */
double plot_one_x_spacing(const struct plot_chart *c);

/* Lines of the title and the subtitle; draws them if asked to. Gives the height they take. */
double plot_headings(const struct plot_chart *c, bool draw);
/* The rows of the legend from `top` down; likewise. */
double plot_legend(const struct plot_chart *c, double top, bool draw);
/* The names at the lines' ends; the width that they take right of the data area. */
double plot_direct_width(const struct plot_chart *c);
void plot_direct_labels(const struct plot_chart *c);

void plot_put_style(struct file_writer *out);
/* Opens a group with the colour of a style, a number from 0 up; the marker is for inside. */
void plot_begin_group(struct file_writer *out, int style);
void plot_marker(struct file_writer *out, int style, double x, double y);
/* `attributes` are those of the text element but for its place. */
void plot_text_at(struct file_writer *out, const char *attributes, double x, double y,
                  struct plot_piece p);

/* The whole file. */
void plot_draw(const struct plot_chart *c);

#endif
