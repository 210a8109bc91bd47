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

/* How the model knows where a token stands. */
enum position_kind {
    POSITION_LEARNED, /* a row of position_embd for each position, added to the token's */
};

struct arch {
    const char *name; /* GGUF's general.architecture, and the prefix of the architecture's keys */
    enum norm_kind norm;
    enum position_kind position;
    enum ffn_kind ffn;
};

/* The row of a name; NULL if it does not run here. */
const struct arch *arch_find(struct text name);

/* The rows, in order; NULL past the last. */
const struct arch *arch_at(int i);

/* The key after the architecture's prefix that has the epsilon of a kind of norm. */
const char *arch_norm_eps_key(enum norm_kind norm);

/* What a tensor is for, in the order of a file: those of each block stand between the others. */
enum tensor_role {
    ROLE_TOKEN_EMBD,
    ROLE_POSITION_EMBD,
    ROLE_ATTN_NORM,
    ROLE_ATTN_QKV, /* rows Q, then K, then V */
    ROLE_ATTN_OUTPUT,
    ROLE_FFN_NORM,
    ROLE_FFN_UP,
    ROLE_FFN_DOWN,
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
