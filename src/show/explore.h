/*
 * explore - a page to explore maps over a text.
 */
#pragma once

#include "show/heatmap.h"

/* The most weights, of all maps together, that a page has room for. Each is a float32, which takes
 * four thirds of four bytes in the file. */
#define EXPLORE_MOST ((uint64_t)24 << 20)

/* Returns how many weights so many maps over so many tokens have; UINT64_MAX if they are more. */
uint64_t explore_weights(uint64_t n_maps, uint64_t n_tokens);

/* A token that may come next. */
struct explore_next {
    struct text_label token;
    double probability;
};

/* A layer's numbers, as measure/paths.h has them. */
struct explore_layer {
    int layer, n_heads, n_shared; /* n_shared: heads of keys and values */
    int window;                   /* keys that a query sees, its own included; 0: all before */
    const float *x;               /* [n, d] */
    const float *q;               /* [n, n_heads, key] */
    const float *keys;            /* [n, n_shared, key] */
    const float *values;          /* [n, n_shared, value] */
    const float *additive;        /* [n_heads, key] w of scores w.tanh(q + k); NULL: they are q.k */
    const float *written;         /* [n, n_heads, 1 + 2 n_largest] */
    const float *direct;          /* [n, n_heads, n_next] added to logits; NULL: none are known */
    const float *bias;            /* [n_heads, 3] centre, linear, square: each score
                                     gets linear x + square x^2, x = distance - centre; NULL: 0 */
};

/* The numbers with which a page follows a token's path through every head of its maps. */
struct explore_paths {
    int d, key, value, n_largest;
    double scale;                       /* of scores */
    const char *x, *rotated, *scaled;   /* names of x, of a rotation and of a scaled score */
    const struct explore_layer *layers; /* [n_layers] */
    int n_layers;
};

/*
 * What a page shows. The maps are triangles of weights from 0 to 1 over n tokens; column_names are
 * the tokens' names, row_names those of rows of maps; `what` and `scale` are not read. There are at
 * most EXPLORE_MOST weights (asserted). Texts may hold any bytes.
 */
struct explore_page {
    const struct heatmap_picture *maps;
    const struct explore_next *next; /* [n tokens, n_next] */
    int n_next;                      /* 0: nothing is known of what comes next */
    const struct explore_paths *paths;
    const char *why; /* without paths: why, and a command that shows one but for head and token */
};

/* Put a page's data: all but the floats as a JSON object; and the floats, little-endian: the
 * triangle of each map, row by row, then each layer's numbers in the order of struct explore_layer,
 * but for `bias`. */
void explore_put_view(const struct explore_page *page, struct output *out);
void explore_put_numbers(const struct explore_page *page, struct output *out);

/*
 * Replaces the file at `path` by one HTML page. It holds its style and its script and refers to
 * nothing outside, so that it works from file://, without a network. It follows the reader's light
 * or dark scheme; all of it can be reached with the keyboard, and says to screen readers what it
 * shows. The failures of file_writer.
 */
enum status explore_write(const struct explore_page *page, const char *path, struct err *e);

/*
 * Private: what is the same in all pages. The Makefile makes these strings of the files
 * explore.html, explore.css and explore.js. Where explore.html has @NAME@, put_place of explore.c
 * puts what it knows by that name. The hashes, "sha256-...", are of the style and the script that
 * the page's content security policy allows.
 */
extern const char explore_html[], explore_css[], explore_js[];
extern const char explore_css_hash[], explore_js_hash[];
