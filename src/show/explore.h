/*
 * explore - a page to explore maps over a text.
 */
#pragma once

#include "show/heatmap.h"

/* The most weights that a page has room for, of all maps together. In the file a weight is a
 * float32 in base64: four thirds of four bytes. */
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

/* The most numbers of K/V heads that a page offers. */
#define EXPLORE_VARIANTS 32

/* What makes a page live: it runs other texts, by the module and the checkpoint in it. */
struct explore_live {
    const char *name;       /* of the checkpoint's file */
    struct text checkpoint; /* its bytes; of a page that is in a file */
    struct text text;       /* that is shown */
    int n_made;             /* tokens of it that the model has made */
    const char *kv_heads;   /* its K/V heads, as --kv-heads names them; "": the file's */
    int variants[EXPLORE_VARIANTS], n_variants; /* the file's, and others to choose */
    int n_ctx;                                  /* tokens that there is room for */
};

/* The most bytes of a checkpoint in a page, and whether the program has the module to run it. */
#define EXPLORE_MOST_LIVE ((uint64_t)64 << 20)
bool explore_can_live(void);

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
    const char *why; /* why there are no paths, and the beginning of a command that shows one */
    const struct explore_live *live; /* NULL: what is shown stays */
};

/* Puts all of a page's data but the floats, as a JSON object. */
void explore_put_view(const struct explore_page *page, struct output *out);
/* Puts the floats, little-endian: the triangle of each map, row by row, then the numbers of each
 * layer in the order of struct explore_layer, without `bias`. */
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
 * explore.html, explore.css, explore.js and explore_worker.js. Where explore.html has @NAME@,
 * put_place of explore.c puts what it knows by that name. The hashes, "sha256-...", are of the
 * style and the script that the page's content security policy allows.
 */
extern const char explore_html[], explore_css[], explore_js[], explore_worker_js[];
extern const char explore_css_hash[], explore_js_hash[];
/* The engine for WebAssembly, gzip in base64, which `make wasm` makes; "": it was not made. */
extern const char explore_module[];
