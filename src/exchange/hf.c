/*
 * The models of Hugging Face's transformers: their tensors' names and their config.json.
 */
#include <stdio.h>

#include "compute/angles.h"
#include "exchange/private.h"

/* --- families -------------------------------------------------------------------------------- */

static const struct hf_family families[] = {
    {"gpt2", "GPT2LMHeadModel", "gpt2", "gelu_new", .conv1d = true},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", "starcoder", "gelu_pytorch_tanh",
     .joins_by_head = true},
    {"llama", "LlamaForCausalLM", "llama", "silu", .is_llama = true},
    {"mistral", "MistralForCausalLM", "llama", "silu", .is_llama = true},
    /* nanoGPT's own config, as a dictionary: its GELU is the exact one. */
    {NULL, NULL, "decode", "gelu", .is_llama = false},
};

const struct hf_family *hf_family_find(struct text model_type)
{
    for (const struct hf_family *f = families; f < END_OF(families); f++) {
        const char *name = f->model_type;
        if (name && model_type.data ? text_is(model_type, name) : !name && !model_type.data)
            return f;
    }
    return NULL;
}

/* What stands in a tensor's name between the block's number and ".weight" (NULL: the family has no
 * such tensor), and the biases that its bias belongs to. */
static const struct {
    const char *gpt2, *llama;
    enum hf_bias bias;
} stems[TENSOR_ROLES] = {
    [ROLE_TOKEN_EMBD] = {"wte", "embed_tokens", HF_NOWHERE},
    [ROLE_POSITION_EMBD] = {"wpe", NULL, HF_ATTENTION},
    [ROLE_ATTN_NORM] = {"ln_1", "input_layernorm", HF_NORMS},
    [ROLE_ATTN_QKV] = {"attn.c_attn", NULL, HF_ATTENTION},
    [ROLE_ATTN_Q] = {NULL, "self_attn.q_proj", HF_ATTENTION},
    [ROLE_ATTN_K] = {NULL, "self_attn.k_proj", HF_ATTENTION},
    [ROLE_ATTN_V] = {NULL, "self_attn.v_proj", HF_ATTENTION},
    [ROLE_ATTN_OUTPUT] = {"attn.c_proj", "self_attn.o_proj", HF_ATTENTION},
    [ROLE_FFN_NORM] = {"ln_2", "post_attention_layernorm", HF_NORMS},
    [ROLE_FFN_GATE] = {NULL, "mlp.gate_proj", HF_FFN},
    [ROLE_FFN_UP] = {"mlp.c_fc", "mlp.up_proj", HF_FFN},
    [ROLE_FFN_DOWN] = {"mlp.c_proj", "mlp.down_proj", HF_FFN},
    [ROLE_OUTPUT_NORM] = {"ln_f", "norm", HF_NORMS},
    [ROLE_OUTPUT] = {"lm_head", "lm_head", HF_NOWHERE},
};

enum hf_bias hf_bias_of(enum tensor_role role)
{
    return stems[role].bias;
}

struct hf_tensor_name hf_tensor_name(const struct hf_family *f, bool prefixed,
                                     enum tensor_role role, int layer, bool is_bias)
{
    struct hf_tensor_name name = {""};
    const char *stem = f->is_llama ? stems[role].llama : stems[role].gpt2;
    const char *prefix = !prefixed || role == ROLE_OUTPUT ? ""
                         : f->is_llama                    ? "model."
                                                          : "transformer.";
    char block[24] = "";
    if (role_in_block(role))
        chars_printf(block, "%s.%d.", f->is_llama ? "layers" : "h", layer);
    if (stem)
        chars_printf(name.text, "%s%s%s.%s", prefix, block, stem, is_bias ? "bias" : "weight");
    return name;
}

