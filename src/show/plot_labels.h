/*
 * plot_labels - a chart's headings, its legend, and the names at its lines' ends.
 *
 * Each takes room that the layout must know: it draws them to nowhere first.
 */
#ifndef DECODE_SHOW_PLOT_LABELS_H
#define DECODE_SHOW_PLOT_LABELS_H

#include "show/plot_chart.h"

/* Lines of the title and the subtitle; returns the height they take. */
double plot_headings(const struct plot_chart *c);
/* The rows of the legend from `top` down; likewise. */
double plot_legend(const struct plot_chart *c, double top);

/* The width right of the data area that the names at the lines' ends take; 0: they do not fit. */
double plot_direct_width(const struct plot_chart *c);
void plot_direct_labels(const struct plot_chart *c);

#endif
