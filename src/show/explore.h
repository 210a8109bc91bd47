/*
 * explore - a page to explore maps over a text.
 */
#pragma once

#include "show/heatmap.h"

/* Weights that a page has room for, of all maps: a byte each, four thirds of one in the file. */
#define EXPLORE_MOST ((uint64_t)24 << 20)

/* The weights of so many maps over so many tokens; the largest u64 if they are more. */
uint64_t explore_weights(uint64_t n_maps, uint64_t n_tokens);

/*
 * Replaces the file at `path` by one HTML page: pick maps, point at a token. Maps are triangles
 * over n tokens of any number, which column_names name, of weights from 0 to 1, each in the page as
 * the nearest square of a 255th; row_names are of rows of maps. The weights are at most
 * EXPLORE_MOST (asserted); `what` and `scale` are not read.
 *
 * The page holds its style and its script, refers to nothing outside and asks for nothing: it works
 * from file://, without a network. It follows the reader's light or dark scheme; all of it can be
 * reached with the keyboard, and says to screen readers what it shows. Texts may hold any bytes.
 */
enum status explore_write(const struct heatmap_picture *p, const char *path, struct err *e);
