#include "exchange/hf_family.h"

#include <stdio.h>

const struct hf_size_info hf_sizes[HF_SIZES] = {
    [HF_D_MODEL] = {offsetof(struct config, d_model), CONFIG_MAX_WIDTH},
    [HF_LAYERS] = {offsetof(struct config, n_layers), CONFIG_MAX_LAYERS},
    [HF_HEADS] = {offsetof(struct config, n_heads), CONFIG_MAX_WIDTH},
    [HF_KV_HEADS] = {offsetof(struct config, n_kv_heads), CONFIG_MAX_WIDTH},
    [HF_HEAD_DIM] = {offsetof(struct config, head_dim), CONFIG_MAX_WIDTH},
    [HF_CTX] = {offsetof(struct config, n_ctx), CONFIG_MAX_CTX},
    [HF_FF] = {offsetof(struct config, d_ff), CONFIG_MAX_FF},
};

static const char *const gpt2_keys[HF_SIZES] = {
    [HF_D_MODEL] = "n_embd",  [HF_LAYERS] = "n_layer", [HF_HEADS] = "n_head",
    [HF_CTX] = "n_positions", [HF_FF] = "n_inner",
};

static const char *const nanogpt_keys[HF_SIZES] = {
    [HF_D_MODEL] = "n_embd",
    [HF_LAYERS] = "n_layer",
    [HF_HEADS] = "n_head",
    [HF_CTX] = "block_size",
};

static const char *const llama_keys[HF_SIZES] = {
    [HF_D_MODEL] = "hidden_size",       [HF_LAYERS] = "num_hidden_layers",
    [HF_HEADS] = "num_attention_heads", [HF_KV_HEADS] = "num_key_value_heads",
    [HF_HEAD_DIM] = "head_dim",         [HF_CTX] = "max_position_embeddings",
    [HF_FF] = "intermediate_size",
};

static const struct hf_name gpt2_names[] = {
    {ROLE_TOKEN_EMBD, "wte"},
    {ROLE_POSITION_EMBD, "wpe"},
    {ROLE_ATTN_NORM, "ln_1"},
    {ROLE_ATTN_QKV, "attn.c_attn"},
    {ROLE_ATTN_OUTPUT, "attn.c_proj"},
    {ROLE_FFN_NORM, "ln_2"},
    {ROLE_FFN_UP, "mlp.c_fc"},
    {ROLE_FFN_DOWN, "mlp.c_proj"},
    {ROLE_OUTPUT_NORM, "ln_f"},
    {ROLE_OUTPUT, "lm_head"},
    {TENSOR_ROLES, NULL},
};

static const struct hf_name llama_names[] = {
    {ROLE_TOKEN_EMBD, "embed_tokens"},
    {ROLE_ATTN_NORM, "input_layernorm"},
    {ROLE_ATTN_Q, "self_attn.q_proj"},
    {ROLE_ATTN_K, "self_attn.k_proj"},
    {ROLE_ATTN_V, "self_attn.v_proj"},
    {ROLE_ATTN_OUTPUT, "self_attn.o_proj"},
    {ROLE_FFN_NORM, "post_attention_layernorm"},
    {ROLE_FFN_GATE, "mlp.gate_proj"},
    {ROLE_FFN_UP, "mlp.up_proj"},
    {ROLE_FFN_DOWN, "mlp.down_proj"},
    {ROLE_OUTPUT_NORM, "norm"},
    {ROLE_OUTPUT, "lm_head"},
    {TENSOR_ROLES, NULL},
};

#define GPT2_TENSORS  .prefix = "transformer.", .block = "h.", .names = gpt2_names
#define LLAMA_TENSORS .prefix = "model.", .block = "layers.", .names = llama_names
#define LLAMA_KEYS                                                                                 \
    .keys = llama_keys, .eps_key = "rms_norm_eps", .activation_key = "hidden_act",                 \
    .activation = "silu"

