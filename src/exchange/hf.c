/*
 * The models of Hugging Face's transformers: their tensors' names and their config.json.
 */
#include <stdio.h>
#include <string.h>

#include "compute/angles.h"
#include "exchange/private.h"

/* --- families -------------------------------------------------------------------------------- */

const struct hf_size_info hf_sizes[HF_SIZES] = {
    [HF_D_MODEL] = {offsetof(struct config, d_model), CONFIG_MAX_WIDTH},
    [HF_LAYERS] = {offsetof(struct config, n_layers), CONFIG_MAX_LAYERS},
    [HF_HEADS] = {offsetof(struct config, n_heads), CONFIG_MAX_WIDTH},
    [HF_KV_HEADS] = {offsetof(struct config, n_kv_heads), CONFIG_MAX_WIDTH},
    [HF_HEAD_DIM] = {offsetof(struct config, head_dim), CONFIG_MAX_WIDTH},
    [HF_CTX] = {offsetof(struct config, n_ctx), CONFIG_MAX_CTX},
    [HF_FF] = {offsetof(struct config, d_ff), CONFIG_MAX_FF},
    [HF_VOCAB] = {offsetof(struct config, n_vocab), CONFIG_MAX_VOCAB},
};

static const char *const gpt2_keys[HF_SIZES] = {
    [HF_D_MODEL] = "n_embd",  [HF_LAYERS] = "n_layer", [HF_HEADS] = "n_head",
    [HF_CTX] = "n_positions", [HF_FF] = "n_inner",     [HF_VOCAB] = "vocab_size",
};

static const char *const nanogpt_keys[HF_SIZES] = {
    [HF_D_MODEL] = "n_embd", [HF_LAYERS] = "n_layer",   [HF_HEADS] = "n_head",
    [HF_CTX] = "block_size", [HF_VOCAB] = "vocab_size",
};

static const char *const llama_keys[HF_SIZES] = {
    [HF_D_MODEL] = "hidden_size",       [HF_LAYERS] = "num_hidden_layers",
    [HF_HEADS] = "num_attention_heads", [HF_KV_HEADS] = "num_key_value_heads",
    [HF_HEAD_DIM] = "head_dim",         [HF_CTX] = "max_position_embeddings",
    [HF_FF] = "intermediate_size",      [HF_VOCAB] = "vocab_size",
};

static const char *const gpt2_stems[TENSOR_ROLES] = {
    [ROLE_TOKEN_EMBD] = "wte",          [ROLE_POSITION_EMBD] = "wpe",
    [ROLE_ATTN_NORM] = "ln_1",          [ROLE_ATTN_QKV] = "attn.c_attn",
    [ROLE_ATTN_OUTPUT] = "attn.c_proj", [ROLE_FFN_NORM] = "ln_2",
    [ROLE_FFN_UP] = "mlp.c_fc",         [ROLE_FFN_DOWN] = "mlp.c_proj",
    [ROLE_OUTPUT_NORM] = "ln_f",        [ROLE_OUTPUT] = "lm_head",
};

static const char *const llama_stems[TENSOR_ROLES] = {
    [ROLE_TOKEN_EMBD] = "embed_tokens",
    [ROLE_ATTN_NORM] = "input_layernorm",
    [ROLE_ATTN_Q] = "self_attn.q_proj",
    [ROLE_ATTN_K] = "self_attn.k_proj",
    [ROLE_ATTN_V] = "self_attn.v_proj",
    [ROLE_ATTN_OUTPUT] = "self_attn.o_proj",
    [ROLE_FFN_NORM] = "post_attention_layernorm",
    [ROLE_FFN_GATE] = "mlp.gate_proj",
    [ROLE_FFN_UP] = "mlp.up_proj",
    [ROLE_FFN_DOWN] = "mlp.down_proj",
    [ROLE_OUTPUT_NORM] = "norm",
    [ROLE_OUTPUT] = "lm_head",
};

#define GPT2_TENSORS .prefix = "transformer.", .block = "h.", .stems = gpt2_stems, .tied = true
#define GPT2_KEYS                                                                                  \
    .keys = gpt2_keys, .eps_key = "layer_norm_epsilon", .activation_key = "activation_function",   \
    .biases = true
#define LLAMA                                                                                      \
    .arch = "llama", .prefix = "model.", .block = "layers.", .stems = llama_stems,                 \
    .keys = llama_keys, .eps_key = "rms_norm_eps", .activation_key = "hidden_act",                 \
    .activation = "silu", .rotates_halves = true

