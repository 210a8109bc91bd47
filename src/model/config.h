/*
 * config - the hyperparameters of a checkpoint.
 */
#ifndef DECODE_MODEL_CONFIG_H
#define DECODE_MODEL_CONFIG_H

#include <stdint.h>

#include "base/status.h"
#include "compute/kernels.h"
#include "gguf/gguf.h"

/* Bounds that no real checkpoint of these architectures reaches. They keep row counts (Q, K and V
 * together too) and the attention work items of one token within an int. */
#define CONFIG_MAX_LAYERS (1 << 16)
#define CONFIG_MAX_WIDTH  (1 << 16)
#define CONFIG_MAX_FF     (1 << 24)
#define CONFIG_MAX_CTX    (1 << 22)
#define CONFIG_MAX_VOCAB  (1 << 24)

/* What a block is made of; the kinds of norm and feed-forward are those of compute/kernels.h. */
enum norm_placement { NORM_BEFORE };
enum position_kind { POSITION_LEARNED };

struct config {
    const char *architecture; /* "gpt2" or "starcoder"; static storage */
    int n_layers, n_heads, n_kv_heads, head_dim;
    int d_model, d_ff, n_ctx, n_vocab;
    float norm_eps;
    enum norm_kind norm;
    enum norm_placement norm_placement;
    enum position_kind position;
    enum ffn_kind ffn;
};

/*
 * Reads and checks the keys of architectures gpt2 and starcoder. n_vocab is the row count of
 * token_embd.weight, which must equal the length of tokenizer.ggml.tokens where that is present.
 * Every value is bounded so that no product of two overflows an int64. STATUS_BAD_FILE names the
 * key, what was expected and what was found.
 */
enum status config_read(const struct gguf *g, struct config *c, struct err *e);

/* "MHA", "MQA" or "GQA-n" for a number of K/V heads, written to name [16]. */
void config_variant_name(const struct config *c, int n_kv_heads, char *name);

static inline int config_kv_dim(const struct config *c)
{
    return c->n_kv_heads * c->head_dim;
}

static inline int config_group(const struct config *c)
{
    return c->n_heads / c->n_kv_heads;
}

#endif