static const struct hf_family families[] = {
    {
        .model_type = "gpt2",
        .model_class = "GPT2LMHeadModel",
        .arch = "gpt2",
        GPT2_TENSORS,
        .keys = gpt2_keys,
        .eps_key = "layer_norm_epsilon",
        .activation_key = "activation_function",
        .activation = "gelu_new",
        .conv1d = true,
        .biases = true,
        .tied = true,
    },
    {
        .model_type = "gpt_bigcode",
        .model_class = "GPTBigCodeForCausalLM",
        .arch = "starcoder",
        GPT2_TENSORS,
        .keys = gpt2_keys,
        .eps_key = "layer_norm_epsilon",
        .activation_key = "activation_function",
        .activation = "gelu_pytorch_tanh",
        .joins_by_head = true,
        .biases = true,
        .tied = true,
    },
    {
        .model_type = "llama",
        .model_class = "LlamaForCausalLM",
        .arch = "llama",
        LLAMA_TENSORS,
        LLAMA_KEYS,
        .rotates_halves = true,
    },
    {
        .model_type = "mistral",
        .model_class = "MistralForCausalLM",
        .arch = "llama",
        LLAMA_TENSORS,
        LLAMA_KEYS,
        .rotates_halves = true,
    },
    /* nanoGPT's own config, as a dictionary: its GELU is the exact one. */
    {
        .model_type = NULL,
        .arch = "decode",
        GPT2_TENSORS,
        .keys = nanogpt_keys,
        .activation = "gelu",
        .tied = true,
    },
};
#define N_FAMILIES ((int)(sizeof families / sizeof *families))

const struct hf_family *hf_family_at(int i)
{
    return i < N_FAMILIES ? &families[i] : NULL;
}

const struct hf_family *hf_family_find(struct text model_type)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (families[i].model_type && text_is(model_type, families[i].model_type))
            return &families[i];
    return NULL;
}

/* --- feed-forward kinds ---------------------------------------------------------------------- */

/* The first of a kind is what we write. gelu_fast is the tanh form with its factors multiplied
 * out. */
static const struct {
    const char *name;
    enum ffn_kind kind;
} activations[] = {
    {"gelu_new", FFN_GELU},  {"gelu_pytorch_tanh", FFN_GELU},
    {"gelu_fast", FFN_GELU}, {"gelu", FFN_GELU_ERF},
    {"relu", FFN_RELU},      {"silu", FFN_SWIGLU},
    {"swish", FFN_SWIGLU},
};
#define N_ACTIVATIONS (sizeof activations / sizeof *activations)

bool hf_activation_find(struct text name, enum ffn_kind *out)
{
    for (size_t i = 0; i < N_ACTIVATIONS; i++) {
        if (text_is(name, activations[i].name)) {
            *out = activations[i].kind;
            return true;
        }
    }
    return false;
}

const char *hf_activation_name(enum ffn_kind kind)
{
    for (size_t i = 0; i < N_ACTIVATIONS; i++)
        if (activations[i].kind == kind)
            return activations[i].name;
    return NULL;
}

/* --- tensors --------------------------------------------------------------------------------- */

static const char *stem_of(const struct hf_family *f, enum tensor_role role)
{
    for (const struct hf_name *n = f->names; n->stem; n++)
        if (n->role == role)
            return n->stem;
    return NULL;
}

struct hf_tensor_name hf_tensor_name(const struct hf_family *f, bool prefixed,
                                     enum tensor_role role, int layer, bool is_bias)
{
    struct hf_tensor_name name = {""};
    const char *stem = stem_of(f, role);
    const char *prefix = prefixed && role != ROLE_OUTPUT ? f->prefix : "";
    const char *suffix = is_bias ? "bias" : "weight";
    if (!stem)
        return name;
    if (role_in_block(role))
        snprintf(name.text, sizeof name.text, "%s%s%d.%s.%s", prefix, f->block, layer, stem,
                 suffix);
    else
        snprintf(name.text, sizeof name.text, "%s%s.%s", prefix, stem, suffix);
    return name;
}

struct row_swap hf_row_swap(const struct hf_family *f, const struct config *c,
                            enum tensor_role role)
{
    if (f->rotates_halves && (role == ROLE_ATTN_Q || role == ROLE_ATTN_K))
        return (struct row_swap){2, c->head_dim / 2, 1};
    if (f->joins_by_head && role == ROLE_ATTN_QKV && c->n_kv_heads == c->n_heads)
        return (struct row_swap){c->n_heads, 3, c->head_dim};
    return (struct row_swap){0, 0, 0};
}