static const struct hf_family families[] = {
    {.model_type = "gpt2",
     .model_class = "GPT2LMHeadModel",
     .arch = "gpt2",
     GPT2_TENSORS,
     GPT2_KEYS,
     .activation = "gelu_new",
     .conv1d = true},
    {.model_type = "gpt_bigcode",
     .model_class = "GPTBigCodeForCausalLM",
     .arch = "starcoder",
     GPT2_TENSORS,
     GPT2_KEYS,
     .activation = "gelu_pytorch_tanh",
     .joins_by_head = true},
    {.model_type = "llama", .model_class = "LlamaForCausalLM", LLAMA},
    {.model_type = "mistral", .model_class = "MistralForCausalLM", LLAMA},
    /* nanoGPT's own config, as a dictionary: its GELU is the exact one. */
    {.arch = "decode", GPT2_TENSORS, .keys = nanogpt_keys, .activation = "gelu"},
};

const struct hf_family *hf_family_find(const struct text *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *name = families[i].model_type;
        if (name && model_type ? text_is(*model_type, name) : !name && !model_type)
            return &families[i];
    }
    return NULL;
}

/* The first of a kind is what we write. gelu_fast is the tanh form with its factors multiplied
 * out. */
static const struct activation {
    const char *name;
    enum ffn_kind kind;
} activations[] = {
    {"gelu_new", FFN_GELU},  {"gelu_pytorch_tanh", FFN_GELU},
    {"gelu_fast", FFN_GELU}, {"gelu", FFN_GELU_ERF},
    {"relu", FFN_RELU},      {"silu", FFN_SWIGLU},
    {"swish", FFN_SWIGLU},
};
#define N_ACTIVATIONS (sizeof activations / sizeof *activations)

const char *hf_activation_name(enum ffn_kind kind)
{
    for (size_t i = 0; i < N_ACTIVATIONS; i++)
        if (activations[i].kind == kind)
            return activations[i].name;
    return NULL;
}

