#include "model/config.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"

/* --- architectures --------------------------------------------------------------------------- */

const char *const arch_norm_names[NORM_KINDS + 1] = {[NORM_LAYER] = "layer", [NORM_RMS] = "rms"};

const char *const arch_placement_names[PLACEMENTS + 1] = {
    [PLACEMENT_BEFORE] = "before",
    [PLACEMENT_AFTER] = "after",
    [PLACEMENT_PARALLEL] = "parallel",
    [PLACEMENT_ALONE] = "alone",
};

const char *const arch_position_names[POSITION_KINDS + 1] = {
    [POSITION_LEARNED] = "learned", [POSITION_SINUSOIDAL] = "sinusoidal", [POSITION_ROPE] = "rope",
    [POSITION_ALIBI] = "alibi",     [POSITION_QUADRATIC] = "quadratic",   [POSITION_NONE] = "none",
};

const char *const arch_ffn_names[FFN_KINDS + 1] = {
    [FFN_GELU] = "gelu",     [FFN_GELU_ERF] = "gelu_erf", [FFN_RELU] = "relu",
    [FFN_SWIGLU] = "swiglu", [FFN_GEGLU] = "geglu",
};

const char *const arch_score_names[SCORE_KINDS + 1] = {
    [SCORE_DOT] = "dot", [SCORE_ADDITIVE] = "additive"};

const char *const arch_names[] = {"gpt2",     "starcoder", "llama",  "gptneox", "phi2",  "falcon",
                                  "bloom",    "mpt",       "qwen2",  "qwen3",   "gemma", "gemma3",
                                  "stablelm", "olmo",      "decode", NULL};

#define LAYER_EPS "attention.layer_norm_epsilon"
#define RMS_EPS   "attention.layer_norm_rms_epsilon"

/* What rows have in common. */
#define NAMED(x)   .name = (x), .preset = (x)
#define LAYER_NORM .norm_eps_key = LAYER_EPS
#define RMS_NORM   .norm_eps_key = RMS_EPS, .norm = NORM_RMS
#define TURNED_QKV .position = POSITION_ROPE, .split_qkv = true
#define GEMMA                                                                                      \
    RMS_NORM, TURNED_QKV, .ffn = FFN_GEGLU, .biases = BIASES_NONE, .own_head_dim = true,           \
                          .scales_embedding = true
#define DECODE                                                                                     \
    .name = "decode", .norm_eps_key = "norm.epsilon", .window_period = 1, .has_keys = true

static const struct arch archs[] = {
    {NAMED("gpt2"), LAYER_NORM, .is_open = true},
    {.name = "starcoder", LAYER_NORM, .is_open = true},
    {NAMED("llama"), RMS_NORM, TURNED_QKV, .ffn = FFN_SWIGLU, .biases = BIASES_NONE,
     .own_head_dim = true, .own_output = true, .window_period = 1},
    {NAMED("gptneox"), LAYER_NORM, .placement = PLACEMENT_PARALLEL, .position = POSITION_ROPE,
     .ffn = FFN_GELU_ERF, .parts = {.rope_halves = true}, .rope_share = 0.25f,
     .has_parallel_key = true, .own_output = true, .needs_output = true},
    {NAMED("phi2"), LAYER_NORM, TURNED_QKV, .placement = PLACEMENT_PARALLEL,
     .parts = {.one_norm = true, .rope_halves = true, .output_bias = true}, .rope_share = 0.5f,
     .own_output = true, .needs_output = true},
    {NAMED("falcon"), LAYER_NORM, .placement = PLACEMENT_PARALLEL, .position = POSITION_ROPE,
     .ffn = FFN_GELU_ERF, .parts = {.one_norm = true, .rope_halves = true}, .biases = BIASES_NONE},
    {NAMED("bloom"), LAYER_NORM, .position = POSITION_ALIBI, .parts = {.embedding_norm = true}},
    {NAMED("mpt"), LAYER_NORM, .position = POSITION_ALIBI, .ffn = FFN_GELU_ERF,
     .parts = {.no_norm_biases = true}, .biases = BIASES_NONE},
    {NAMED("qwen2"), RMS_NORM, TURNED_QKV, .ffn = FFN_SWIGLU, .parts = {.rope_halves = true},
     .biases = BIASES_QKV},
    {NAMED("qwen3"), RMS_NORM, TURNED_QKV, .ffn = FFN_SWIGLU,
     .parts = {.qk_norms = true, .rope_halves = true}, .biases = BIASES_NONE, .own_head_dim = true},
    {NAMED("gemma"), GEMMA, .parts = {.rope_halves = true}},
    {NAMED("gemma3"), GEMMA, .parts = {.qk_norms = true, .added_norms = true, .rope_halves = true},
     .window_period = 6},
    {NAMED("stablelm"), LAYER_NORM, TURNED_QKV, .ffn = FFN_SWIGLU, .parts = {.rope_halves = true},
     .biases = BIASES_NONE, .rope_share = 0.25f, .has_parallel_key = true, .own_output = true,
     .needs_output = true},
    {NAMED("olmo"), LAYER_NORM, TURNED_QKV, .ffn = FFN_SWIGLU, .parts = {.no_norm_weights = true},
     .biases = BIASES_NONE, .own_output = true},
    {DECODE, .preset = "decode"},
    {DECODE, .preset = "transformer", .placement = PLACEMENT_AFTER, .position = POSITION_SINUSOIDAL,
     .ffn = FFN_RELU, .scales_embedding = true},
};

