/*
 * arch - the architectures that run here, a row each, and the names of their tensors.
 *
 * What differs between architectures is a value in its row, never a fork through the program. All
 * of this is constant: any threads may read it.
 */
#ifndef DECODE_MODEL_ARCH_H
#define DECODE_MODEL_ARCH_H

#include <stdbool.h>

#include "base/text.h"
#include "compute/kernels.h"

/* Where a norm stands around the residual stream x of a part f, attention or feed-forward. */
enum norm_placement {
    PLACEMENT_BEFORE, /* x + f(norm(x)), and a norm of the last block's output */
    PLACEMENT_AFTER,  /* norm(x + f(x)), the original Transformer's post-LN */
    PLACEMENTS
};

/* How the model knows where a token stands. */
enum position_kind {
    POSITION_LEARNED,    /* a row of position_embd for each position, added to the token's */
    POSITION_SINUSOIDAL, /* the same with sines and cosines (Vaswani et al. 2017, section 3.5) */
    POSITION_ROPE,       /* neighbouring pairs of queries and keys turned (Su et al. 2021) */
    POSITION_ALIBI,      /* scores fall linearly with distance (Press et al. 2022) */
    POSITION_QUADRATIC,  /* scores fall with the square of the distance from a centre, both
                            trained (Cordonnier et al. 2020) */
    POSITION_NONE,
    POSITION_KINDS
};

/* Names of the kinds as the keys of architecture `decode` and the command line have them, in the
 * order of the enums, NULL at the end. */
extern const char *const arch_norm_names[];
extern const char *const arch_placement_names[];
extern const char *const arch_position_names[];
extern const char *const arch_ffn_names[];

/* What an architecture is; zero is GPT-2. */
struct arch {
    const char *name;         /* GGUF's general.architecture, and the prefix of its keys */
    const char *preset;       /* what a new model of it is asked for by; NULL: not made new */
    const char *norm_eps_key; /* after the prefix */
    enum norm_kind norm;
    enum norm_placement placement;
    enum position_kind position;
    enum ffn_kind ffn;
    bool no_biases;        /* files may have biases, but usually have none */
    bool split_qkv;        /* attn_q, attn_k and attn_v instead of attn_qkv */
    bool scales_embedding; /* by sqrt(d_model), if new */
    bool is_closed;        /* many models go by this name: a block's unknown tensors are refused */
    bool has_keys;         /* the kinds are those its keys say, in a file */
    bool own_output;       /* models of it usually have an output matrix beside the embedding */
};

/* The row of a file's architecture; NULL if it does not run here. */
const struct arch *arch_find(struct text name);

/* The row that a new model is made as; NULL if there is none of this name. */
const struct arch *arch_preset(struct text name);

/* The rows, in order; NULL past the last. Rows of one name stand together. */
const struct arch *arch_at(int i);

/* What a tensor is for, in the order of a file: those of each block stand between the others. */
enum tensor_role {
    ROLE_TOKEN_EMBD,
    ROLE_POSITION_EMBD,
    ROLE_ROPE_FREQS, /* [rope.n_dims / 2] what the frequencies of rotary pairs are divided by */
    ROLE_ATTN_NORM,
    ROLE_ATTN_QKV, /* rows Q, then K, then V */
    ROLE_ATTN_Q,   /* the same in three tensors */
    ROLE_ATTN_K,
    ROLE_ATTN_V,
    ROLE_ATTN_KV_A, /* what a latent cache has of a position */
    ROLE_ATTN_K_B,  /* [n_heads, rank, head_dim] a head's query to its scores' factors of that */
    ROLE_ATTN_V_B,  /* [n_heads, value_dim, rank] a head's average of that to its result */
    ROLE_ATTN_REL,  /* [n_heads, 2] alpha and centre of quadratic positions */
    ROLE_ATTN_OUTPUT,
    ROLE_ATTN_OUTPUT_NORM, /* after attention's residual */
    ROLE_FFN_NORM,
    ROLE_FFN_GATE, /* of gated feed-forward kinds */
    ROLE_FFN_UP,
    ROLE_FFN_DOWN,
    ROLE_LAYER_OUTPUT_NORM, /* after the feed-forward residual */
    ROLE_OUTPUT_NORM,
    ROLE_OUTPUT,
    TENSOR_ROLES,
};
#define ROLE_BLOCK_FIRST ROLE_ATTN_NORM
#define ROLE_BLOCK_END   ROLE_OUTPUT_NORM

static inline bool role_in_block(enum tensor_role role)
{
    return role >= ROLE_BLOCK_FIRST && role < ROLE_BLOCK_END;
}

/* Room for a tensor's name: GGUF's longest, 63 bytes, and the zero. */
struct tensor_name {
    char text[64];
};

/* "blk.3.attn_qkv.weight" or "output_norm.bias"; `layer` says nothing outside of the blocks. */
struct tensor_name arch_tensor_name(enum tensor_role role, int layer, bool is_bias);

#endif
