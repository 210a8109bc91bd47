/*
 * heatmap - maps of numbers from 0 up, drawn as shades: as one standalone SVG file (see
 * show/canvas.h), and on terminals. A number is at level 0, which is left blank, or at one of nine.
 */
#pragma once

#include "base/output.h"
#include "base/status.h"
#include "show/paragraph.h"

#define HEATMAP_LEVELS 9

/* --- levels --------------------------------------------------------------------------------- */

struct heatmap_scale {
    bool log;
    double top;                  /* where the last level is, above 0; else all is level 0 */
    double from[HEATMAP_LEVELS]; /* the least number of each level from 1 on */
};

/* Returns a scale on which level k has the numbers nearest to k / 9 of `top`, or, if `log`, nearest
 * to top / 10^((9 - k) / 3), so that three levels are a factor of ten. */
struct heatmap_scale heatmap_scale(double top, bool log);

/* Writes the levels of n numbers, 0 to HEATMAP_LEVELS. The level of a NaN is 0. */
void heatmap_levels(const struct heatmap_scale *s, const float *x, int n, unsigned char *levels);

/* --- pictures ------------------------------------------------------------------------------- */

/* The most cells a side: of a map among several, and of a single map. */
#define HEATMAP_SMALL 64
#define HEATMAP_LARGE 384

struct heatmap_map {
    const float *cells; /* [map_rows, map_columns] */
    char name[32];      /* above it; "": none */
    char note[256];     /* a reader's pointer brings it up; "": none */
    int group;          /* neighbours in a row with the same number share a frame; -1: no frame */
};

/* Small maps side by side in rows, or a single large one with its rows and columns named. */
struct heatmap_picture {
    const char *title, *subtitle;
    const char *what; /* what the legend calls the numbers */
    struct heatmap_scale scale;
    const struct heatmap_map *maps; /* [n_rows, n_columns] */
    int n_rows, n_columns;
    int map_rows, map_columns;             /* of all maps, at most HEATMAP_LARGE */
    bool triangle;                         /* row i of a map ends with column i */
    const struct text_label *row_names;    /* [n_rows]; of a large map [map_rows] */
    const struct text_label *column_names; /* of a large map [map_columns]; NULL: small ones */
};

/* Replaces the file at `path` atomically. The failures of file_writer. */
enum status heatmap_write(const struct heatmap_picture *p, const char *path, struct err *e);

/* --- on terminals --------------------------------------------------------------------------- */

/* Levels are the characters " .:-=+*#%@", or colours of a palette of 256. */
enum heatmap_ink { HEATMAP_PLAIN, HEATMAP_COLOURS };

/* Puts the levels of n cells side by side, each `width` columns wide. */
void heatmap_put_cells(struct output *out, enum heatmap_ink ink, const unsigned char *row, int n,
                       int width);

/* Puts a line like "weight 0  .:-=+*#%@ 1". */
void heatmap_put_legend(struct output *out, enum heatmap_ink ink, const struct heatmap_scale *s,
                        const char *what);
