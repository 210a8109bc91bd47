/*
 * attend - one run of decode attend, for the files of this command.
 */
#pragma once

#include "cli/job.h"
#include "formats/json_write.h"
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

/* --- attend_page.c: of all pictures
 * -------------------------------------------------------------------------- */

/* Which tokens of the text are nothing but newlines and punctuation, and the heads [layers, heads]
 * of those chosen, with room for `more` maps of each and one: into the run's specification. A layer
 * may have fewer heads than others: spec.n_heads tells. STATUS_NO_MEMORY; attend_close is due in
 * every case. */
enum status attend_begin(struct attend_view *v, int more, struct err *e);
void attend_close(struct attend_view *v);

/* Wants a map of every head, of this many cells a side or, if these are fewer, the tokens. */
struct attend_map *attend_add_maps(struct attend_spec *spec, int cells);

/* The name of a head's role, as "previous" or "offset 5", and its share. */
double attend_put_role(const struct attend_head *h, char *role, size_t size);

/* What is drawn of each head [n_heads]: name, cells, who shares with it, and what is said of it. */
void attend_fill_maps(const struct attend_view *v, const struct attend_map *cells,
                      struct heatmap_map *maps);

void attend_title(const struct attend_view *v, char *title, size_t size);

/* --- of the page ------------------------------------------------------------------------------ */

/* Wants what the page needs of the heads that the run is of: maps, the tokens that may come next,
 * and if they are not too large for a page the paths. STATUS_NO_MEMORY; STATUS_USAGE for more
 * weights than a page has room for. */
enum status attend_place_page(struct attend_view *v, struct err *e);

/* What a page has to know to be live: of the checkpoint, which is borrowed, as are text and
 * `kv_heads` (NULL: the file's). STATUS_BAD_FILE. */
enum status attend_live(const struct checkpoint *k, const char *path, struct text text,
                        const char *kv_heads, struct explore_live *out, struct err *e);

/* Makes what the page shows, and calls `show` with it; its status, or STATUS_NO_MEMORY. */
typedef enum status attend_show_page(const struct explore_page *page, const void *arg,
                                     struct err *e);
enum status attend_make_page(const struct attend_view *v, attend_show_page *show, const void *arg,
                             struct err *e);

/* --- attend_show.c: what is printed, drawn and written ---------------------------------------- */

/* Prints the table: a row for each head, with its figures or, with --query, the keys that it looks
 * at. STATUS_NO_MEMORY. */
enum status attend_print(const struct attend_view *v, struct err *e);

/* Writes the file of --json: an object with the layers, heads and tokens that the axes of --npy
 * stand for, and the figures. */
enum status attend_write_json(const struct attend_view *v, struct err *e);

/* Writes the file of --svg, small maps of all heads or a large one of a single head. */
enum status attend_write_picture(const struct attend_view *v, struct err *e);

/* Draws the map of --show on standard output. */
void attend_draw(const struct attend_view *v);

/* --- attend_trace.c: one token through the attention of a head, step by step ------------------ */

/* Puts the steps into a JSON object, with all numbers; or, if `json` is NULL, prints them for
 * people, with as many numbers of a row as fit. */
void attend_put_trace(const struct attend_view *v, struct json *json);
