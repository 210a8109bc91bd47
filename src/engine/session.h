/*
 * session - sequences being decoded: a model, their KV cache, scratch memory and a pool.
 *
 * All memory is taken at creation; a step allocates nothing. What a sequence's rows give does not
 * depend on how they are cut into steps (prefill or one by one), on the other rows of a step, or on
 * the number of threads: the same bits. Sessions may share a model; a session belongs to one caller
 * at a time.
 */
#ifndef DECODE_ENGINE_SESSION_H
#define DECODE_ENGINE_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "engine/batch.h"
#include "engine/heads.h"
#include "model/model.h"

struct session_params {
    int n_sequences;               /* 0: one */
    int n_ctx;                     /* positions of each to preallocate; 0: the model's context */
    int n_shared;                  /* positions, the first ones, that all sequences have in common:
                                      sequence 0 holds them, the others read them there */
    enum storage kv_storage;       /* of the cache: F32, F16 or Q8_0 */
    int block;                     /* rows that go through the model at once; 0: the default, at
                                      least one of each sequence */
    const struct kernels *kernels; /* NULL: the fastest */
    const struct attention_watch *watch; /* borrowed, as is the next; NULL: none */
    const struct head_ablation *without;
};

/* What a session will take, before it is taken. */
struct session_memory {
    size_t kv_bytes;
    size_t scratch_bytes;
};

struct session;

/* STATUS_USAGE when n_ctx exceeds the model's context or n_shared n_ctx, STATUS_NO_MEMORY when it
 * does not fit. */
enum status session_plan(const struct model *m, const struct session_params *p, int n_threads,
                         struct session_memory *out, struct err *e);

/* `pool` (NULL: one thread) is borrowed, as is the model; both must outlive the session. */
enum status session_create(const struct model *m, const struct session_params *p, struct pool *pool,
                           struct session **out, struct err *e);
void session_free(struct session *s); /* NULL is legal */

/* Lets another pool (NULL: one thread) do the work from the next step on; it may have no more
 * threads than the one at creation. No result changes. */
void session_set_pool(struct session *s, struct pool *pool);

int session_cap(const struct session *s);   /* positions of a sequence there is room for */
int session_block(const struct session *s); /* rows taken at once */

/* Positions of a sequence, 0 <= sequence < n_sequences (asserted everywhere), in the cache; of all
 * but sequence 0 at least n_shared, whether sequence 0 has them yet or not. */
int session_len(const struct session *s, int sequence);

/*
 * Appends n >= 1 rows. Those of one sequence stand together, at the positions that follow
 * session_len. `logits` receives those of the rows that want them, in order [wanted, n_vocab]; NULL
 * if none does. STATUS_USAGE, with nothing changed, when a row's sequence, position or token is
 * not possible, or when a sequence's shared positions were not in the cache before the step.
 */
enum status session_step(struct session *s, const struct batch_row *rows, int n, float *logits,
                         struct err *e);

/*
 * session_step for rows whose residual stream before layer 0 <= `layer` <= n_layers (asserted; the
 * last is behind all) is known: x [n, d_model], in place of their tokens' embeddings. The layers
 * before are left out, and nothing of the rows is in their cache, so a sequence enters at one layer
 * from its first row on.
 */
enum status session_enter(struct session *s, int layer, const float *x,
                          const struct batch_row *rows, int n, float *logits, struct err *e);

/*
 * Appends n >= 1 tokens to one sequence. `all` (may be NULL) receives the logits after each of them
 * [n, n_vocab]; session_logits then gives those after the last. STATUS_USAGE, with nothing
 * changed, when there is no room, an id is not in the vocabulary or shared positions are missing.
 */
enum status session_feed(struct session *s, int sequence, const int32_t *tokens, int n, float *all,
                         struct err *e);

/* [n_vocab] after the last session_feed, valid until the next. */
const float *session_logits(const struct session *s);

/* Appends positions with synthetic keys and values to a sequence until there are n <= session_cap
 * (asserted), a function of the seed alone: to measure at a depth without the cost of getting
 * there. The logits stay what they were. */
void session_fill(struct session *s, int sequence, int n, uint64_t seed);

/* What a position of a sequence has in the cache, as bytes that a session of the same model and
 * cache type understands: how many; those of a position that the sequence holds itself; and one
 * more of these appended, for which there is room (asserted). */
size_t session_position_bytes(const struct session *s);
void session_read_position(const struct session *s, int sequence, int position, void *bytes);
void session_append_position(struct session *s, int sequence, const void *bytes);
enum storage session_kv_storage(const struct session *s);

/* Forgets a sequence's positions from len on; without effect if there are not that many. Shared
 * positions are sequence 0's to forget, and what the others have after them goes with them. */
void session_rewind(struct session *s, int sequence, int len);

#endif
