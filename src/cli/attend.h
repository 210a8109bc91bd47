/*
 * attend - one run of decode attend, and what is shown and written of it. Private to the files of
 * this command.
 */
#pragma once

#include "cli/job.h"
#include "formats/json_write.h"
#include "measure/attend.h"

/* Columns of a token's text on a terminal, and cells of a drawing, however wide that is. */
#define TERMINAL_LABEL 12
#define MOST_SHOWN     512
/* Keys of a query. */
#define MOST_TOP 1000

struct attend_options {
    struct common_options common;
    const char *layers, *heads;
    const char *query;
    int top, weigh;
    const char *npy, *json, *svg, *html, *show, *trace_head;
    bool log, without_first;
};

struct attend_view {
    const struct attend_options *options;
    struct job *job;
    const struct config *config;

    char variant[16];
    struct choice layers, heads; /* of each chosen layer the same heads */
    struct attend_spec spec;     /* its heads and, behind them, its maps are malloc'd */
    /* Of each head its picture, of --svg, and its weights, of --npy and --html; and one map to be
     * shown. NULL: not asked for. */
    struct attend_map *pictures, *arrays, *shown;
    int room; /* columns of the terminal for the cells of a line */
    struct attend_found found;
    struct attend_trace trace;
};

/* The table: a row a head, the figures, or of one query the keys. */
enum status attend_print(const struct attend_view *v, struct err *e);

/* An object with what the arrays' axes stand for, the tokens with their text, and the figures. */
enum status attend_write_json(const struct attend_view *v, struct err *e);

/* --svg: small maps of all heads, or a large one of a single one. Or, as a page to explore, --html:
 * all weights of all heads. */
enum status attend_write_picture(const struct attend_view *v, bool page, struct err *e);

/* The head that is shown. */
void attend_draw(const struct attend_view *v);

/* What names a token in at most so many columns. */
struct text_label attend_label(const struct attend_view *v, int position, size_t columns,
                               bool printable);

/* --- attend_trace.c --------------------------------------------------------------------------- */

/* The steps of --trace: with all numbers as a member of an object or, where that is NULL, for
 * people, with as many of a row as fit. */
void attend_put_trace(const struct attend_view *v, struct json *json);
