/*
 * attend - what attention's heads look at in a text.
 *
 * a[i][j] is the weight with which the query of token i takes the key of token j <= i. The weights
 * are watched as the text goes through a session, added up and forgotten. Every figure has the same
 * bits for any number of threads, any block and any instruction set.
 */
#pragma once

#include "base/callbacks.h"
#include "engine/sampler.h"
#include "measure/eval.h"
#include "measure/paths.h"

/* A head, and what it looks at on the whole: means over queries i. NaN: there is no such query. */
struct attend_head {
    int layer, head;   /* given */
    double entropy;    /* -sum_j a log a, in nats */
    double distance;   /* sum_j a (i - j), in tokens */
    double first;      /* a[i][0], i >= 1 */
    double previous;   /* a[i][i - 1], i >= 1 */
    double self;       /* a[i][i] */
    double separator;  /* the sum of a[i][j] over all separators j < i, i >= 1 */
    double content;    /* the sum of a[i][j] over the j of no other figure, i >= 1 */
    double max_weight; /* the largest a[i][j] */
    /* The standard deviation of a query's scores before the softmax. A score more than 87 below the
     * largest, whose weight is 0, counts as 87 below. */
    double score_sd;
    /* 1 - sum_j a^2, the trace of softmax's Jacobian diag(a) - a a^T: the share of a gradient that
     * can reach the scores; 0 where one weight is 1. */
    double gradient;
    double induction; /* the sum of a[i][p + 1] over all earlier places p of token i, i that have
                         one */
    /* The distance from 2 to n / 2 with the largest mean weight, the smallest of equal ones; 0, and
     * no at_offset, if n < 4. */
    int offset;
    double at_offset; /* a[i][i - offset], i >= offset */
    /* The largest weight with 0 < j < i: its i, j and value; of equal weights the first by i, then
     * j. -1: there is none. */
    int64_t query, key;
    double strongest;
};

/* Writes what a head mostly does: the name of the largest of first, previous, self, induction,
 * separator and "offset 5", if that is at least ATTEND_LEAST_SHARE; else content. Returns its
 * share. */
#define ATTEND_LEAST_SHARE (1.0 / 3)
#define ATTEND_ROLE_SIZE   32
double attend_role(const struct attend_head *h, char role[ATTEND_ROLE_SIZE]);

/* A map of one head that is wanted. Cell [r, c] is the largest weight of queries that fall into r
 * and keys that fall into c: token t falls into t * cells / n_tokens. */
struct attend_map {
    int layer, head;
    int cells;   /* a side, 1 to n_tokens */
    float *cell; /* found: [cells, cells], valid until attend_free */
};

/* Returns the first of n tokens in a cell; past the last cell n. */
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
    const bool *separators;    /* [n_tokens] tokens that only divide; NULL: none */
    struct attend_head *heads; /* [n_heads] layer and head given, the rest filled in */
    int n_heads;
    struct attend_map *maps; /* [n_maps] layer, head and cells given, the cells filled in */
    int n_maps;
    int query;                  /* the token whose weights are wanted, of all `heads`; -1: none */
    struct attend_trace *trace; /* layer, head and query given, the rest filled in; NULL: none */
    struct attend_paths *paths; /* layers given, the rest filled in; NULL: none */
    int n_next; /* how many likeliest next tokens are wanted after each token; at most n_vocab */
    struct callbacks callbacks; /* between blocks, of tokens */
};

struct attend_found {
    float *query;             /* [n_heads, spec->query + 1] of each head; NULL: none is wanted */
    struct token_score *next; /* [n_tokens, n_next] */
    struct arena arena;
};

/* *bytes: what a run takes beside the model. STATUS_USAGE: a text longer than the context. */
enum status attend_plan(const struct attend_spec *spec, uint64_t *bytes, struct err *e);

/* Runs the text; attend_free is due on success. Fails as attend_plan and session_step do, and with
 * STATUS_NO_MEMORY; STATUS_FAILED, naming layer, head and token, for weights that are not finite;
 * STATUS_INTERRUPTED if `stop` ended it. */
enum status attend_run(const struct attend_spec *spec, struct attend_found *out, struct err *e);
void attend_free(struct attend_found *a); /* legal on a zeroed struct and twice */
