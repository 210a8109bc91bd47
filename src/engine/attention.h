/*
 * attention - one layer's attention of a batch of rows to the cache, for any number of K/V heads.
 *
 * Query head h uses K/V head h / (n_heads / n_kv_heads): one K/V head is MQA, n_heads of them are
 * MHA. With a latent cache all heads use the one vector of a position as key and as value. The
 * query heads of a group are one work item, so each K and V row is read once for all of them. A
 * sequence's positions are cut into chunks of KERNEL_CHUNK whose results are merged in order; the
 * cut depends on nothing but the position, so no bit depends on the threads or on what else is in
 * the batch.
 */
#ifndef DECODE_ENGINE_ATTENTION_H
#define DECODE_ENGINE_ATTENTION_H

#include <stddef.h>

#include "compute/kernels.h"
#include "engine/batch.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/positions.h"

struct attention {
    const struct kernels *kernels;
    const struct batch *batch;
    struct kv_cache *kv;
    int layer;
    int n_kv_heads;      /* the layer's, see model/config.h */
    int n_groups, group; /* groups of query heads that are one work item, and heads of each */
    int key_dim;         /* likewise: of a query and a key, */
    int average_dim;     /* of a head's average, */
    size_t qkv_dim;      /* and of a row of qkv */
    bool latent;         /* keys are values, too, of one K/V head, which all groups share */
    bool stores_first;   /* see attention_store */
    float scale;         /* of scores: 1 / sqrt(head_dim) */
    const struct positions *positions;
    const struct attend_bias *bias; /* [n_heads] of scores; NULL: none */
    const float *qkv;               /* [n_rows, qkv_dim], a row's Q, then K, then V */
    const float *queries;           /* [n_rows, n_heads * key_dim], */
    size_t queries_dim;             /* so far apart: of qkv where they are not mapped */
    float *parts;   /* [n_rows, n_heads, max_chunks, average_dim + 2]: out, max, sum */
    int max_chunks; /* kv_cache_chunks of the cache's positions */
    float *weights; /* [n_rows, n_heads, cap] of the cache: see engine/heads.h; NULL: not wanted */
};

/* Floats of `parts` for n_rows rows in a cache of `cap` positions. */
uint64_t attention_parts(const struct config *c, int n_rows, int cap);

/* Floats that one thread of attention_store or attention_run needs as scratch. */
uint64_t attention_scratch(const struct config *c);

/*
 * Stores this thread's share of the new keys and values, if stores_first: then it must be
 * complete on all threads (a barrier) before attention_run, which otherwise stores them itself.
 */
void attention_store(const struct attention *a, float *scratch, int thread, int n_threads);

/* This thread's share of the work items (group, chunk, row), by what they cost; fills `parts`.
 * Where threads have whole groups it has the work of groups [thread * n, (thread + 1) * n). */
void attention_run(const struct attention *a, float *scratch, int thread, int n_threads);

/* Makes one row's weights of what attention_run left of them; after a barrier, once. */
void attention_finish_weights(const struct attention *a, int row);

/* Joins the chunks of one head of a row into out [average_dim]; after a barrier. */
void attention_merge(const struct attention *a, int row, int head, float *out);

#endif
