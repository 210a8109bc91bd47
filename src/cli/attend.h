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

/* One run of decode attend over the job's tokens: what was asked for, and what was found. */
struct attend_view {
    const struct attend_options *options; /* NULL in a page that is live */
    struct job *job;
    const struct config *config; /* of the job's model */
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
    bool live;                 /* the page of --html runs other texts */
    int n_made;                /* tokens at the text's end that the model has made */
};

/* Returns the name of a token in at most so many columns: its text, or without a tokenizer its id.
 */
static inline struct text_label attend_label_of(const struct attend_view *v, int32_t token,
                                                size_t columns, bool printable)
{
    const struct text bytes = job_token(v->job, token);
    char id[24];
    chars_printf(id, "#%d", token);
    return text_label(bytes.data ? bytes : text_of(id), columns, printable);
}

/* Returns the name of the token at a position of the text. */
static inline struct text_label attend_label(const struct attend_view *v, int position,
                                             size_t columns, bool printable)
{
    return attend_label_of(v, v->spec.tokens[position], columns, printable);
}

/* --- attend_page.c: of all pictures ----------------------------------------------------------- */

/* Begins a run over the job's tokens, with its model. */
void attend_open(struct attend_view *v, struct job *j);
void attend_close(struct attend_view *v);

/* Lists in the specification the heads of the layers that --layer and --head name (NULL: all), with
 * room for two maps of each and one more, and which tokens are nothing but newlines and
 * punctuation. STATUS_NO_MEMORY; the failures of choice_of. */
enum status attend_list_heads(struct attend_view *v, const char *layers, const char *heads,
                              struct err *e);

/* Wants a map of every head, of this many cells a side or, if these are fewer, the tokens. */
struct attend_map *attend_add_maps(struct attend_spec *spec, int cells);

/* Fills in what a picture says of head i of the specification: name, who shares with it, and a
 * note.
 */
void attend_describe(const struct attend_view *v, int i, struct heatmap_map *map);

void attend_title(const struct attend_view *v, char *title, size_t size);

/* --- attend_page.c: of the page --------------------------------------------------------------- */

/* Wants what the page needs of the heads that the run is of: maps, the tokens that may come next,
 * and if they are not too large for a page the paths. STATUS_NO_MEMORY; STATUS_USAGE for more
 * weights than a page has room for. */
enum status attend_place_page(struct attend_view *v, struct err *e);

/* Puts all of a page's data but the floats, as a JSON object for explore.js. */
void attend_put_view(const void *view, struct output *out);

/* Puts the floats, little-endian: the triangle of each head's weights, row by row; then of each
 * layer x, queries, keys, values, the vectors of additive scores, what the heads write, and what
 * they add to logits by the direct path. */
void attend_put_numbers(const void *view, struct output *out);

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

/* --- live.c: what the page of --live runs, in WebAssembly --------------------------------------
 *
 * The module exports these functions with the C library's malloc, and src/show/explore_worker.js
 * calls them. All is one thread's. */

/* The first member of struct live, which the worker reads. With an error it has nothing else. */
struct live_answer {
    const char *error; /* a sentence; NULL: none */
    const char *view;  /* see attend_put_view */
    size_t view_len;
    const char *numbers; /* see attend_put_numbers */
    size_t numbers_len;
};

struct live;

/* Opens a checkpoint in memory that becomes the result's, which file_map_close releases: in
 * WebAssembly malloc has given it, elsewhere it is a mapped file. The name is borrowed. NULL: there
 * is no memory for the result. The answer has no view. */
struct live *live_open(const unsigned char *checkpoint, size_t len, const char *name);
void live_free(struct live *l); /* NULL is legal */

/* Answers with what `decode attend` shows of a text and the n tokens that `decode generate` makes
 * behind it at this temperature and seed, or as many as the context has room for. The K/V heads are
 * as --kv-heads names them; "": the file's. Valid until the next call. */
void live_show(struct live *l, const char *text, size_t len, int n, double temperature,
               uint64_t seed, const char *kv_heads);
