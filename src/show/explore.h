/*
 * explore - maps of weights over a text as one HTML page to explore: pick a map, point at a token.
 *
 * The page holds its style and its script, refers to nothing outside and asks for nothing: it works
 * from file://, without a network. It follows the reader's light or dark scheme; all of it can be
 * reached with the keyboard, and says to screen readers what it shows. Texts may hold any bytes, as
 * in show/canvas.h.
 */
#ifndef DECODE_SHOW_EXPLORE_H
#define DECODE_SHOW_EXPLORE_H

#include "base/status.h"
#include "show/paragraph.h"

/* Weights that a page has room for, of all maps: a byte each, four thirds of one in the file. */
#define EXPLORE_MOST ((uint64_t)24 << 20)

struct explore_map {
    /* [n, n] from 0 to 1, of which row i ends with column i. In the page each is the nearest square
     * of a 255th. */
    const float *weights;
    char name[32];  /* "0.3" */
    char note[160]; /* what is said of it */
    int group;      /* neighbours in a row that have the same share a frame; -1: no frame */
};

struct explore_page {
    const char *title, *subtitle;
    const struct text_label *tokens; /* [n_tokens] */
    int n_tokens;
    const struct explore_map *maps; /* [n_rows, n_columns] */
    int n_rows, n_columns;
    const struct text_label *row_names; /* [n_rows] */
};

/* The weights of so many maps over so many tokens; the largest u64 if they are more. */
uint64_t explore_weights(uint64_t n_maps, uint64_t n_tokens);

/* Replaces the file at `path` atomically; the weights are at most EXPLORE_MOST (asserted). The
 * failures of file_writer. */
enum status explore_write(const struct explore_page *p, const char *path, struct err *e);

#endif
