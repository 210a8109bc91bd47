/*
 * attend - what attention's heads look at in a text.
 *
 * a[i][j] is the weight with which the query of token i takes the key of token j <= i. The weights
 * are watched as the text goes through a session (see engine/session.h), added up and forgotten:
 * what is held does not grow with the square of the text, but for maps that are asked for whole.
 * Every figure has the same bits for any number of threads, any block and any instruction set.
 */
#ifndef DECODE_MEASURE_ATTEND_H
#define DECODE_MEASURE_ATTEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "compute/pool.h"
#include "engine/session.h"
#include "model/model.h"

/* A head, and what it looks at on the whole. NaN: there is no such query. */
struct attend_head {
    int layer, head;  /* which; given */
    double entropy;   /* mean of -sum_j a log a, in nats */
    double distance;  /* mean of sum_j a (i - j), in tokens */
    double first;     /* mean of a[i][0] over i >= 1 */
    double previous;  /* mean of a[i][i - 1] over i >= 1 */
    double self;      /* mean of a[i][i] */
    double induction; /* mean over the i whose token was there before, of the sum of a[i][p + 1]
                         over all earlier places p of it */
    /* The largest weight of 0 < j < i, of equal ones the first by i, then j; -1 for none. */
    int64_t query, key;
    double strongest;
};

/*
 * A map of one head that is wanted. With as many cells as tokens it has the weights themselves;
 * with fewer, cell [r, c] is the largest weight of queries and keys that fall into it: token t into
 * t * cells / n_tokens. Without the first, key 0 counts nowhere.
 */
struct attend_map {
    int layer, head;
    int cells; /* a side, 1 to n_tokens */
    bool without_first;
    float *cell; /* found: [cells, cells], valid until attend_free */
};

/* The first of n tokens in a cell, or past the last cell n. */
static inline int attend_cell_begin(int cell, int cells, int n)
{
    return (int)(((int64_t)cell * n + cells - 1) / cells);
}

/* Everything is borrowed. */
struct attend_spec {
    const struct model *model;
    struct session_params params; /* of one sequence; n_ctx and watch are not read */
    struct pool *pool;            /* NULL: one thread */
    const int32_t *tokens;
    int n_tokens;              /* at least 1 */
    struct attend_head *heads; /* [n_heads] layer and head given, the rest filled in */
    int n_heads;
    struct attend_map *maps; /* [n_maps] likewise */
    int n_maps;
    int query; /* a token, whose weights of all `heads` are wanted; -1: none */
    /* Called between blocks from the calling thread; `arg` goes to both. May be NULL. */
    bool (*stop)(void *arg);                                  /* true: give up */
    void (*progress)(void *arg, uint64_t done, uint64_t all); /* tokens so far */
    void *arg;
};

struct attend_found {
    float *query; /* [n_heads, spec->query + 1] of each head; NULL: none is wanted */
    struct arena arena;
};

/* What a run will take, beside the model. STATUS_USAGE for a text that is longer than the context.
 */
enum status attend_plan(const struct attend_spec *spec, uint64_t *bytes, struct err *e);

/* Runs the text. attend_free is due on success. Besides the failures of attend_plan and of
 * session_step: STATUS_NO_MEMORY; STATUS_FAILED, naming layer, head and token, for weights that are
 * not finite; STATUS_INTERRUPTED if `stop` ended it. */
enum status attend_run(const struct attend_spec *spec, struct attend_found *out, struct err *e);
void attend_free(struct attend_found *a); /* legal on a zeroed struct and twice */

#endif
