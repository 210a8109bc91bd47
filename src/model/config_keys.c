/* A config as a file's keys say it: read, checked, written. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"

/* --- reading --------------------------------------------------------------------------------- */

struct key_name {
    char text[96];
};

/* Of an architecture's key. */
static struct key_name arch_key(const struct config *c, const char *suffix)
{
    struct key_name key;
    snprintf(key.text, sizeof key.text, "%s.%s", c->arch->name, suffix);
    return key;
}

struct reader {
    const struct gguf *g;
    struct config *c;
    struct err *e;
};

/* Keys of one size each, in the order of a file that is written. */
enum { CONTEXT, WIDTH, FEED_FORWARD, LAYERS, HEADS, HEAD_DIM, VALUE_DIM, SIZE_KEYS };
static const struct size_key {
    const char *suffix;
    size_t offset; /* of an int in struct config */
    int max;
    bool required;
} size_keys[SIZE_KEYS] = {
    [CONTEXT] = {"context_length", offsetof(struct config, n_ctx), CONFIG_MAX_CTX, true},
    [WIDTH] = {"embedding_length", offsetof(struct config, d_model), CONFIG_MAX_WIDTH, true},
    [FEED_FORWARD] = {"feed_forward_length", offsetof(struct config, d_ff), CONFIG_MAX_FF, false},
    [LAYERS] = {"block_count", offsetof(struct config, n_layers), CONFIG_MAX_LAYERS, true},
    [HEADS] = {"attention.head_count", offsetof(struct config, n_heads), CONFIG_MAX_WIDTH, true},
    [HEAD_DIM] = {"attention.key_length", offsetof(struct config, head_dim), CONFIG_MAX_WIDTH,
                  false},
    [VALUE_DIM] = {"attention.value_length", offsetof(struct config, value_dim), CONFIG_MAX_WIDTH,
                   false},
};
#define KV_HEADS_KEY "attention.head_count_kv" /* one size, or one for each layer */
#define LATENT_KEY   "attention.latent"        /* one rank, or one for each layer */

static int *size_of_key(struct config *c, int key)
{
    return (int *)(void *)((char *)c + size_keys[key].offset);
}

/* A size that a file need not state stays 0. */
static enum status read_size(const struct reader *r, int key)
{
    const struct size_key *k = &size_keys[key];
    uint64_t value = 0;
    bool found = true;
    TRY(gguf_get_u64(r->g, arch_key(r->c, k->suffix).text, 1, k->max, &value,
                     k->required ? NULL : &found, r->e));
    *size_of_key(r->c, key) = found ? (int)value : 0;
    return STATUS_OK;
}

/* Rows of a two-dimensional tensor that gives a size no key holds. */
static enum status read_rows(const struct reader *r, const char *tensor, int max, int *out)
{
    const struct gguf_tensor *t = gguf_find_tensor(r->g, tensor);
    if (!t)
        return err_bad_file(r->e, "tensor %s: missing", tensor);
    if (t->n_dims != 2 || t->dims[1] > (uint64_t)max)
        return err_bad_file(
            r->e,
            "tensor %s: expected 2 dimensions and at most %d rows, found %d dimensions "
            "and %llu rows",
            tensor, max, t->n_dims, (unsigned long long)t->dims[1]);
    *out = (int)t->dims[1];
    return STATUS_OK;
}

/* A number strictly between two others, as a float too; `found` may be NULL. */
static enum status read_number(const struct reader *r, const char *suffix, double above,
                               double below, double *out, bool *found)
{
    const struct key_name key = arch_key(r->c, suffix);
    TRY(gguf_get_f64(r->g, key.text, out, found, r->e));
    if ((!found || *found) && !(*out > above && *out < below && (float)*out > (float)above))
        return err_bad_file(r->e, "%s: expected a number between %g and %g, found %g", key.text,
                            above, below, *out);
    return STATUS_OK;
}