const struct arch *arch_find(struct text name)
{
    for (const struct arch *a = archs; a < archs + LENGTH(archs); a++)
        if (text_is(name, a->name))
            return a;
    return NULL;
}

const struct arch *arch_preset(struct text name)
{
    for (const struct arch *a = archs; a < archs + LENGTH(archs); a++)
        if (a->preset && text_is(name, a->preset))
            return a;
    return NULL;
}

/* --- what a config says ---------------------------------------------------------------------- */

void config_set_arch(struct config *c, const struct arch *arch)
{
    c->arch = arch;
    c->norm = arch->norm;
    c->placement = arch->placement;
    c->position = arch->position;
    c->ffn = arch->ffn;
    c->parts = arch->parts;
    c->biases = arch->biases;
    c->split_qkv = arch->split_qkv;
    c->embedding_scale = arch->scales_embedding ? sqrtf((float)c->d_model) : 1;
}

const char *config_score_refusal(const struct config *c)
{
    return c->score != SCORE_ADDITIVE          ? NULL
           : c->position == POSITION_ROPE      ? "rope positions rotate queries and keys, which "
                                                 "tells distances to their dot products only"
           : c->position == POSITION_QUADRATIC ? "quadratic positions are for dot products"
           : c->score_scale != 0               ? "they have no scale: their weights are trained"
                                               : NULL;
}

enum status config_needs_dot(const struct config *c, const char *what, struct err *e)
{
    if (c->score == SCORE_DOT)
        return STATUS_OK;
    return err_usage(
        e, "%s: expected a checkpoint whose scores are dot products, found additive ones", what);
}

float config_score_scale(const struct config *c)
{
    if (c->score == SCORE_ADDITIVE)
        return 1;
    return c->score_scale != 0 ? c->score_scale : 1.0f / sqrtf((float)c->head_dim);
}

void config_complete(struct config *c)
{
    if (!c->n_kv_heads)
        c->n_kv_heads = c->n_heads;
    if (!c->head_dim)
        c->head_dim = c->d_model / c->n_heads;
    if (!c->value_dim)
        c->value_dim = c->head_dim;
    if (c->position != POSITION_ROPE)
        return;
    if (!c->rope.n_dims)
        c->rope.n_dims = c->head_dim;
    if (!(c->rope.base > 0))
        c->rope.base = 10000;
    if (!(c->rope.scale > 0))
        c->rope.scale = 1;
    if (c->arch->window_period > 1 && !(c->rope.window_base > 0))
        c->rope.window_base = 10000;
}

int64_t config_all_kv_heads(const struct config *c)
{
    int64_t n = 0;
    for (int l = 0; l < c->n_layers; l++)
        n += config_kv_heads(c, l);
    return n;
}

bool config_same_kv_heads(const struct config *c)
{
    return config_all_kv_heads(c) == (int64_t)c->n_layers * c->n_kv_heads;
}

bool config_has_windows(const struct config *c)
{
    for (int l = 0; l < c->n_layers; l++)
        if (c->layer_window[l])
            return true;
    return false;
}

bool config_has_variant(const struct config *c, int n_kv_heads)
{
    for (int l = 0; l < c->n_layers; l++)
        if (c->n_heads % config_variant_heads(c, n_kv_heads, l) != 0)
            return false;
    return true;
}

void config_variant_name(const struct config *c, char *name)
{
    const int n = c->n_kv_heads;
    const bool is_mixed = !config_same_kv_heads(c);
    if (n == c->n_heads && !is_mixed)
        snprintf(name, 16, "MHA");
    else if (is_mixed)
        snprintf(name, 16, "GQA-mixed-%d", n);
    else if (n == 1)
        snprintf(name, 16, "MQA");
    else
        snprintf(name, 16, "GQA-%d", n);
}

void config_list_layers(const struct config *c, bool windows, char *list, size_t size)
{
    const bool differ = windows ? config_has_windows(c) : !config_same_kv_heads(c);
    size_t used = 0;
    list[0] = 0;
    for (int l = 0; l < c->n_layers && differ && used < size; l++)
        used += snprintf(list + used, size - used, "%s%d", l ? ", " : "",
                         windows ? c->layer_window[l] : config_kv_heads(c, l));
}