struct hf_tensor_name hf_tensor_name(const struct hf_family *f, bool prefixed,
                                     enum tensor_role role, int layer, bool is_bias)
{
    struct hf_tensor_name name = {""};
    const char *prefix = prefixed && role != ROLE_OUTPUT ? f->prefix : "";
    const char *suffix = is_bias ? "bias" : "weight";
    if (!f->stems[role])
        return name;
    if (role_in_block(role))
        snprintf(name.text, sizeof name.text, "%s%s%d.%s.%s", prefix, f->block, layer,
                 f->stems[role], suffix);
    else
        snprintf(name.text, sizeof name.text, "%s%s.%s", prefix, f->stems[role], suffix);
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

bool hf_has_bias(const struct hf_config *h, enum tensor_role role)
{
    switch (role) {
    case ROLE_TOKEN_EMBD:
    case ROLE_OUTPUT:
        return false;
    case ROLE_ATTN_NORM:
    case ROLE_FFN_NORM:
    case ROLE_OUTPUT_NORM:
        return h->norm_biases;
    case ROLE_FFN_GATE:
    case ROLE_FFN_UP:
    case ROLE_FFN_DOWN:
        return h->ffn_biases;
    default:
        return h->attention_biases;
    }
}

/* --- config.json ----------------------------------------------------------------------------- */

/* An optional number; *out stays where there is none, or no key. */
static enum status read_double(const struct json_node *object, const char *key, double above,
                               double below, double *out, struct err *e)
{
    const struct json_node *v = key ? json_present(object, key) : NULL;
    if (!v)
        return STATUS_OK;
    TRY(json_node_double(v, out, e));
    if (!(*out > above && *out < below))
        return bad_file(e, "\"%s\": expected a number between %g and %g, found %g", key, above,
                        below, *out);
    return STATUS_OK;
}

/* An optional number from 1 on; 0 where there is none, or no key. */
static enum status read_int(const struct json_node *object, const char *key, int max, int *out,
                            struct err *e)
{
    const struct json_node *v = key ? json_present(object, key) : NULL;
    int64_t value = 0;
    if (v)
        TRY(json_node_i64(v, 1, max, &value, e));
    *out = value;
    return STATUS_OK;
}

static enum status find_family(const struct json_node *object, const struct hf_family **out,
                               struct err *e)
{
    const struct json_node *v = json_present(object, "model_type");
    if (!v && json_present(object, "block_size")) {
        *out = hf_family_find(NULL);
        return STATUS_OK;
    }
    TRY(json_require(object, "model_type", JSON_STRING, &v, e));
    *out = hf_family_find(&v->text);
    if (*out)
        return STATUS_OK;
    return bad_file(e,
                    "\"model_type\": expected gpt2, gpt_bigcode, llama or mistral, which run here; "
                    "found \"%.*s\"",
                    SHOWN(v->text));
}

static enum status read_sizes(const struct json_node *object, const struct hf_family *f,
                              struct config *c, struct err *e)
{
    for (int i = 0; i < HF_SIZES; i++) {
        int *size = config_int(c, hf_sizes[i].offset);
        /* What has a default: GPT-2's d_ff is 4 d_model. */
        const bool may_lack = i == HF_KV_HEADS || i == HF_HEAD_DIM || (i == HF_FF && f->tied);
        TRY(read_int(object, f->keys[i], hf_sizes[i].max, size, e));
        if (!*size && !may_lack)
            return bad_file(e, "\"%s\": missing", f->keys[i]);
    }
    if (!c->d_ff && c->d_model > CONFIG_MAX_FF / 4)
        return bad_file(e, "\"%s\": expected at most %d, found %d", f->keys[HF_D_MODEL],
                        CONFIG_MAX_FF / 4, c->d_model);
    if (!c->d_ff)
        c->d_ff = 4 * c->d_model;
    if (f->joins_by_head) { /* GPT-BigCode has one K/V head, or as many as heads */
        bool multi_query = true;
        TRY(json_optional_bool(object, "multi_query", &multi_query, e));
        c->n_kv_heads = multi_query ? 1 : c->n_heads;
    }
    return STATUS_OK;
}

static enum status read_kinds(const struct json_node *object, const struct hf_family *f,
                              struct config *c, struct err *e)
{
    struct text name = text_of(f->activation);
    const struct arch *arch = arch_find(text_of(f->arch));
    const bool gated = arch->ffn == FFN_SWIGLU;
    const struct activation *found = NULL;
    if (f->activation_key)
        TRY(json_optional_text(object, f->activation_key, &name, e));
    for (size_t i = 0; i < N_ACTIVATIONS; i++)
        if (text_is(name, activations[i].name) && (activations[i].kind == FFN_SWIGLU) == gated)
            found = &activations[i];
    if (!found)
        return bad_file(e, "\"%s\": expected %s, which run here; found \"%.*s\"", f->activation_key,
                        gated ? "silu" : "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu or relu",
                        SHOWN(name));
    /* What GGUF's architecture of that name cannot say is architecture decode. */
    config_set_arch(c, found->kind == arch->ffn ? arch : arch_find(text_of("decode")));
    c->ffn = found->kind;
    return STATUS_OK;
}

static enum status read_biases(const struct json_node *object, struct config *c,
                               struct hf_config *h, struct err *e)
{
    bool all = h->family->biases;
    if (!h->family->model_type) {
        all = true;
        TRY(json_optional_bool(object, "bias", &all, e));
        c->no_biases = !all;
    }
    h->norm_biases = h->attention_biases = h->ffn_biases = all;
    if (!h->family->rotates_halves)
        return STATUS_OK;
    TRY(json_optional_bool(object, "attention_bias", &h->attention_biases, e));
    return json_optional_bool(object, "mlp_bias", &h->ffn_biases, e);
}

/* --- rotary positions ------------------------------------------------------------------------ */

#define TWO_PI 6.283185307179586476925

static enum status read_llama3(const struct json_node *rope, struct hf_llama3 *l, struct err *e)
{
    TRY(read_double(rope, "factor", 0, 1e9, &l->factor, e));
    TRY(read_double(rope, "low_freq_factor", 0, 1e9, &l->low, e));
    TRY(read_double(rope, "high_freq_factor", 0, 1e9, &l->high, e));
    TRY(read_int(rope, "original_max_position_embeddings", CONFIG_MAX_CTX, &l->context, e));
    if (!(l->factor > 0 && l->low > 0 && l->high > l->low && l->context > 0))
        return bad_file(e,
                        "rotary positions of type llama3: expected factor, low_freq_factor below "
                        "high_freq_factor and original_max_position_embeddings; found %g, %g, %g, "
                        "%d",
                        l->factor, l->low, l->high, l->context);
    return STATUS_OK;
}

static enum status read_scaling(const struct json_node *rope, struct config *c, struct hf_config *h,
                                struct err *e)
{
    const bool is_new = json_present(rope, "rope_type"); /* "type" was before 2024 */
    struct text type = text_of("default");
    double factor = 1;
    TRY(json_optional_text(rope, is_new ? "rope_type" : "type", &type, e));
    if (text_is(type, "llama3"))
        return read_llama3(rope, &h->llama3, e);
    if (text_is(type, "linear")) {
        TRY(read_double(rope, "factor", CONFIG_LEAST_ROPE_FACTOR, 1e9, &factor, e));
        c->rope.scale = 1 / factor;
        return STATUS_OK;
    }
    if (!text_is(type, "default"))
        return bad_file(e,
                        "rotary positions: expected the type default, linear or llama3, which run "
                        "here; found \"%.*s\"",
                        SHOWN(type));
    return STATUS_OK;
}

/* rope_parameters of transformers 5; before, rope_theta and rope_scaling. */
static enum status read_rope(const struct json_node *object, struct config *c, struct hf_config *h,
                             struct err *e)
{
    double share = 1;
    if (c->position != POSITION_ROPE)
        return STATUS_OK;
    c->rope = (struct config_rope){.base = 10000, .scale = 1};
    TRY(read_double(object, "rope_theta", 1, 1e30, &c->rope.base, e));
    TRY(read_double(object, "partial_rotary_factor", 0, 2, &share, e));
    const struct json_node *rope = json_present(object, "rope_parameters");
    if (!rope)
        rope = json_present(object, "rope_scaling");
    if (rope) {
        TRY(json_expect(rope, JSON_OBJECT, e));
        TRY(read_double(rope, "rope_theta", 1, 1e30, &c->rope.base, e));
        TRY(read_double(rope, "partial_rotary_factor", 0, 2, &share, e));
        TRY(read_scaling(rope, c, h, e));
    }
    if (share != 1)
        return bad_file(e,
                        "\"partial_rotary_factor\": expected none or 1, because whole heads turn "
                        "in a llama; found %g",
                        share);
    return STATUS_OK;
}

void hf_llama3_factors(const struct hf_llama3 *l, const struct config *c, float *out)
{
    for (int i = 0; i < c->rope.n_dims / 2; i++) {
        const double wavelength = TWO_PI * angles_power(c->rope.base, 2.0 * i / c->rope.n_dims);
        const double share = l->context / wavelength;
        const double smooth = (share - l->low) / (l->high - l->low);
        if (share > l->high)
            out[i] = 1;
        else if (share < l->low)
            out[i] = (float)l->factor;
        else
            out[i] = (float)(1 / ((1 - smooth) / l->factor + smooth));
    }
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Keys that would change the computation, and what they must be, as JSON has it; null and absent
 * are right for all but those that mean something else then. */
static const struct {
    const char *key, *expected;
} fixed[] = {
    {"scale_attn_weights", "true"},           {"scale_attn_by_inverse_layer_idx", "false"},
    {"add_cross_attention", "false"},         {"is_encoder_decoder", "false"},
    {"use_bidirectional_attention", "false"}, {"quantization_config", "null"},
};

enum status hf_config_read(const struct json_node *object, struct config *c, struct hf_config *h,
                           struct err *e)
{
    int window = 0;
    *c = (struct config){.arch = NULL};
    *h = (struct hf_config){.family = NULL};
    TRY(json_expect(object, JSON_OBJECT, e));
    TRY(find_family(object, &h->family, e));
    const struct hf_family *f = h->family;
    double eps = strcmp(f->arch, "llama") == 0 ? 1e-6 : 1e-5;
    TRY(read_sizes(object, f, c, e));
    TRY(read_kinds(object, f, c, e));
    TRY(read_biases(object, c, h, e));
    TRY(read_rope(object, c, h, e));
    TRY(read_double(object, f->eps_key, 0, 1, &eps, e));
    c->norm_eps = (float)eps;
    h->tied = f->tied;
    TRY(json_optional_bool(object, "tie_word_embeddings", &h->tied, e));
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const struct json_node *v = json_present(object, fixed[i].key);
        if (v && !text_is(v->text, fixed[i].expected))
            return bad_file(e, "\"%s\": expected %s, because nothing else runs here; found %.*s",
                            fixed[i].key, fixed[i].expected,
                            v->kind == JSON_OBJECT ? 9 : text_width(v->text),
                            v->kind == JSON_OBJECT ? "an object" : v->text.data);
    }
    /* As long as no more positions are there than a window has, all are attended to, as here. */
    TRY(read_int(object, "sliding_window", INT32_MAX, &window, e));
    if (window && window < c->n_ctx) {
        h->uncut_ctx = c->n_ctx;
        c->n_ctx = window;
    }
    return import_check_config(c, e);
}
