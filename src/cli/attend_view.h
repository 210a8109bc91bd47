/*
 * attend_view - the heads that `decode attend` is asked for: of one model, or of a checkpoint and
 * its conversion side by side.
 */
#ifndef DECODE_CLI_ATTEND_VIEW_H
#define DECODE_CLI_ATTEND_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/head_choice.h"
#include "cli/runtime.h"
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

/* One model. Its heads stand in rows, one for each chosen layer, of n_columns. */
struct attend_side {
    const struct model *model;
    char variant[16];
    struct attend_head *heads;   /* [n_rows * n_columns] */
    struct attend_map *maps;     /* [n_maps], those below */
    struct attend_map *pictures; /* [n_rows * n_columns]; NULL: none */
    struct attend_map *shown;    /* one; NULL: none */
    struct attend_map *arrays;   /* [n_rows * n_columns]; NULL: none */
    int n_maps;
    struct attend_found found;
};

#define ATTEND_MAX_SIDES 2

struct attend_view {
    /* Borrowed. */
    const struct common_options *common;
    const char *subject;               /* the checkpoint's name */
    const struct tokenizer *tokenizer; /* NULL: none */
    const int32_t *tokens;
    int n_tokens;
    struct attend_wanted wanted;

    struct attend_side sides[ATTEND_MAX_SIDES];
    int n_sides;
    struct choice layers, heads;
    int n_rows, n_columns;
    int *names; /* [n_rows * n_columns] the heads' numbers in the checkpoint, for two sides; those
                   of one K/V head of the conversion are neighbours */
};

/* Makes the view of r's model, and of the other if `r` has one beside, and runs the text, with its
 * progress shown. attend_view_free is due in every case. STATUS_USAGE for heads that are not there;
 * STATUS_NO_MEMORY, naming what would lower it, also for what is more than is available; the
 * failures of attend_run. */
enum status attend_view_run(struct attend_view *v, const struct runtime *r, struct err *e);
void attend_view_free(struct attend_view *v);

/* The K/V head that a head of a side uses; and whether others use it, too. */
int attend_kv_head(const struct attend_side *side, const struct attend_head *h);
bool attend_is_shared(const struct attend_side *side, int layer);

/* A token's text to be shown in at most so many columns, cut with an ellipsis: without its leading
 * space, spaces alone as U+2423. As printable.h has it, or the bytes as they are. */
struct attend_label {
    char text[64];
};
struct attend_label attend_label(const struct attend_view *v, int position, int columns,
                                 bool printable);

/* ".61", "1.0" */
struct attend_weight {
    char text[8];
};
struct attend_weight attend_weight(double weight);

#endif
