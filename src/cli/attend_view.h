/*
 * attend_view - the heads that `decode attend` is asked for, and what they look at.
 */
#ifndef DECODE_CLI_ATTEND_VIEW_H
#define DECODE_CLI_ATTEND_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/head_choice.h"
#include "cli/job.h"
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

/* Makes the view of r's model and runs the text, with its progress shown. attend_view_free is due
 * in every case. STATUS_USAGE for heads that are not there; STATUS_NO_MEMORY, naming what would
 * lower it, also for what is more than is available; the failures of attend_run. */
enum status attend_view_run(struct attend_view *v, struct job *j, struct err *e);
void attend_view_free(struct attend_view *v);

/* The K/V head that a head uses; and whether others use it, too. */
int attend_kv_head(const struct attend_view *v, const struct attend_head *h);
bool attend_is_shared(const struct attend_view *v, int layer);

/* A token's text to be shown in at most so many columns, cut with an ellipsis: without its leading
 * space, spaces alone as U+2423. As printable.h has it, or the bytes as they are. */
struct attend_label {
    char text[64];
};
struct attend_label attend_label(const struct attend_view *v, int position, int columns,
                                 bool printable);

/* ".61", "1.0", "–" for NaN. */
struct attend_weight {
    char text[8];
};
struct attend_weight attend_weight(double weight);

#endif
