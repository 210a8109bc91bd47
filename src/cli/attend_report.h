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
#include "text/tokenizer.h"

/* What is to be found out. */
struct attend_wanted {
    const char *layers, *heads; /* lists; NULL: all */
    const char *show;           /* L.H; NULL: none */
    int query, n_top;           /* keys of this token's query; -1: none */
    bool pictures;              /* a map of every head */
    bool arrays;                /* the weights of every head */
    bool without_first;         /* of the pictures and the one shown */
    int shown_cells;            /* a side, at most, of the one shown */
};

/* The heads stand in rows, one for each chosen layer, of the same n_columns heads. */
struct attend_view {
    /* Borrowed. */
    const char *subject;               /* the checkpoint's name */
    const struct tokenizer *tokenizer; /* NULL: none */
    const int32_t *tokens;
    int n_tokens;
    struct attend_wanted wanted;

    const struct model *model;
    char variant[16];
    struct choice layers, heads;
    int n_rows, n_columns;
    struct attend_head *figures; /* [n_rows * n_columns] */
    struct attend_map *maps;     /* [n_maps], those below */
    int n_maps;
    struct attend_map *pictures; /* [n_rows * n_columns]; NULL: none */
    struct attend_map *shown;    /* one; NULL: none */
    struct attend_map *arrays;   /* [n_rows * n_columns]; NULL: none */
    struct attend_found found;
};

/* A token's text to be shown in at most so many columns, cut with an ellipsis: without its leading
 * space, spaces alone as U+2423. As printable.h has it, or the bytes as they are. */
struct attend_label {
    char text[64];
};
struct attend_label attend_label(const struct attend_view *v, int position, int columns,
                                 bool printable);

/* A row a head, the figures, or of one query the keys.
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
enum status attend_write_svg(const struct attend_view *v, const char *path, bool log,
                             struct err *e);

/* The most cells a side of a drawing of n tokens in a terminal `width` columns wide. */
int attend_shown_cells(int n_tokens, int width);

/* The head that is shown, a line for each row: position, cells up to the diagonal, and there the
 * token, which names its row and its column. */
void attend_draw(const struct attend_view *v, bool log, int width, struct output *out);

#endif
