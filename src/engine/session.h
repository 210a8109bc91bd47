/*
 * session - one sequence being decoded: a model, its KV cache, scratch memory and a pool.
 *
 * All memory is taken at creation; feeding tokens allocates nothing. Feeding n tokens at once
 * (prefill) and one by one (step) gives the same bits, as does any number of threads. Sessions
 * may share a model; a session belongs to one caller at a time.
 */
#ifndef DECODE_ENGINE_SESSION_H
#define DECODE_ENGINE_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "model/model.h"

struct session_params {
    int n_ctx;                     /* positions to preallocate; 0: the model's context */
    enum storage kv_storage;       /* of the cache: F32, F16 or Q8_0 */
    int block;                     /* tokens that prefill takes at once; 0: the default */
    const struct kernels *kernels; /* NULL: the fastest */
};

/* What a session will take, before it is taken. */
struct session_memory {
    size_t kv_bytes;
    size_t scratch_bytes;
};

struct session;

/* STATUS_USAGE when n_ctx exceeds the model's context, STATUS_NO_MEMORY when it does not fit. */
enum status session_plan(const struct model *m, const struct session_params *p, int n_threads,
                         struct session_memory *out, struct err *e);

/* `pool` (NULL: one thread) is borrowed, as is the model; both must outlive the session. */
enum status session_create(const struct model *m, const struct session_params *p, struct pool *pool,
                           struct session **out, struct err *e);
void session_free(struct session *s); /* NULL is legal */

/* Lets another pool (NULL: one thread) do the work from the next feed on; it may have no more
 * threads than the one at creation. No result changes. */
void session_set_pool(struct session *s, struct pool *pool);

int session_len(const struct session *s);   /* positions in the cache */
int session_cap(const struct session *s);   /* positions there is room for */
int session_block(const struct session *s); /* tokens taken at once */

/*
 * Appends n >= 1 tokens. `all` (may be NULL) receives the logits after each of them
 * [n, n_vocab]; session_logits then gives those after the last. STATUS_USAGE, with nothing
 * changed, when there is no room or an id is not in the vocabulary.
 */
enum status session_feed(struct session *s, const int32_t *tokens, int n, float *all,
                         struct err *e);

/* [n_vocab], valid until the next feed. */
const float *session_logits(const struct session *s);

/* Appends positions with synthetic keys and values until there are n (session_len <= n <=
 * session_cap), a function of the seed alone: to measure at a depth without the cost of getting
 * there. The logits stay what they were. */
void session_fill(struct session *s, int n, uint64_t seed);

/*
 * One layer on its own, and what goes on in it: for tools that take a model apart. `in` holds the
 * residual stream of n tokens [n, d_model] at the positions from 0 on. The others are [n, d_model]
 * and may be NULL; `out` may be `in`, and without it the layer ends after attention. The session
 * holds no positions before and after.
 */
struct session_layer {
    int layer;
    int n; /* 1 <= n <= session_cap, asserted */
    const float *in;
    float *normed; /* what Q, K and V are products of */
    float *heads;  /* the heads' results, which the output matrix takes */
    float *middle; /* the residual stream after attention */
    float *out;    /* and after the layer */
};
void session_run_layer(struct session *s, const struct session_layer *l);

/* Forgets the positions from len on (0 <= len <= session_len). */
void session_rewind(struct session *s, int len);

#endif
