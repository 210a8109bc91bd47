/*
 * explore - a page to explore maps over a text: one HTML file with its style, its script, and what
 * the script shows.
 */
#pragma once

#include "base/output.h"
#include "base/status.h"
#include "base/text.h"

/* What a page shows. Texts may hold any bytes. */
struct explore_page {
    const char *title;
    void (*put_view)(const void *arg, struct output *out); /* puts JSON, which explore.js reads */
    void (*put_numbers)(const void *arg, struct output *out); /* puts the floats beside it */
    const void *arg;
    struct text checkpoint; /* of a live page, which runs other texts by the module and this;
                               without data: what is shown stays */
};

/* The most bytes of a checkpoint in a page, and the engine for WebAssembly that runs it, gzip in
 * base64, which `make wasm` makes; "": it was not made. */
#define EXPLORE_MOST_LIVE ((uint64_t)64 << 20)
extern const char explore_module[];

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
