/*
 * heatmap_picture - maps of numbers as one standalone SVG file: many small ones, or a large one
 * with its rows and columns named.
 *
 * The file holds no script and refers to nothing outside; it follows the reader's light or dark
 * scheme; its texts can be selected. The same data give the same bytes, in any locale. Everything
 * is borrowed for the call alone; texts may hold any bytes (as of show/plot.h).
 */
#ifndef DECODE_SHOW_HEATMAP_PICTURE_H
#define DECODE_SHOW_HEATMAP_PICTURE_H

#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"
#include "show/heatmap.h"

/* What all pictures have. */
struct heatmap_caption {
    const char *title, *subtitle;
    const char *what; /* the numbers are, for the legend */
    struct heatmap_scale scale;
};

/* A map [n_rows, n_columns] of numbers. */
struct heatmap_map {
    const float *cells;
    int n_rows, n_columns;
    bool triangle;    /* row i ends with column i: what follows is no part of the map */
    int group;        /* of small ones: neighbours in a row that have the same share a frame; -1: no
                         frame */
    const char *name; /* above it; NULL: none */
    const char *note; /* that a reader's pointer brings up; NULL: none */
};

/* Small ones, side by side in rows. */
struct heatmap_sheet {
    struct heatmap_caption caption;
    const struct heatmap_map *maps; /* [n_rows, n_columns] */
    int n_rows, n_columns;
    const char *const *row_names; /* [n_rows] */
};

/* The most cells a side with which a small map is still small. */
#define HEATMAP_SMALL 64

/* Replaces the file at `path` atomically. STATUS_NO_MEMORY, or the failures of file_writer. */
enum status heatmap_write_sheet(const struct heatmap_sheet *s, const char *path, struct err *e);

/* Large ones of the same rows and columns, one below the other. */
struct heatmap_chart {
    struct heatmap_caption caption;
    const struct heatmap_map *maps; /* [n_maps] */
    int n_maps;
    const struct text *row_names, *column_names; /* of every map's; those there is room for */
};

/* The most cells a side with which a large map is not too large. */
#define HEATMAP_LARGE 384

enum status heatmap_write_chart(const struct heatmap_chart *c, const char *path, struct err *e);

#endif
