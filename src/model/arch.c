#include "model/arch.h"

#include <assert.h>
#include <stdio.h>

static const struct arch archs[] = {
    {"gpt2", NORM_LAYER, POSITION_LEARNED, FFN_GELU},
    {"starcoder", NORM_LAYER, POSITION_LEARNED, FFN_GELU},
};
#define N_ARCHS ((int)(sizeof archs / sizeof *archs))

static const char *const norm_eps_keys[NORM_KINDS] = {
    [NORM_LAYER] = "attention.layer_norm_epsilon",
};

static const char *const role_names[TENSOR_ROLES] = {
    [ROLE_ATTN_NORM] = "attn_norm",     [ROLE_ATTN_QKV] = "attn_qkv",
    [ROLE_ATTN_OUTPUT] = "attn_output", [ROLE_FFN_NORM] = "ffn_norm",
    [ROLE_FFN_UP] = "ffn_up",           [ROLE_FFN_DOWN] = "ffn_down",
    [ROLE_TOKEN_EMBD] = "token_embd",   [ROLE_POSITION_EMBD] = "position_embd",
    [ROLE_OUTPUT_NORM] = "output_norm", [ROLE_OUTPUT] = "output",
};

const struct arch *arch_at(int i)
{
    return i < N_ARCHS ? &archs[i] : NULL;
}

const struct arch *arch_find(struct text name)
{
    for (int i = 0; i < N_ARCHS; i++)
        if (text_is(name, archs[i].name))
            return &archs[i];
    return NULL;
}

const char *arch_norm_eps_key(enum norm_kind norm)
{
    return norm_eps_keys[norm];
}

struct tensor_name arch_tensor_name(enum tensor_role role, int layer, bool is_bias)
{
    struct tensor_name name;
    const char *suffix = is_bias ? "bias" : "weight";
    assert(role < TENSOR_ROLES && layer >= 0);
    if (role_in_block(role))
        snprintf(name.text, sizeof name.text, "blk.%d.%s.%s", layer, role_names[role], suffix);
    else
        snprintf(name.text, sizeof name.text, "%s.%s", role_names[role], suffix);
    return name;
}