/* Sizes of heads, none of which may make the rows of a product too long. */
static enum status read_heads(const struct reader *r)
{
    struct config *c = r->c;
    TRY(read_size(r, HEAD_DIM));
    TRY(read_size(r, VALUE_DIM));
    if (!c->head_dim && c->d_model % c->n_heads != 0)
        return err_bad_file(r->e, "%s: expected a divisor of embedding_length %d, found %d",
                            arch_key(c, size_keys[HEADS].suffix).text, c->d_model, c->n_heads);
    config_complete(c);
    for (int key = HEAD_DIM; key <= VALUE_DIM; key++)
        if (*size_of_key(c, key) > CONFIG_MAX_WIDTH / c->n_heads)
            return err_bad_file(r->e, "%s: expected at most %d for %d heads, found %d",
                                arch_key(c, size_keys[key].suffix).text,
                                CONFIG_MAX_WIDTH / c->n_heads, c->n_heads, *size_of_key(c, key));
    return STATUS_OK;
}

/* --- one number, or one for each layer --- */

/* The numbers [n_layers] of a key that is there. */
static enum status read_layers(const struct reader *r, const struct key_name *key, int64_t *numbers)
{
    const struct gguf_value *v = gguf_find(r->g, key->text);
    const bool is_array = v->kind == GGUF_ARRAY;
    const enum gguf_kind kind = is_array ? v->element_kind : v->kind;
    const int n_layers = r->c->n_layers;
    if (is_array && v->count != (uint64_t)n_layers)
        return err_bad_file(r->e, "%s: expected one number a layer, %d, found %llu", key->text,
                            n_layers, (unsigned long long)v->count);
    if (!gguf_is_integer(kind))
        return err_bad_file(r->e, "%s: expected integers, found %s", key->text,
                            gguf_kind_name(kind));
    for (int l = 0; l < n_layers; l++) {
        numbers[l] = gguf_int_at(v, is_array ? l : 0);
        if (r->c->shared && numbers[l] != numbers[0])
            return err_bad_file(r->e,
                                "%s: expected the same number in all layers, which share one "
                                "block; found several",
                                key->text);
    }
    return STATUS_OK;
}

static enum status read_kv_heads(const struct reader *r)
{
    struct config *c = r->c;
    const struct key_name key = arch_key(c, KV_HEADS_KEY);
    int64_t heads[CONFIG_MAX_LAYERS];
    c->n_kv_heads = c->n_heads;
    if (!gguf_find(r->g, key.text))
        return STATUS_OK;
    TRY(read_layers(r, &key, heads));
    c->n_kv_heads = 0;
    for (int l = 0; l < c->n_layers; l++) {
        if (heads[l] < 1 || heads[l] > c->n_heads || c->n_heads % heads[l] != 0)
            return err_bad_file(r->e, "%s: expected a divisor of head_count %d, found %lld",
                                key.text, c->n_heads, (long long)heads[l]);
        c->layer_kv_heads[l] = (int32_t)heads[l];
        c->n_kv_heads = heads[l] > c->n_kv_heads ? (int)heads[l] : c->n_kv_heads;
    }
    if (config_same_kv_heads(c))
        memset(c->layer_kv_heads, 0, sizeof c->layer_kv_heads);
    return STATUS_OK;
}

/* Keys and values are those of one head, whatever the file says of K/V heads; heads, width and
 * position are known. */
static enum status read_latent(const struct reader *r)
{
    struct config *c = r->c;
    const struct key_name key = arch_key(c, LATENT_KEY);
    const struct gguf_value *value = gguf_find(r->g, key.text);
    int64_t ranks[CONFIG_MAX_LAYERS];
    if (!value)
        return STATUS_OK;
    TRY(read_layers(r, &key, ranks));
    if (value->kind != GGUF_ARRAY && ranks[0] == 0)
        return STATUS_OK;
    for (int l = 0; l < c->n_layers; l++) {
        if (ranks[l] < 1 || ranks[l] > config_largest_rank(c))
            return err_bad_file(r->e,
                                "%s: expected a rank from 1 to %d in every layer, or 0 for none in "
                                "all; found %lld",
                                key.text, config_largest_rank(c), (long long)ranks[l]);
        c->latent[l] = (int32_t)ranks[l];
        c->layer_kv_heads[l] = 0;
    }
    if (c->position == POSITION_ROPE)
        return err_bad_file(r->e,
                            "%s: expected none with rotary positions, whose turns of keys a cache "
                            "for all heads cannot have; found %d",
                            key.text, (int)c->latent[0]);
    c->n_kv_heads = 1;
    return STATUS_OK;
}

