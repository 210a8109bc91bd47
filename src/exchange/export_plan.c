#include "exchange/export_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "gguf/blocks.h"
#include "model/model.h"

/* What Llama 3.1 and its successors were made with. */
#define LLAMA3_LOW      1.0
#define LLAMA3_HIGH     4.0
#define LLAMA3_CONTEXT0 256
/* Factors of files were computed in floats by others. */
#define FACTOR_ERROR 1e-5

static enum status refuse(struct err *e, const char *what)
{
    return err_set(e, STATUS_USAGE, "transformers has no model with %s", what);
}

static bool has_tensor(const struct gguf *g, enum tensor_role role, bool is_bias)
{
    return gguf_find_tensor(g, arch_tensor_name(role, 0, is_bias).text) != NULL;
}

static bool has_bias_of(const struct gguf *g, const enum tensor_role *roles, int n)
{
    for (int i = 0; i < n; i++)
        if (has_tensor(g, roles[i], true))
            return true;
    return false;
}

/* --- rotary positions ------------------------------------------------------------------------ */

static bool same_factors(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= FACTOR_ERROR * fabs((double)b[i])))
            return false;
    return true;
}

/* Only the factors are in a file: what they follow from is found by trying; those that are tried
 * are made behind them. */
static bool find_llama3(const struct config *c, float *factors, struct hf_llama3 *out)
{
    const int n = c->rope.n_dims / 2;
    float *made = factors + n;
    *out = (struct hf_llama3){(double)factors[n - 1], LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_CONTEXT0};
    for (; out->context <= CONFIG_MAX_CTX; out->context *= 2) {
        hf_llama3_factors(out, c, made);
        if (same_factors(factors, made, n))
            return true;
    }
    return false;
}

static enum status plan_rope(struct export_plan *p, struct err *e)
{
    const struct gguf_tensor *t =
        gguf_find_tensor(p->gguf, arch_tensor_name(ROLE_ROPE_FREQS, 0, false).text);
    if (p->from.rope.n_dims != p->from.head_dim)
        return refuse(e, "RMS norms and a part of each head turned");
    if (!t)
        return STATUS_OK;
    float *factors = calloc(2 * t->n_elements + 1, sizeof *factors);
    if (!factors)
        return err_no_memory(e, "the factors of rotary frequencies", t->n_elements);
    blocks_decode(t->type->type, factors, t->data, t->n_elements);
    const bool known = p->from.rope.scale == 1 && find_llama3(&p->from, factors, &p->hf.llama3);
    free(factors);
    if (!known)
        return refuse(e, "these factors of rotary frequencies (rope_freqs.weight): they are not "
                         "those of Llama 3.1");
    return STATUS_OK;
}

/* --- kinds ----------------------------------------------------------------------------------- */

static bool is_gpt2_like(const struct config *c)
{
    return c->norm == NORM_LAYER && c->position == POSITION_LEARNED && c->ffn != FFN_SWIGLU;
}

static bool is_llama_like(const struct config *c)
{
    return c->norm == NORM_RMS && c->position == POSITION_ROPE && c->ffn == FFN_SWIGLU;
}

static enum status refuse_kinds(const struct config *c, struct err *e)
{
    if (c->placement != PLACEMENT_BEFORE)
        return refuse(e, "norms behind the residual here and these positions (post-LN)");
    if (c->embedding_scale > 0 && c->embedding_scale != 1)
        return refuse(e, "a scaled embedding here");
    if (config_is_latent(c))
        return refuse(e, "a latent cache");
    if (c->head_dim != config_value_dim(c))
        return refuse(e, "values of another size than keys");
    if (!is_gpt2_like(c) && !is_llama_like(c))
        return err_set(
            e, STATUS_USAGE,
            "transformers' GPT-2 has layer norms, learned positions and GELU or ReLU, its "
            "Llama RMS norms, rotary positions and SwiGLU; found norm %s, positions %s, "
            "feed-forward %s",
            arch_norm_names[c->norm], arch_position_names[c->position], arch_ffn_names[c->ffn]);
    return STATUS_OK;
}

