#include "exchange/hf_config.h"

#include <inttypes.h>
#include <string.h>

#include "compute/angles.h"
#include "exchange/import_source.h"

#define TWO_PI 6.283185307179586476925

/* --- values ---------------------------------------------------------------------------------- */

/* A member that is there and is not null. */
static const struct json_node *member_of(const struct json_node *object, const char *key)
{
    const struct json_node *v = key ? json_member(object, key) : NULL;
    return v && v->kind != JSON_NULL ? v : NULL;
}

/* An optional number; *out stays where there is none. */
static enum status read_double(const struct json_node *object, const char *key, double above,
                               double below, double *out, struct err *e)
{
    const struct json_node *v = member_of(object, key);
    if (!v)
        return STATUS_OK;
    TRY(json_node_double(v, out, e));
    if (!(*out > above && *out < below))
        return err_set(e, STATUS_BAD_FILE, "\"%s\": expected a number between %g and %g, found %g",
                       key, above, below, *out);
    return STATUS_OK;
}

static enum status read_int(const struct json_node *object, const char *key, int max, int *out,
                            struct err *e)
{
    const struct json_node *v = member_of(object, key);
    int64_t value = 0;
    if (v)
        TRY(json_node_i64(v, 1, max, &value, e));
    *out = (int)value;
    return STATUS_OK;
}

static enum status read_bool(const struct json_node *object, const char *key, bool *out,
                             struct err *e)
{
    const struct json_node *v = member_of(object, key);
    return v ? json_node_bool(v, out, e) : STATUS_OK;
}

/* --- which model ----------------------------------------------------------------------------- */

static enum status find_family(const struct json_node *object, const struct hf_family **out,
                               struct err *e)
{
    struct text type;
    const struct json_node *v = member_of(object, "model_type");
    if (!v && member_of(object, "block_size"))
        for (int i = 0; (*out = hf_family_at(i)) && (*out)->model_type;)
            i++;
    else {
        TRY(json_require(object, "model_type", JSON_STRING, &v, e));
        TRY(json_node_text(v, &type, e));
        *out = hf_family_find(type);
    }
    if (*out)
        return STATUS_OK;
    return err_set(e, STATUS_BAD_FILE,
                   "\"model_type\": expected gpt2, gpt_bigcode, llama or mistral, which run here; "
                   "found \"%.*s\"",
                   text_width(v->text), v->text.data);
}

/* Keys that would change the computation, and what they must be, as JSON has it; null and absent
 * are right for all but those that mean something else then. */
static const struct {
    const char *key, *expected;
} fixed[] = {
    {"scale_attn_weights", "true"},           {"scale_attn_by_inverse_layer_idx", "false"},
    {"add_cross_attention", "false"},         {"is_encoder_decoder", "false"},
    {"use_bidirectional_attention", "false"}, {"quantization_config", "null"},
};

static enum status refuse_others(const struct json_node *object, struct err *e)
{
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const struct json_node *v = member_of(object, fixed[i].key);
        if (v && !text_is(v->text, fixed[i].expected))
            return err_set(e, STATUS_BAD_FILE,
                           "\"%s\": expected %s, because nothing else runs here; found %.*s",
                           fixed[i].key, fixed[i].expected,
                           v->kind == JSON_OBJECT ? 9 : text_width(v->text),
                           v->kind == JSON_OBJECT ? "an object" : v->text.data);
    }
    return STATUS_OK;
}

/* --- sizes ----------------------------------------------------------------------------------- */

static int *size_of(struct config *c, enum hf_size size)
{
    return (int *)(void *)((char *)c + hf_sizes[size].offset);
}

/* Those that have no default. */
static bool is_required(const struct hf_family *f, enum hf_size size)
{
    if (size == HF_FF)
        return !f->tied; /* 4 d_model for GPT-2 */
    return size != HF_KV_HEADS && size != HF_HEAD_DIM;
}

static enum status read_sizes(const struct json_node *object, const struct hf_family *f,
                              struct config *c, struct err *e)
{
    for (enum hf_size i = 0; i < HF_SIZES; i++) {
        TRY(read_int(object, f->keys[i], hf_sizes[i].max, size_of(c, i), e));
        if (!*size_of(c, i) && is_required(f, i))
            return err_set(e, STATUS_BAD_FILE, "\"%s\": missing", f->keys[i]);
    }
    if (!c->d_ff && c->d_model > CONFIG_MAX_FF / 4)
        return err_set(e, STATUS_BAD_FILE, "\"%s\": expected at most %d, found %d",
                       f->keys[HF_D_MODEL], CONFIG_MAX_FF / 4, c->d_model);
    if (!c->d_ff)
        c->d_ff = 4 * c->d_model;
    TRY(read_int(object, "vocab_size", CONFIG_MAX_VOCAB, &c->n_vocab, e));
    return c->n_vocab ? STATUS_OK : err_set(e, STATUS_BAD_FILE, "\"vocab_size\": missing");
}

/* GPT-BigCode says by a bool whether there is one K/V head, or as many as heads. */
static enum status read_multi_query(const struct json_node *object, const struct hf_family *f,
                                    struct config *c, struct err *e)
{
    bool multi_query = true;
    if (!f->joins_by_head)
        return STATUS_OK;
    TRY(read_bool(object, "multi_query", &multi_query, e));
    c->n_kv_heads = multi_query ? 1 : c->n_heads;
    return STATUS_OK;
}

/* --- rotary positions ------------------------------------------------------------------------ */