/* --- rotary positions --- */

/* Frequencies fall, and angles stay small enough for their sines to mean something. */
#define ROPE_LEAST_BASE  1.0
#define ROPE_MOST_BASE   1e30
#define ROPE_MOST_FACTOR 1e9

#define SCALING_KEY "rope.scaling.type"

static enum status read_rope(const struct reader *r)
{
    struct config *c = r->c;
    const struct key_name key = arch_key(c, "rope.dimension_count");
    uint64_t n_dims = c->head_dim;
    bool found;
    if (c->position != POSITION_ROPE)
        return STATUS_OK;
    TRY(gguf_get_u64(r->g, key.text, 2, CONFIG_MAX_WIDTH, &n_dims, &found, r->e));
    if (!found && n_dims % 2 != 0)
        return err_bad_file(r->e, "%s: expected an even number, found %d, for rotary positions",
                            arch_key(c, size_keys[HEAD_DIM].suffix).text, c->head_dim);
    if (n_dims % 2 != 0 || n_dims > (uint64_t)c->head_dim)
        return err_bad_file(r->e, "%s: expected an even number of a head's %d elements, found %llu",
                            key.text, c->head_dim, (unsigned long long)n_dims);
    c->rope.n_dims = (int)n_dims;
    TRY(read_number(r, "rope.freq_base", ROPE_LEAST_BASE, ROPE_MOST_BASE, &c->rope.base, &found));
    /* "linear" divides positions by a factor; older files have that factor alone. */
    struct text type = text_of("linear");
    double factor = 1;
    TRY(read_number(r, "rope.scale_linear", CONFIG_LEAST_ROPE_FACTOR, ROPE_MOST_FACTOR, &factor,
                    &found));
    TRY(gguf_get_text(r->g, arch_key(c, SCALING_KEY).text, &type, &found, r->e));
    if (!text_is(type, "linear"))
        return STATUS_OK;
    TRY(read_number(r, "rope.scaling.factor", CONFIG_LEAST_ROPE_FACTOR, ROPE_MOST_FACTOR, &factor,
                    &found));
    c->rope.scale = 1 / factor;
    return STATUS_OK;
}

/* --- architecture `decode` --- */

/* Keys that name a kind. */
static const struct kind_key {
    const char *suffix;
    const char *const *names;
    size_t offset; /* of an enum in struct config */
} kind_keys[] = {
    {"norm.type", arch_norm_names, offsetof(struct config, norm)},
    {"norm.placement", arch_placement_names, offsetof(struct config, placement)},
    {"position.type", arch_position_names, offsetof(struct config, position)},
    {"feed_forward.type", arch_ffn_names, offsetof(struct config, ffn)},
};
#define N_KIND_KEYS (sizeof kind_keys / sizeof *kind_keys)

/* Enums without negative values are unsigned ints. */
static unsigned *kind_of_key(struct config *c, const struct kind_key *k)
{
    return (unsigned *)(void *)((char *)c + k->offset);
}

/* "gelu, relu or swiglu" */
static void list_names(const char *const *names, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; names[i] && used < size; i++)
        used += snprintf(out + used, size - used, "%s%s",
                         i == 0         ? ""
                         : names[i + 1] ? ", "
                                        : " or ",
                         names[i]);
}

/* Between them no square of an element overflows, or vanishes. */
#define LEAST_EMBEDDING_SCALE 1e-9
#define MOST_EMBEDDING_SCALE  1e9

static enum status read_own_keys(const struct reader *r)
{
    struct config *c = r->c;
    bool found;
    double scale = 1;
    for (size_t i = 0; i < N_KIND_KEYS; i++) {
        const struct kind_key *k = &kind_keys[i];
        const struct key_name key = arch_key(c, k->suffix);
        struct text name;
        char known[96];
        unsigned kind = 0;
        TRY(gguf_get_text(r->g, key.text, &name, NULL, r->e));
        while (k->names[kind] && !text_is(name, k->names[kind]))
            kind++;
        list_names(k->names, known, sizeof known);
        if (!k->names[kind])
            return err_bad_file(r->e, "%s: expected %s, found \"%.*s\"", key.text, known,
                                text_width(name), name.data);
        *kind_of_key(c, k) = kind;
    }
    TRY(gguf_get_bool(r->g, arch_key(c, "block.shared").text, &c->shared, &found, r->e));
    TRY(read_number(r, "embedding_scale", LEAST_EMBEDDING_SCALE, MOST_EMBEDDING_SCALE, &scale,
                    &found));
    c->embedding_scale = (float)scale;
    c->split_qkv = gguf_find_tensor(r->g, "blk.0.attn_q.weight") &&
                   !gguf_find_tensor(r->g, "blk.0.attn_qkv.weight");
    c->no_biases = !gguf_find_tensor(r->g, "blk.0.ffn_up.bias");
    return STATUS_OK;
}

