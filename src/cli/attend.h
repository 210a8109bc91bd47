/*
 * attend - one run of decode attend, for the files of this command.
 */
#pragma once

#include "cli/common.h"
#include "cli/job.h"
#include "measure/attend.h"
#include "show/explore.h"

/* Columns of a token's text on a terminal, and cells of a drawing, however wide that is. */
#define TERMINAL_LABEL 12
#define MOST_SHOWN     512
/* Keys of a query. */
#define TOP_KEYS 4
/* Columns of a token beside a large map, and in a page. */
#define LARGE_LABEL 16

/* The values of the options of decode attend. */
struct attend_options {
    struct common_options common;
    const char *layers, *heads;
    const char *query;
    const char *npy, *json, *svg, *html, *show, *trace_head;
    bool live;
};

/* One run of decode attend: what was asked for, and what was found. */
struct attend_view {
    const struct attend_options *options;
    struct job *job;
    const struct config *config;
    const struct tokenizer *tokenizer; /* NULL: tokens are named by their ids */
    const char *path;                  /* of the checkpoint */

    char variant[16];
    struct choice layers, heads; /* of each chosen layer the same heads */
    struct attend_spec spec;     /* its heads and, behind them, its maps are malloc'd */
    /* [n_heads] the maps of --svg; [n_heads] all weights, for --npy and --html; the map of --show.
     * NULL: not asked for. */
    struct attend_map *pictures, *arrays, *shown;
    int room; /* columns of the terminal for the cells of a line */
    struct attend_found found;
    struct attend_trace trace;
    struct attend_paths paths; /* of --html, where the page has room for them */
    struct explore_live live;  /* of --live */
};

/* The name of a token in at most so many columns: its text, or without a tokenizer its id. */
static inline struct text_label attend_label_of(const struct attend_view *v, int32_t token,
                                                size_t columns, bool printable)
{
    char id[24];
    chars_printf(id, "#%d", token);
    return text_label(v->tokenizer ? tokenizer_bytes(v->tokenizer, token) : text_of(id), columns,
                      printable);
}

/* The name of the token at a position of the text. */
static inline struct text_label attend_label(const struct attend_view *v, int position,
                                             size_t columns, bool printable)
{
    return attend_label_of(v, v->spec.tokens[position], columns, printable);
}
