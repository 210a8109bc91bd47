/*
 * config - the hyperparameters of a checkpoint, as its keys say them.
 */
#ifndef DECODE_MODEL_CONFIG_H
#define DECODE_MODEL_CONFIG_H

#include "base/status.h"
#include "gguf/gguf.h"
#include "model/arch.h"

/* Bounds that no real checkpoint of these architectures reaches. They keep row counts (Q, K and V
 * together too) and the attention work items of one token within an int. */
#define CONFIG_MAX_LAYERS (1 << 16)
#define CONFIG_MAX_WIDTH  (1 << 16)
#define CONFIG_MAX_FF     (1 << 24)
#define CONFIG_MAX_CTX    (1 << 22)
#define CONFIG_MAX_VOCAB  (1 << 24)

struct config {
    const struct arch *arch; /* static storage */
    int n_layers, n_heads, n_kv_heads, head_dim;
    int d_model, d_ff, n_ctx, n_vocab;
    float norm_eps;
    /* The architecture's, or what its keys say instead. */
    enum norm_kind norm;
    enum position_kind position;
    enum ffn_kind ffn;
};

/*
 * Reads and checks the keys. head_dim is the key attention.key_length or, without it,
 * d_model / n_heads. n_vocab is the row count of token_embd.weight, which must equal the length of
 * tokenizer.ggml.tokens where that is present. Every value is bounded so that no product of two
 * overflows an int64. STATUS_BAD_FILE names the key, what was expected and what was found.
 */
enum status config_read(const struct gguf *g, struct config *c, struct err *e);

/* Adds the architecture and its keys to a file. */
void config_write(const struct config *c, struct gguf_writer *w);

/* Sets the architecture with the kinds of its row. */
void config_set_arch(struct config *c, const struct arch *arch);

/* "MHA", "MQA" or "GQA-n" for a number of K/V heads, written to name [16]. */
void config_variant_name(const struct config *c, int n_kv_heads, char *name);

/* Elements of all queries of a token. */
static inline int config_q_dim(const struct config *c)
{
    return c->n_heads * c->head_dim;
}

/* K/V heads of a layer; elements of its keys, and of its values, of a token; the query heads that
 * share one of them. */
static inline int config_kv_heads(const struct config *c, int layer)
{
    (void)layer;
    return c->n_kv_heads;
}

/* K/V heads of all layers before this one; of all layers, for n_layers. */
static inline int config_kv_heads_before(const struct config *c, int layer)
{
    return layer * c->n_kv_heads;
}

static inline int config_kv_dim(const struct config *c, int layer)
{
    return config_kv_heads(c, layer) * c->head_dim;
}

static inline int config_group(const struct config *c, int layer)
{
    return c->n_heads / config_kv_heads(c, layer);
}

/* Elements of a token's Q, K and V together. */
static inline int config_qkv_dim(const struct config *c, int layer)
{
    return config_q_dim(c) + 2 * config_kv_dim(c, layer);
}

#endif