static enum status read_llama3(const struct json_node *rope, struct hf_llama3 *l, struct err *e)
{
    TRY(read_double(rope, "factor", 0, 1e9, &l->factor, e));
    TRY(read_double(rope, "low_freq_factor", 0, 1e9, &l->low, e));
    TRY(read_double(rope, "high_freq_factor", 0, 1e9, &l->high, e));
    TRY(read_int(rope, "original_max_position_embeddings", CONFIG_MAX_CTX, &l->context, e));
    if (!(l->factor > 0 && l->low > 0 && l->high > l->low && l->context > 0))
        return err_set(e, STATUS_BAD_FILE,
                       "rotary positions of type llama3: expected factor, low_freq_factor below "
                       "high_freq_factor and original_max_position_embeddings; found %g, %g, %g, "
                       "%d",
                       l->factor, l->low, l->high, l->context);
    return STATUS_OK;
}

static enum status read_scaling(const struct json_node *rope, struct config *c, struct hf_config *h,
                                struct err *e)
{
    const struct json_node *v = member_of(rope, "rope_type");
    struct text type = text_of("default");
    double factor = 1;
    if (!v)
        v = member_of(rope, "type"); /* before 2024 */
    if (v)
        TRY(json_node_text(v, &type, e));
    if (text_is(type, "llama3"))
        return read_llama3(rope, &h->llama3, e);
    if (text_is(type, "linear")) {
        TRY(read_double(rope, "factor", CONFIG_LEAST_ROPE_FACTOR, 1e9, &factor, e));
        c->rope.scale = 1 / factor;
        return STATUS_OK;
    }
    if (!text_is(type, "default"))
        return err_set(e, STATUS_BAD_FILE,
                       "rotary positions: expected the type default, linear or llama3, which run "
                       "here; found \"%.*s\"",
                       text_width(type), type.data);
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
    const struct json_node *rope = member_of(object, "rope_parameters");
    if (!rope)
        rope = member_of(object, "rope_scaling");
    if (rope) {
        TRY(json_expect(rope, JSON_OBJECT, e));
        TRY(read_double(rope, "rope_theta", 1, 1e30, &c->rope.base, e));
        TRY(read_double(rope, "partial_rotary_factor", 0, 2, &share, e));
        TRY(read_scaling(rope, c, h, e));
    }
    if (share != 1)
        return err_set(e, STATUS_BAD_FILE,
                       "\"partial_rotary_factor\": expected none or 1, because whole heads turn in "
                       "a llama; found %g",
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

/* As long as no more positions are there than a window has, all are attended to, as here. */
static enum status cut_to_window(const struct json_node *object, struct config *c,
                                 struct hf_config *h, struct err *e)
{
    int window = 0;
    TRY(read_int(object, "sliding_window", INT32_MAX, &window, e));
    if (window && window < c->n_ctx) {
        h->uncut_ctx = c->n_ctx;
        c->n_ctx = window;
    }
    return STATUS_OK;
}

/* --- biases ---------------------------------------------------------------------------------- */

static enum status read_biases(const struct json_node *object, struct config *c,
                               struct hf_config *h, struct err *e)
{
    const struct hf_family *f = h->family;
    bool all = f->biases;
    if (!f->model_type) {
        all = true;
        TRY(read_bool(object, "bias", &all, e));
        c->no_biases = !all;
    }
    h->norm_biases = h->attention_biases = h->ffn_biases = all;
    if (!f->rotates_halves)
        return STATUS_OK;
    TRY(read_bool(object, "attention_bias", &h->attention_biases, e));
    return read_bool(object, "mlp_bias", &h->ffn_biases, e);
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

/* --- kinds ----------------------------------------------------------------------------------- */

static enum status read_kinds(const struct json_node *object, const struct hf_family *f,
                              struct config *c, struct err *e)
{
    const struct json_node *v = member_of(object, f->activation_key);
    struct text name = text_of(f->activation);
    enum ffn_kind ffn;
    const bool gated = arch_find(text_of(f->arch))->ffn == FFN_SWIGLU;
    if (v)
        TRY(json_node_text(v, &name, e));
    if (!hf_activation_find(name, &ffn) || (ffn == FFN_SWIGLU) != gated)
        return err_set(e, STATUS_BAD_FILE, "\"%s\": expected %s, which run here; found \"%.*s\"",
                       f->activation_key,
                       gated ? "silu" : "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu or relu",
                       text_width(name), name.data);
    const struct arch *arch = arch_find(text_of(f->arch));
    /* What GGUF's architecture of that name cannot say. */
    if (ffn != arch->ffn)
        arch = arch_find(text_of("decode"));
    config_set_arch(c, arch);
    c->ffn = ffn;
    return STATUS_OK;
}

enum status hf_config_read(const struct json_node *object, struct config *c, struct hf_config *h,
                           struct err *e)
{
    double eps = 1e-5;
    *c = (struct config){.arch = NULL};
    *h = (struct hf_config){.family = NULL};
    TRY(json_expect(object, JSON_OBJECT, e));
    TRY(find_family(object, &h->family, e));
    const struct hf_family *f = h->family;
    TRY(read_sizes(object, f, c, e));
    TRY(read_multi_query(object, f, c, e));
    TRY(read_kinds(object, f, c, e));
    TRY(read_biases(object, c, h, e));
    TRY(read_rope(object, c, h, e));
    if (strcmp(f->arch, "llama") == 0)
        eps = 1e-6;
    TRY(read_double(object, f->eps_key, 0, 1, &eps, e));
    c->norm_eps = (float)eps;
    h->tied = f->tied;
    TRY(read_bool(object, "tie_word_embeddings", &h->tied, e));
    TRY(refuse_others(object, e));
    TRY(cut_to_window(object, c, h, e));
    return import_check_config(c, e);
}