/* --- what does not run --- */

/* Keys of other models that would change the results, and the values with which they do not. */
static const struct foreign_key {
    const char *suffix;
    double neutral, none; /* `none` says that there is no such thing */
    bool own;             /* architectures that have keys for their kinds have it */
} foreign_keys[] = {
    {"expert_count", 0, 0, false},
    {"attention.causal", 1, 1, false},
    {"attention.sliding_window", 0, 0, false},
    {"attention.clamp_kqv", 0, 0, false},
    {"attention.max_alibi_bias", 0, 0, false},
    {"attn_logit_softcapping", 0, 0, false},
    {"final_logit_softcapping", 0, 0, false},
    {"logit_scale", 1, 0, false},
    {"residual_scale", 1, 0, false},
    {"embedding_scale", 1, 0, true},
    {"attention.scale", 0, 0, false},
    {"rope.scaling.attn_factor", 1, 0, false},
    {"use_parallel_residual", 0, 0, false},
    {LATENT_KEY, 0, 0, true},
};

/* --- the whole --- */

#define MAX_ARCH_NAMES 8

enum status config_parse(const struct gguf *g, struct config *c, struct err *e)
{
    const struct reader r = {g, c, e};
    double eps = 0;
    struct text name;
    *c = (struct config){.arch = NULL};
    TRY(gguf_get_text(g, "general.architecture", &name, NULL, e));
    const struct arch *arch = arch_find(name);
    if (!arch) {
        const char *names[MAX_ARCH_NAMES + 1] = {0}; /* each once */
        char known[128];
        for (int i = 0, n = 0; arch_at(i) && n < MAX_ARCH_NAMES; i++)
            if (n == 0 || strcmp(arch_at(i)->name, names[n - 1]) != 0)
                names[n++] = arch_at(i)->name;
        list_names(names, known, sizeof known);
        return err_bad_file(e, "general.architecture: expected %s, found \"%.*s\"", known,
                            text_width(name), name.data);
    }
    config_set_arch(c, arch);
    TRY(read_size(&r, LAYERS));
    TRY(read_size(&r, WIDTH));
    TRY(read_size(&r, CONTEXT));
    TRY(read_size(&r, HEADS));
    if (c->arch->has_keys)
        TRY(read_own_keys(&r));
    TRY(read_heads(&r));
    TRY(read_kv_heads(&r));
    if (c->arch->has_keys)
        TRY(read_latent(&r));
    TRY(read_rope(&r));
    TRY(read_size(&r, FEED_FORWARD));
    if (!c->d_ff)
        TRY(read_rows(&r, "blk.0.ffn_up.weight", CONFIG_MAX_FF, &c->d_ff));
    TRY(read_number(&r, c->arch->norm_eps_key, 0, 1, &eps, NULL));
    c->norm_eps = (float)eps;
    TRY(read_rows(&r, "token_embd.weight", CONFIG_MAX_VOCAB, &c->n_vocab));
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (tokens && tokens->kind == GGUF_ARRAY && tokens->count != (uint64_t)c->n_vocab)
        return err_bad_file(
            e,
            "tokenizer.ggml.tokens: expected as many tokens as token_embd.weight has "
            "rows, %d, found %llu",
            c->n_vocab, (unsigned long long)tokens->count);
    return STATUS_OK;
}

