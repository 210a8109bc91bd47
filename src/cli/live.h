/*
 * live - what a page of attend --html --live runs: the checkpoint that is in it, in WebAssembly.
 * These functions are what the module exports, with the C library's malloc;
 * src/show/explore_worker.js calls them. All is one thread's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The first member of struct live, for the worker to read: where there is an error, that alone. */
struct live_answer {
    const char *error; /* a sentence; NULL: none */
    const char *view;  /* see explore_put_view */
    size_t view_len;
    const char *numbers; /* see explore_put_numbers */
    size_t numbers_len;
};

/* Opens a checkpoint in malloc'd memory, which is the result's from then on; the name is borrowed.
 * NULL: there is no memory for the result. The answer has no view. */
struct live;
struct live *live_open(unsigned char *checkpoint, size_t len, const char *name);
void live_free(struct live *l); /* NULL is legal */

/*
 * Answers with what `decode attend` shows of a text and the n tokens that `decode generate` makes
 * behind it at this temperature and seed, or as many as the context has room for. The K/V heads are
 * as --kv-heads names them; "": the file's. Valid until the next call.
 */
void live_show(struct live *l, const char *text, size_t len, int n, double temperature,
               uint64_t seed, const char *kv_heads);
