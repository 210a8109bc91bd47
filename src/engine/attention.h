/*
 * attention - causal self-attention of a block of tokens over one layer's cache.
 *
 * MHA, GQA and MQA are one path: query head h uses K/V head h / group, and the group's query
 * heads go through the cache together, so each K and V row is read once for all of them. The
 * context is cut into chunks of KERNEL_CHUNK positions whose results are merged in order; the
 * cut does not depend on the number of threads, nor does any bit.
 */
#ifndef DECODE_ENGINE_ATTENTION_H
#define DECODE_ENGINE_ATTENTION_H

#include <stddef.h>

#include "compute/kernels.h"
#include "model/config.h"
#include "model/kv_cache.h"

/* One layer, n_tokens tokens at positions first .. first + n_tokens - 1. */
struct attention {
    const struct kernels *kernels;
    struct kv_cache *kv;
    int layer;
    int n_heads;
    int first;
    int n_tokens;
    const float *qkv; /* [n_tokens, qkv_stride], rows Q then K then V */
    size_t qkv_stride;
    float *parts; /* [n_tokens, n_heads, max_chunks, head_dim + 2]: out, max, sum */
    int max_chunks;
};

/* Floats of `parts` for n_tokens tokens in a cache of `cap` positions. */
size_t attention_parts(const struct config *c, int n_tokens, int cap);
int attention_chunks(int n_positions);

/* Floats that one thread of attention_run needs as scratch. */
size_t attention_scratch(const struct config *c);

/*
 * Stores this thread's share of the new keys and values. For a block of more than one token it
 * must be complete on all threads (a barrier) before attention_run; one token's are stored by
 * attention_run itself.
 */
void attention_store(const struct attention *a, int thread, int n_threads);

/* This thread's share of the work items (K/V head, chunk, token); fills `parts`. */
void attention_run(const struct attention *a, float *scratch, int thread, int n_threads);

/* Joins the chunks of one token's heads into out [n_heads * head_dim]; after a barrier. */
void attention_merge(const struct attention *a, int token, float *out);

#endif
