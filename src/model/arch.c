#include "model/arch.h"

#include <assert.h>
#include <stdio.h>

const char *const arch_norm_names[NORM_KINDS + 1] = {
    [NORM_LAYER] = "layer",
    [NORM_RMS] = "rms",
};

const char *const arch_placement_names[PLACEMENTS + 1] = {
    [PLACEMENT_BEFORE] = "before",
    [PLACEMENT_AFTER] = "after",
};

const char *const arch_position_names[POSITION_KINDS + 1] = {
    [POSITION_LEARNED] = "learned", [POSITION_SINUSOIDAL] = "sinusoidal", [POSITION_ROPE] = "rope",
    [POSITION_ALIBI] = "alibi",     [POSITION_QUADRATIC] = "quadratic",   [POSITION_NONE] = "none",
};

const char *const arch_ffn_names[FFN_KINDS + 1] = {
    [FFN_GELU] = "gelu",
    [FFN_GELU_ERF] = "gelu_erf",
    [FFN_RELU] = "relu",
    [FFN_SWIGLU] = "swiglu",
};

static const struct arch archs[] = {
    {
        .name = "gpt2",
        .preset = "gpt2",
        .norm_eps_key = "attention.layer_norm_epsilon",
    },
    {
        .name = "starcoder",
        .norm_eps_key = "attention.layer_norm_epsilon",
    },
    {
        .name = "llama",
        .preset = "llama",
        .norm_eps_key = "attention.layer_norm_rms_epsilon",
        .norm = NORM_RMS,
        .position = POSITION_ROPE,
        .ffn = FFN_SWIGLU,
        .no_biases = true,
        .split_qkv = true,
        .own_output = true,
        .is_closed = true,
    },
    {
        .name = "decode",
        .preset = "decode",
        .norm_eps_key = "norm.epsilon",
        .has_keys = true,
        .is_closed = true,
    },
    {
        .name = "decode",
        .preset = "transformer",
        .norm_eps_key = "norm.epsilon",
        .placement = PLACEMENT_AFTER,
        .position = POSITION_SINUSOIDAL,
        .ffn = FFN_RELU,
        .scales_embedding = true,
        .has_keys = true,
        .is_closed = true,
    },
};
#define N_ARCHS ((int)(sizeof archs / sizeof *archs))

static const char *const role_names[TENSOR_ROLES] = {
    [ROLE_TOKEN_EMBD] = "token_embd",
    [ROLE_POSITION_EMBD] = "position_embd",
    [ROLE_ROPE_FREQS] = "rope_freqs",
    [ROLE_ATTN_NORM] = "attn_norm",
    [ROLE_ATTN_QKV] = "attn_qkv",
    [ROLE_ATTN_Q] = "attn_q",
    [ROLE_ATTN_K] = "attn_k",
    [ROLE_ATTN_V] = "attn_v",
    [ROLE_ATTN_KV_A] = "attn_kv_a",
    [ROLE_ATTN_K_B] = "attn_k_b",
    [ROLE_ATTN_V_B] = "attn_v_b",
    [ROLE_ATTN_REL] = "attn_rel",
    [ROLE_ATTN_OUTPUT] = "attn_output",
    [ROLE_ATTN_OUTPUT_NORM] = "attn_output_norm",
    [ROLE_FFN_NORM] = "ffn_norm",
    [ROLE_FFN_GATE] = "ffn_gate",
    [ROLE_FFN_UP] = "ffn_up",
    [ROLE_FFN_DOWN] = "ffn_down",
    [ROLE_LAYER_OUTPUT_NORM] = "layer_output_norm",
    [ROLE_OUTPUT_NORM] = "output_norm",
    [ROLE_OUTPUT] = "output",
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

const struct arch *arch_preset(struct text name)
{
    for (int i = 0; i < N_ARCHS; i++)
        if (archs[i].preset && text_is(name, archs[i].preset))
            return &archs[i];
    return NULL;
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