/* --- families -------------------------------------------------------------------------------- */

static enum status refuse_variant(const struct config *c, const char *family, struct err *e)
{
    char name[16];
    config_variant_name(c, c->n_kv_heads, name);
    return err_set(e, STATUS_USAGE,
                   "transformers has no %s of variant %s; --expand repeats its K/V heads, which "
                   "makes the same MHA of it",
                   family, name);
}

static enum status plan_gpt2(struct export_plan *p, bool expand, struct err *e)
{
    const struct config *c = &p->from;
    const bool mha = config_all_kv_heads(c) == (int64_t)c->n_layers * c->n_heads;
    const bool mqa = config_all_kv_heads(c) == c->n_layers;
    const bool is_starcoder = strcmp(c->arch->name, "starcoder") == 0;
    if (config_q_dim(c) != c->d_model)
        return refuse(e, "learned positions and heads of this size");
    if (has_tensor(p->gguf, ROLE_OUTPUT, true))
        return refuse(e, "learned positions and a bias of the output");
    if (!expand && !mha && !mqa)
        return refuse_variant(c, "GPT-2", e);
    const bool bigcode = !expand && (mha ? is_starcoder : mqa);
    p->hf.family = hf_family_find(text_of(bigcode ? "gpt_bigcode" : "gpt2"));
    p->hf.norm_biases = p->hf.attention_biases = p->hf.ffn_biases = true;
    return STATUS_OK;
}

static enum status plan_llama(struct export_plan *p, bool expand, struct err *e)
{
    static const enum tensor_role attention[] = {ROLE_ATTN_Q, ROLE_ATTN_K, ROLE_ATTN_V,
                                                 ROLE_ATTN_QKV, ROLE_ATTN_OUTPUT};
    static const enum tensor_role ffn[] = {ROLE_FFN_GATE, ROLE_FFN_UP, ROLE_FFN_DOWN};
    static const enum tensor_role others[] = {ROLE_ATTN_NORM, ROLE_FFN_NORM, ROLE_OUTPUT_NORM,
                                              ROLE_OUTPUT};
    TRY(plan_rope(p, e));
    if (has_bias_of(p->gguf, others, sizeof others / sizeof *others))
        return refuse(e, "RMS norms and biases of norms or the output");
    if (!expand && !config_same_kv_heads(&p->from))
        return refuse_variant(&p->from, "Llama", e);
    p->hf.attention_biases = has_bias_of(p->gguf, attention, sizeof attention / sizeof *attention);
    p->hf.ffn_biases = has_bias_of(p->gguf, ffn, sizeof ffn / sizeof *ffn);
    p->hf.family = hf_family_find(text_of("llama"));
    return STATUS_OK;
}

/* What is written, in our terms. */
static struct config target_of(const struct export_plan *p, bool expand)
{
    struct config to = p->from;
    config_set_arch(&to, arch_find(text_of(p->hf.family->arch)));
    to.ffn = p->from.ffn;
    to.no_biases = false;
    to.shared = false;
    memset(to.layer_kv_heads, 0, sizeof to.layer_kv_heads);
    to.n_kv_heads = expand ? to.n_heads : to.n_kv_heads;
    return to;
}

enum status export_plan_make(const struct gguf *g, bool expand, struct export_plan *out,
                             struct err *e)
{
    *out = (struct export_plan){.gguf = g};
    TRY(model_check(g, e));
    TRY(config_read(g, &out->from, e));
    TRY(refuse_kinds(&out->from, e));
    if (has_tensor(g, ROLE_TOKEN_EMBD, true))
        return refuse(e, "a bias of the embedding");
    TRY(is_gpt2_like(&out->from) ? plan_gpt2(out, expand, e) : plan_llama(out, expand, e));
    out->to = target_of(out, expand);
    out->hf.tied = layout_output_tied(g);
    return STATUS_OK;
}