struct row_swap hf_row_swap(const struct hf_family *f, const struct config *c,
                            enum tensor_role role)
{
    if (f->is_llama && (role == ROLE_ATTN_Q || role == ROLE_ATTN_K))
        return (struct row_swap){2, c->head_dim / 2, 1};
    if (f->joins_by_head && role == ROLE_ATTN_QKV && c->n_kv_heads == c->n_heads)
        return (struct row_swap){c->n_heads, 3, c->head_dim};
    return (struct row_swap){0, 0, 0};
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

const char *hf_activation_name(enum ffn_kind kind)
{
    const struct activation *a = activations;
    while (a->kind != kind)
        a++;
    return a->name;
}

/* --- config.json ----------------------------------------------------------------------------- */

/* A member of config.json, or of what it says of rotary positions, in the order in which they are
 * written, and where in struct hf_config it goes: what is null or not there leaves that as it was.
 */
struct config_row {
    const char *gpt2, *llama; /* the keys; NULL: none */
    enum { ROW_INT, ROW_REAL, ROW_BOOL, ROW_NAME, ROW_ROPE } kind;
    size_t offset;
    double min, max; /* of ints; reals are between */
    /* JOINED: written of a family that joins by head. */
    enum { IN = 1, OUT = 2, BOTH = 3, REQUIRED = 7, JOINED = 11 } how;
};
#define ROW(kind, member, min, max) kind, offsetof(struct hf_config, member), min, max
#define INT(member, max)            ROW(ROW_INT, member, 1, max)
#define REAL(member, min, max)      ROW(ROW_REAL, member, min, max)
#define BOOL(member)                ROW(ROW_BOOL, member, 0, 0)
#define NAME(member)                ROW(ROW_NAME, member, 0, 0)

static const struct config_row config_rows[] = {
    {"n_embd", "hidden_size", INT(c.d_model, CONFIG_MAX_WIDTH), REQUIRED},
    {"n_layer", "num_hidden_layers", INT(c.n_layers, CONFIG_MAX_LAYERS), REQUIRED},
    {"n_head", "num_attention_heads", INT(c.n_heads, CONFIG_MAX_WIDTH), REQUIRED},
    {NULL, "num_key_value_heads", INT(c.n_kv_heads, CONFIG_MAX_WIDTH), BOTH},
    {NULL, "head_dim", INT(c.head_dim, CONFIG_MAX_WIDTH), BOTH},
    {"block_size", NULL, INT(c.n_ctx, CONFIG_MAX_CTX), IN},
    {"n_positions", "max_position_embeddings", INT(c.n_ctx, CONFIG_MAX_CTX), REQUIRED},
    {"n_inner", NULL, INT(c.d_ff, CONFIG_MAX_FF), BOTH},
    {NULL, "intermediate_size", INT(c.d_ff, CONFIG_MAX_FF), REQUIRED},
    {"vocab_size", "vocab_size", INT(c.n_vocab, CONFIG_MAX_VOCAB), REQUIRED},
    {"n_ctx", NULL, INT(c.n_ctx, 0), OUT}, /* llama.cpp's converter reads this one */
    {"multi_query", NULL, BOOL(multi_query), JOINED},
    {"activation_function", "hidden_act", NAME(activation), BOTH},
    {"layer_norm_epsilon", "rms_norm_eps", REAL(eps, 0, 1), BOTH},
    {"tie_word_embeddings", "tie_word_embeddings", BOOL(tied), BOTH},
    {NULL, "rope_theta", REAL(theta, 1, 1e30), BOTH},
    {NULL, "rope_scaling", ROW_ROPE, 0, 0, 0, BOTH},    /* before transformers 5 */
    {NULL, "rope_parameters", ROW_ROPE, 0, 0, 0, BOTH}, /* from then on */
    {"bias", NULL, BOOL(biases), IN},
    {NULL, "attention_bias", BOOL(bias[HF_ATTENTION]), BOTH},
    {NULL, "mlp_bias", BOOL(bias[HF_FFN]), BOTH},
    {"sliding_window", "sliding_window", INT(window, INT32_MAX), IN},
};
static const struct config_row rope_rows[] = {
    {NULL, "type", NAME(rope_type), IN}, /* before 2024 */
    {NULL, "rope_type", NAME(rope_type), BOTH},
    {NULL, "rope_theta", REAL(theta, 1, 1e30), BOTH},
    {NULL, "factor", REAL(llama3.factor, CONFIG_LEAST_ROPE_FACTOR, 1e9), BOTH},
    {NULL, "low_freq_factor", REAL(llama3.low, 0, 1e9), BOTH},
    {NULL, "high_freq_factor", REAL(llama3.high, 0, 1e9), BOTH},
    {NULL, "original_max_position_embeddings", INT(llama3.context, CONFIG_MAX_CTX), BOTH},
};

static enum status read_rows(const struct json_node *object, const struct config_row *r,
                             const struct config_row *end, struct hf_config *h, struct err *e)
{
    for (; r < end; r++) {
        const char *key = h->family->is_llama ? r->llama : r->gpt2;
        const struct json_node *v = key && r->how & IN ? json_present(object, key) : NULL;
        void *at = (char *)h + r->offset;
        int64_t whole;
        if (key && !v && r->how == REQUIRED && *(int *)at == 0)
            return err_bad_file(e, "\"%s\": missing", key);
        if (!v)
            continue;
        switch (r->kind) {
        case ROW_INT:
            TRY(json_node_i64(v, 1, r->max, &whole, e));
            *(int *)at = whole;
            break;
        case ROW_REAL:
            TRY(json_node_double(v, at, e));
            if (!(*(double *)at > r->min && *(double *)at < r->max))
                return err_bad_file(e, "\"%s\": expected a number between %g and %g, found %g", key,
                                    r->min, r->max, *(double *)at);
            break;
        case ROW_BOOL:
            TRY(json_node_bool(v, at, e));
            break;
        case ROW_NAME:
            TRY(json_node_text(v, at, e));
            break;
        case ROW_ROPE: /* the last that is there counts */
            h->llama3 = (struct hf_llama3){0};
            h->rope_type = text_of("default");
            TRY(json_expect(v, JSON_OBJECT, e));
            TRY(read_rows(v, rope_rows, END_OF(rope_rows), h, e));
        }
    }
    return STATUS_OK;
}

/* Numbers that are 0 are not said. Reals are the shortest decimals that are read back as these
 * floats: "1e-05", not all digits of its double. */
static void put_rows(struct json *j, const struct config_row *r, const struct config_row *end,
                     const struct hf_config *h)
{
    for (; r < end; r++) {
        const char *key = h->family->is_llama ? r->llama : r->gpt2;
        const void *at = (const char *)h + r->offset;
        struct hf_config rope = *h;
        char shortest[32];
        if (!key || !(r->how & OUT) || (r->how == JOINED && !h->family->joins_by_head))
            continue;
        switch (r->kind) {
        case ROW_INT:
            if (*(const int *)at)
                json_int(j, key, *(const int *)at);
            break;
        case ROW_REAL:
            for (int digits = 1; digits <= 9; digits++) {
                chars_printf(shortest, "%.*g", digits, (double)(float)*(const double *)at);
                if (strtof(shortest, NULL) == (float)*(const double *)at)
                    break;
            }
            if (*(const double *)at != 0)
                json_literal(j, key, text_of(shortest));
            break;
        case ROW_BOOL:
            json_bool(j, key, *(const bool *)at);
            break;
        case ROW_NAME:
            json_text(j, key, *(const struct text *)at);
            break;
        case ROW_ROPE:
            if (str_is(key, "rope_scaling"))
                rope.theta = 0;
            if (rope.theta == 0 && text_is(h->rope_type, "default")) {
                json_null(j, key);
                break;
            }
            json_begin_object(j, key);
            put_rows(j, rope_rows, END_OF(rope_rows), &rope);
            json_end(j);
        }
    }
}

void hf_config_put(struct json *j, const struct hf_config *h)
{
    put_rows(j, config_rows, END_OF(config_rows), h);
}

/* --- rotary positions ------------------------------------------------------------------------ */

#define TWO_PI 6.283185307179586476925

static enum status settle_rope(struct hf_config *h, struct err *e)
{
    const struct hf_llama3 l = h->llama3;
    const bool is_llama3 = text_is(h->rope_type, "llama3"),
               linear = text_is(h->rope_type, "linear");
    if (!is_llama3)
        h->llama3 = (struct hf_llama3){0};
    if (h->c.position != POSITION_ROPE)
        return STATUS_OK;
    h->c.rope =
        (struct config_rope){.base = h->theta, .scale = linear && l.factor > 0 ? 1 / l.factor : 1};
    if (is_llama3 ? l.factor > 0 && l.low > 0 && l.high > l.low && l.context > 0
                  : linear || text_is(h->rope_type, "default"))
        return STATUS_OK;
    return err_bad_file(e,
                        "rotary positions: expected the type default, linear, or llama3 with "
                        "factor, low_freq_factor below high_freq_factor and "
                        "original_max_position_embeddings; found \"%.*s\", %g, %g, %g, %d",
                        SHOWN(h->rope_type), l.factor, l.low, l.high, l.context);
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

enum status hf_config_read(const struct json_node *object, struct hf_config *h, struct err *e)
{
    /* Keys that would change the computation; null and absent are right for all but those that mean
     * something else then. */
    static const char *const fixed[][2] = {
        {"scale_attn_weights", "true|null"},
        {"scale_attn_by_inverse_layer_idx", "false|null"},
        {"add_cross_attention", "false|null"},
        {"is_encoder_decoder", "false|null"},
        {"use_bidirectional_attention", "false|null"},
        {"quantization_config", "null"},
        {"partial_rotary_factor", "1|1.0|null"}, /* also in what is said of rotary positions */
    };
    struct config *c = &h->c;
    const struct json_node *type = json_present(object, "model_type");
    const struct hf_family *f = hf_family_find(type ? type->text : text_span(NULL, 0));
    if (!f || (!type && !json_present(object, "block_size")))
        return err_bad_file(e,
                            "\"model_type\": expected gpt2, gpt_bigcode, llama or mistral, which "
                            "run here; found \"%.*s\"",
                            SHOWN(json_shown(object, "model_type")));
    *h = (struct hf_config){.family = f,
                            .tied = !f->is_llama,
                            .biases = !f->is_llama,
                            .multi_query = true,
                            .eps = f->is_llama ? 1e-6 : 1e-5,
                            .theta = 10000,
                            .activation = text_of(f->activation),
                            .rope_type = text_of("default")};
    TRY(read_rows(object, config_rows, END_OF(config_rows), h, e));
    _Static_assert(CONFIG_MAX_WIDTH <= CONFIG_MAX_FF / 4,
                   "GPT-2's feed-forward is 4 times as wide");
    if (!c->d_ff)
        c->d_ff = 4 * c->d_model;
    if (f->joins_by_head) /* GPT-BigCode has one K/V head, or as many as heads */
        c->n_kv_heads = h->multi_query ? 1 : c->n_heads;
    const struct arch *arch = arch_find(text_of(f->arch));
    const struct activation *found = activations;
    while (found < END_OF(activations) &&
           (!text_is(h->activation, found->name) || (found->kind == FFN_SWIGLU) != f->is_llama))
        found++;
    if (found == END_OF(activations))
        return err_bad_file(e, "\"%s\": expected %s, which run here; found \"%.*s\"",
                            f->is_llama ? "hidden_act" : "activation_function",
                            f->is_llama ? "silu"
                                        : "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu or relu",
                            SHOWN(h->activation));
    /* What GGUF's architecture of that name cannot say is architecture decode. */
    config_set_arch(c, found->kind == arch->ffn ? arch : arch_find(text_of("decode")));
    c->ffn = found->kind;
    c->norm_eps = (float)h->eps;
    if (f->model_type)
        h->biases = !f->is_llama;
    else
        c->no_biases = c->no_norm_biases = !h->biases;
    if (!f->is_llama)
        h->bias[HF_NORMS] = h->bias[HF_ATTENTION] = h->bias[HF_FFN] = h->biases;
    TRY(settle_rope(h, e));
    const struct json_node *const objects[] = {object, json_present(object, "rope_scaling"),
                                               json_present(object, "rope_parameters")};
    for (int k = 0; k < (f->is_llama ? 3 : 1); k++)
        for (int i = 0; i < LENGTH(fixed); i++)
            if (!json_is_one_of(objects[k], fixed[i][0], fixed[i][1]))
                return err_bad_file(e, "expected \"%s\" to be %s, found %.*s", fixed[i][0],
                                    fixed[i][1], SHOWN(json_shown(objects[k], fixed[i][0])));
    /* As long as no more positions are there than a window has, all are attended to, as here. */
    if (h->window && h->window < c->n_ctx) {
        h->uncut_ctx = c->n_ctx;
        c->n_ctx = h->window;
    }
    return import_check_config(c, e);
}