enum status config_read(const struct gguf *g, struct config *c, struct err *e)
{
    TRY(config_parse(g, c, e));
    const struct key_name scaling = arch_key(c, SCALING_KEY);
    struct text type = text_of("none");
    bool found;
    TRY(gguf_get_text(g, scaling.text, &type, &found, e));
    if (c->position == POSITION_ROPE && !text_is(type, "none") && !text_is(type, "linear"))
        return err_bad_file(e,
                            "%s: expected \"none\" or \"linear\", which run here; found \"%.*s\"",
                            scaling.text, text_width(type), type.data);
    for (size_t i = 0; i < sizeof foreign_keys / sizeof *foreign_keys; i++) {
        const struct foreign_key *k = &foreign_keys[i];
        const struct key_name key = arch_key(c, k->suffix);
        const struct gguf_value *v = gguf_find(g, key.text);
        if (!v || (c->arch->has_keys && k->own))
            continue;
        const bool is_number = v->kind == GGUF_F32 || v->kind == GGUF_F64 || v->kind == GGUF_BOOL ||
                               gguf_is_integer(v->kind);
        const double value = is_number ? gguf_float_at(v, 0) : (double)NAN;
        if (value == k->neutral || value == k->none)
            continue;
        char number[32];
        snprintf(number, sizeof number, "%g", value);
        return err_bad_file(e, "%s: expected none or %g, because nothing else runs here; found %s",
                            key.text, k->neutral, is_number ? number : gguf_kind_name(v->kind));
    }
    return STATUS_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

bool config_is_kv_heads_key(const struct config *c, struct text key)
{
    return text_is(key, arch_key(c, KV_HEADS_KEY).text);
}

bool config_is_latent_key(const struct config *c, struct text key)
{
    return text_is(key, arch_key(c, LATENT_KEY).text);
}

void config_write_kv_heads(const struct config *c, struct gguf_writer *w)
{
    const struct key_name key = arch_key(c, KV_HEADS_KEY);
    if (config_same_kv_heads(c)) {
        /* What is latent takes the place of all heads' keys and values. */
        gguf_add_u32(w, key.text, config_is_latent(c) ? c->n_heads : c->n_kv_heads);
        return;
    }
    int32_t heads[CONFIG_MAX_LAYERS];
    for (int l = 0; l < c->n_layers; l++)
        heads[l] = config_kv_heads(c, l);
    gguf_add_array(w, key.text, GGUF_I32, heads, c->n_layers);
}

void config_write(const struct config *config, struct gguf_writer *w)
{
    struct config complete = *config, *c = &complete;
    config_complete(c);
    /* Those that follow from others are for those who chose them. */
    const bool own_dims = config_q_dim(c) != c->d_model || c->value_dim != c->head_dim;
    for (int key = 0; key < SIZE_KEYS; key++)
        if ((key != HEAD_DIM && key != VALUE_DIM) || own_dims)
            gguf_add_u32(w, arch_key(c, size_keys[key].suffix).text, *size_of_key(c, key));
    config_write_kv_heads(config, w);
    gguf_add_f32(w, arch_key(c, c->arch->norm_eps_key).text, c->norm_eps);
    if (c->position == POSITION_ROPE) {
        gguf_add_u32(w, arch_key(c, "rope.dimension_count").text, c->rope.n_dims);
        gguf_add_f32(w, arch_key(c, "rope.freq_base").text, (float)c->rope.base);
    }
    if (c->position == POSITION_ROPE && c->rope.scale != 1) {
        gguf_add_text(w, arch_key(c, SCALING_KEY).text, text_of("linear"));
        gguf_add_f32(w, arch_key(c, "rope.scaling.factor").text, (float)(1 / c->rope.scale));
    }
    for (size_t i = 0; i < N_KIND_KEYS && c->arch->has_keys; i++)
        gguf_add_text(w, arch_key(c, kind_keys[i].suffix).text,
                      text_of(kind_keys[i].names[*kind_of_key(c, &kind_keys[i])]));
    if (c->arch->has_keys) {
        gguf_add_bool(w, arch_key(c, "block.shared").text, c->shared);
        gguf_add_f32(w, arch_key(c, "embedding_scale").text,
                     c->embedding_scale > 0 ? c->embedding_scale : 1.0f);
    }
    const struct key_name latent = arch_key(c, LATENT_KEY);
    if (config_is_latent(c) && config_same_latent(c))
        gguf_add_u32(w, latent.text, c->latent[0]);
    else if (config_is_latent(c))
        gguf_add_array(w, latent.text, GGUF_I32, c->latent, c->n_layers);
}
