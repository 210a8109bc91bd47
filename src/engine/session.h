/*
 * session - sequences being decoded: a model, their KV cache, scratch memory and a pool.
 *
 * What goes through the model is rows: tokens of any sequences, each at its own position. Prefill
 * is many rows of one sequence, decoding one row of each; a step may have both. All memory is taken
 * at creation and by session_grow. What a sequence's rows give does not depend on how they are cut
 * into steps, on the other rows of a step, or on the number of threads: the same bits. Sessions may
 * share a model; a session belongs to one caller at a time.
 */
#pragma once

#include "model/kv_cache.h"
#include "model/model.h"

/* --- rows, and what tools may read or change of them on the way ------------------------------- */

/* A token of one of the sequences, at its position. */
struct batch_row {
    int32_t token;
    int sequence;
    int position;
    bool wants_logits;
};

/* Heads that are left out: their results are replaced before the output matrix takes them. Both
 * arrays are borrowed. */
struct head_ablation {
    const unsigned char *off; /* [n_layers, n_heads] not 0 for a head that is left out */
    const float *mean;        /* [n_layers, n_heads * value_dim] what replaces it; NULL: zeros */
};

/* Replaces the result [value_dim] of a head if `a` leaves the head out; `a` may be NULL. */
static inline void head_ablation_end(const struct head_ablation *a, const struct config *c,
                                     int layer, int head, float *result)
{
    const size_t at = (size_t)layer * c->n_heads + head, dim = config_value_dim(c);
    for (size_t i = 0; a && a->off[at] && i < dim; i++)
        result[i] = a->mean ? a->mean[at * dim + i] : 0;
}

/* A layer's attention weights, the softmax that values are averaged with. The weights of row r and
 * head h begin at weights[(r * n_heads + h) * stride], one for each position up to the row's; their
 * sum is 1 up to rounding. What follows them means nothing. The watcher may change them. */
struct attention_weights {
    int layer;
    const struct batch_row *rows; /* [n_rows] */
    int n_rows;
    size_t n_heads, stride;
    float *weights;
    const float *input;  /* [n_rows, d_model] what enters the layer's attention */
    const float *stream; /* [n_rows, d_model] the residual stream before the layer's attention */
    /* The queries of row r begin at r * qkv_stride, neither normed nor rotated by their positions;
     * q_turn does both, its positions filled up to the rows'. Keys and values are in the cache. */
    const float *queries;
    size_t qkv_stride;
    struct head_turn q_turn;
    const struct kv_cache *kv;
    const struct kernels *kernels;
    const struct head_ablation *without; /* NULL: no head is left out */
};

/* `take` gets every layer's weights in order, and `end` (may be NULL) the residual streams [n_rows,
 * d_model] after the last block. The thread that steps calls both; what they get is valid until
 * they return. */
struct attention_watch {
    void (*take)(void *arg, const struct attention_weights *w);
    void *arg;
    void (*end)(void *arg, const struct batch_row *rows, int n_rows, const float *streams);
};

/* Where a block's numbers can be had on their way. */
enum block_tap {
    TAP_NORMED, /* [n_rows, d_model] what Q, K and V are products of */
    TAP_HEADS,  /* [n_rows, heads_dim] the heads' results, which the output matrix takes */
    /* [n_rows, d_model] the residual stream after attention, before a norm that follows it */
    TAP_MIDDLE,
    TAP_OUT, /* [n_rows, d_model] the residual stream after the block */
    BLOCK_TAPS,
};

/* The caller's buffers, to which each tap's numbers are copied; NULL: they are not wanted. */
struct block_taps {
    float *at[BLOCK_TAPS];
};

/* --- sessions --------------------------------------------------------------------------------- */

/* Rows that a session takes at once by default, if its context has as many: the usual prompt reads
 * each weight once, and more rows would only take memory. */
#define SESSION_BLOCK 128

