/*
 * hf_family - the models of Hugging Face's transformers that go in and out, a row each: the names
 * of their tensors and of config.json's keys.
 *
 * All of this is constant: any threads may read it.
 */
#ifndef DECODE_EXCHANGE_HF_FAMILY_H
#define DECODE_EXCHANGE_HF_FAMILY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "exchange/view.h"
#include "model/layout.h"

struct hf_name {
    enum tensor_role role;
    const char *stem; /* between the block's number and ".weight" */
};

/* Sizes that config.json has under each family's own name, in this order. */
enum hf_size { HF_D_MODEL, HF_LAYERS, HF_HEADS, HF_KV_HEADS, HF_HEAD_DIM, HF_CTX, HF_FF, HF_SIZES };

/* Of a size in struct config: its place, and the most it may be. */
struct hf_size_info {
    size_t offset; /* of an int */
    int max;
};
extern const struct hf_size_info hf_sizes[HF_SIZES];

struct hf_family {
    const char *model_type;      /* config.json's; NULL: it has none (nanoGPT) */
    const char *model_class;     /* its architectures[0] */
    const char *arch;            /* GGUF's name */
    const char *prefix;          /* of all tensors but the output; may be missing in a file */
    const char *block;           /* then of those in blocks, before the number */
    const struct hf_name *names; /* those outside of blocks and in them, NULL stem at the end */
    const char *const *keys;     /* [HF_SIZES], NULL: no such key */
    const char *eps_key, *activation_key;
    const char *activation; /* that is meant where the key is missing */
    bool conv1d;            /* affine maps are stored as [n_in, n_out] */
    bool rotates_halves;    /* rows of Q and K: pair i is elements i and i + head_dim / 2 */
    bool joins_by_head;     /* with all K/V heads: each head's rows of Q, K and V stand together */
    bool biases;            /* all norms and affine maps in blocks have one */
    bool tied;              /* unless tie_word_embeddings says otherwise */
};

/* NULL past the last. */
const struct hf_family *hf_family_at(int i);

/* The family of a model_type; NULL if there is none. */
const struct hf_family *hf_family_find(struct text model_type);

/* What config.json calls a feed-forward kind: false if nothing. And the first name of a kind that
 * a family may have. */
bool hf_activation_find(struct text name, enum ffn_kind *out);
const char *hf_activation_name(enum ffn_kind kind);

/* Room for a tensor's name. */
struct hf_tensor_name {
    char text[96];
};

/* The name of a role's weight or bias, with the prefix or without; empty if the family has none. */
struct hf_tensor_name hf_tensor_name(const struct hf_family *f, bool prefixed,
                                     enum tensor_role role, int layer, bool is_bias);

/* The rows of a tensor in transformers' order become those of ours by this swap; those of ours
 * theirs by its inverse. */
struct row_swap hf_row_swap(const struct hf_family *f, const struct config *c,
                            enum tensor_role role);

#endif
