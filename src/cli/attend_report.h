/*
 * attend_report - what heads look at, as tables, files and drawings of the command attend.
 */
#ifndef DECODE_CLI_ATTEND_REPORT_H
#define DECODE_CLI_ATTEND_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/job.h"
#include "cli/numbers.h"
#include "measure/attend.h"
#include "show/heatmap.h"
#include "text/tokenizer.h"

struct attend_options {
    struct common_options common;
    const char *layers, *heads;
    struct option_u64 query;
    int top;
    const char *npy, *json, *svg, *show;
    bool log, without_first;
};

/* The heads stand in rows, one for each chosen layer, of the same heads. */
struct attend_view {
    /* Borrowed. */
    const struct attend_options *options;
    const char *subject;               /* the checkpoint's name */
    const struct tokenizer *tokenizer; /* NULL: none */
    const struct config *config;

    char variant[16];
    struct choice layers, heads;
    struct attend_spec spec; /* of layers.n * heads.n heads; they and the maps are malloc'd */
    /* Of each head its picture, of --svg, and its weights, of --npy; and one map to be shown. NULL:
     * not asked for. */
    struct attend_map *pictures, *arrays, *shown;
    struct attend_found found;
};

/* A token's text to be shown in at most so many columns, cut with an ellipsis: without its leading
 * space, spaces alone as U+2423. As printable.h has it, or the bytes as they are. */
struct heatmap_name attend_label(const struct attend_view *v, int position, size_t columns,
                                 bool printable);

/* The table of figures, without its rows, for a command's `tables`. */
int attend_tables(const void *values, struct table *tables);

/* A row a head, the figures, of them those of --columns, or of one query the keys.
 * STATUS_NO_MEMORY.
 */
enum status attend_print(const struct attend_view *v, struct job *j, struct err *e);

/* An object with what the arrays' axes stand for, the tokens with their text, and the figures. The
 * failures of file_writer. */
enum status attend_write_json(const struct attend_view *v, const char *path, struct err *e);

/* The weights, float32 [layers, heads, n, n]. The failures of npy_open and npy_commit. */
enum status attend_write_npy(const struct attend_view *v, const char *path, struct err *e);

/* Small maps of all heads, or a large one of a single one. STATUS_NO_MEMORY, or the failures of
 * file_writer. */
enum status attend_write_svg(const struct attend_view *v, const char *path, struct err *e);

/* The cells a side of a drawing of n tokens in a terminal `width` columns wide. */
int attend_shown_cells(int n_tokens, int width);

/* The head that is shown, a line for each row: position, cells up to the diagonal, and there the
 * token, which names its row and its column. */
void attend_draw(const struct attend_view *v, int width, struct output *out);

#endif