/* What a session is asked for. */
struct session_params {
    int n_sequences;               /* 0: one */
    int n_ctx;                     /* positions of each to preallocate; 0: the model's context */
    struct kv_type kv_type;        /* of the cache */
    int block;                     /* rows at once; 0: SESSION_BLOCK, at least one a sequence */
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

/* STATUS_USAGE when n_ctx exceeds the model's context, STATUS_NO_MEMORY when it does not fit. */
enum status session_plan(const struct model *m, const struct session_params *p, int n_threads,
                         struct session_memory *out, struct err *e);

/* `pool` (NULL: one thread) is borrowed, as is the model; both must outlive the session. */
enum status session_create(const struct model *m, const struct session_params *p, struct pool *pool,
                           struct session **out, struct err *e);
void session_free(struct session *s); /* NULL is legal */

/* Gives each sequence room for `cap` positions, no fewer than now and at most the model's context
 * (asserted). The cache is copied, which takes far less time than feeding the tokens again, and the
 * old memory freed then. STATUS_NO_MEMORY leaves the session as it was. */
enum status session_grow(struct session *s, int cap, struct err *e);

int session_cap(const struct session *s);   /* positions of a sequence there is room for */
int session_block(const struct session *s); /* rows taken at once */

/* Positions of a sequence (asserted everywhere) in the cache. */
int session_len(const struct session *s, int sequence);

/*
 * Appends n >= 1 rows. The rows of a sequence stand together, at the positions that follow
 * session_len. `logits` [wanted, n_vocab] receives the logits of the rows that want them, in order;
 * NULL if none does. STATUS_USAGE, with nothing changed, for a sequence, position or token that a
 * row cannot have.
 */
enum status session_step(struct session *s, const struct batch_row *rows, int n, float *logits,
                         struct err *e);

/*
 * session_step for rows whose residual stream before layer 0 <= `layer` <= n_layers (asserted) is
 * known: x [n, d_model]; NULL: it is their embedding, and `layer` is 0. Nothing of the rows is in
 * the cache of the layers before, so a sequence enters at one layer from its first row on.
 */
enum status session_enter(struct session *s, int layer, const float *x,
                          const struct batch_row *rows, int n, float *logits, struct err *e);

/*
 * Appends n >= 1 tokens to one sequence. `logits` receives the logits after the last of them
 * [n_vocab], or, with `all`, after each [n, n_vocab]; with NULL none are computed. STATUS_USAGE,
 * with nothing changed, when there is no room or an id is not in the vocabulary.
 */
enum status session_feed(struct session *s, int sequence, const int32_t *tokens, int n,
                         float *logits, bool all, struct err *e);

/* Returns `status`. If it is a failure, because numbers of the session are not finite, puts the
 * model's file before the message, then `where` ("after token 3"; NULL: nothing). Behind the
 * message stands what a cache of another type than F32 cannot hold, and which type can, because
 * then the checkpoint may be sound. */
enum status session_explain(const struct session *s, enum status status, const char *where,
                            struct err *e);

/* Returns the cache, for a caller that fills in keys and values itself instead of feeding rows.
 * They count once session_extend has set the sequence's length, len <= session_cap (asserted). */
struct kv_cache *session_cache(struct session *s);
void session_extend(struct session *s, int sequence, int len);

/* Forgets a sequence's positions from len on. Does nothing if it has no more than len. */
void session_rewind(struct session *s, int sequence, int len);

/* Makes the sequence `to` the first n positions of the sequence `from`, which has as many
 * (asserted). What follows has the same bits as if the same tokens had been fed. */
void session_copy(struct session *s, int from, int to, int n);

/* --- probes ----------------------------------------------------------------------------------- */

/* A probe runs single blocks, to the same bits as a session: its cache has room for one layer. */
struct probe;

/* Makes a probe for up to n_ctx rows and blocks of this shape; rope_factors as in positions_take.
 * kernels may be NULL (the fastest); pool is borrowed and may be NULL (one thread). *out is NULL on
 * failure. STATUS_NO_MEMORY. */
enum status probe_create(const struct config *c, const float *rope_factors, int n_ctx,
                         const struct kernels *kernels, struct pool *pool, struct probe **out,
                         struct err *e);
void probe_free(struct probe *p); /* NULL is legal */

/* Calls model_embed with the probe's positions and kernels. */
void probe_embed(const struct probe *p, const struct model *m, int token, int t, float *out);

/* Runs a block as that layer of the shape over the residual streams `in` [n, d_model] of the tokens
 * at the positions 0 to n - 1, 1 <= n <= n_ctx (asserted). Buffers of `taps` have room for n rows;
 * the one of TAP_OUT may be `in`, and without it the block ends after attention. */
void probe_run(struct probe *p, const struct block *b, int layer, const float *in, int n,
               const struct block_taps *taps);
