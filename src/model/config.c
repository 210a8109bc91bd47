#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_keys.h"

void config_set_arch(struct config *c, const struct arch *arch)
{
    c->arch = arch;
    c->norm = arch->norm;
    c->placement = arch->placement;
    c->position = arch->position;
    c->ffn = arch->ffn;
    c->no_biases = arch->no_biases;
    c->split_qkv = arch->split_qkv;
    c->embedding_scale = arch->scales_embedding ? sqrtf((float)c->d_model) : 1;
}

/* --- sizes ----------------------------------------------------------------------------------- */

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

static int *size_of_key(struct config *c, const struct size_key *k)
{
    return (int *)(void *)((char *)c + k->offset);
}

/* A size that a file need not state stays 0. */
static enum status read_size(const struct gguf *g, struct config *c, int key, struct err *e)
{
    const struct size_key *k = &size_keys[key];
    uint64_t value = 0;
    bool found = true;
    TRY(gguf_get_u64(g, arch_key(c, k->suffix).text, 1, (uint64_t)k->max, &value,
                     k->required ? NULL : &found, e));
    *size_of_key(c, k) = found ? (int)value : 0;
    return STATUS_OK;
}

/* Rows of a two-dimensional tensor that gives a size no key holds. */
static enum status rows_of(const struct gguf *g, enum tensor_role role, int max, int *out,
                           struct err *e)
{
    const struct tensor_name name = arch_tensor_name(role, 0, false);
    const struct gguf_tensor *t = gguf_find_tensor(g, name.text);
    if (!t)
        return err_set(e, STATUS_BAD_FILE, "tensor %s: missing", name.text);
    if (t->n_dims != 2 || t->dims[1] > (uint64_t)max)
        return err_set(e, STATUS_BAD_FILE,
                       "tensor %s: expected 2 dimensions and at most %d rows, found %d dimensions "
                       "and %llu rows",
                       name.text, max, t->n_dims, (unsigned long long)t->dims[1]);
    *out = (int)t->dims[1];
    return STATUS_OK;
}

/* --- K/V heads ------------------------------------------------------------------------------- */

static enum status check_kv_heads(const struct config *c, int64_t n, struct err *e)
{
    if (n < 1 || n > c->n_heads || c->n_heads % n != 0)
        return err_set(e, STATUS_BAD_FILE, "%s: expected a divisor of head_count %d, found %lld",
                       arch_key(c, KV_HEADS_KEY).text, c->n_heads, (long long)n);
    return STATUS_OK;
}

enum status config_check_layers(const struct gguf_value *array, const struct config *c,
                                const struct key_name *key, struct err *e)
{
    if (array->count != (uint64_t)c->n_layers)
        return err_set(e, STATUS_BAD_FILE, "%s: expected one number a layer, %d, found %llu",
                       key->text, c->n_layers, (unsigned long long)array->count);
    if (!gguf_is_integer(array->element_kind))
        return err_set(e, STATUS_BAD_FILE, "%s: expected integers, found %s", key->text,
                       gguf_kind_name(array->element_kind));
    return STATUS_OK;
}

static enum status read_layer_kv_heads(const struct gguf_value *array, struct config *c,
                                       struct err *e)
{
    const struct key_name key = arch_key(c, KV_HEADS_KEY);
    TRY(config_check_layers(array, c, &key, e));
    c->n_kv_heads = 0;
    for (int l = 0; l < c->n_layers; l++) {
        const int64_t n = gguf_int_at(array, (uint64_t)l);
        TRY(check_kv_heads(c, n, e));
        c->layer_kv_heads[l] = (int32_t)n;
        c->n_kv_heads = (int)n > c->n_kv_heads ? (int)n : c->n_kv_heads;
    }
    if (c->shared && !config_same_kv_heads(c))
        return err_set(e, STATUS_BAD_FILE,
                       "%s: expected the same number in all layers, which share one block; found "
                       "several",
                       key.text);
    return STATUS_OK;
}

static enum status read_kv_heads(const struct gguf *g, struct config *c, struct err *e)
{
    const struct key_name key = arch_key(c, KV_HEADS_KEY);
    const struct gguf_value *value = gguf_find(g, key.text);
    if (value && value->kind == GGUF_ARRAY)
        return read_layer_kv_heads(value, c, e);
    uint64_t n = (uint64_t)c->n_heads;
    bool found;
    TRY(gguf_get_u64(g, key.text, 1, CONFIG_MAX_WIDTH, &n, &found, e));
    TRY(check_kv_heads(c, (int64_t)n, e));
    c->n_kv_heads = (int)n;
    return STATUS_OK;
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

/* --- what the keys together must be ---------------------------------------------------------- */

/* Sizes of heads, none of which may make the rows of a product too long. */
static enum status complete_heads(struct config *c, struct err *e)
{
    if (!c->head_dim && c->d_model % c->n_heads != 0)
        return err_set(e, STATUS_BAD_FILE,
                       "%s: expected a divisor of embedding_length %d, found %d",
                       arch_key(c, size_keys[HEADS].suffix).text, c->d_model, c->n_heads);
    config_complete(c);
    const struct {
        int key, dim;
    } dims[] = {{HEAD_DIM, c->head_dim}, {VALUE_DIM, c->value_dim}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        if (dims[i].dim > CONFIG_MAX_WIDTH / c->n_heads)
            return err_set(e, STATUS_BAD_FILE, "%s: expected at most %d for %d heads, found %d",
                           arch_key(c, size_keys[dims[i].key].suffix).text,
                           CONFIG_MAX_WIDTH / c->n_heads, c->n_heads, dims[i].dim);
    return STATUS_OK;
}

void config_complete(struct config *c)
{
    if (config_is_latent(c))
        c->n_kv_heads = 1;
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
}

/* A number strictly between two others, as a float too; `found` may be NULL. */
static enum status read_number(const struct gguf *g, const struct config *c, const char *suffix,
                               double above, double below, double *out, bool *found, struct err *e)
{
    const struct key_name key = arch_key(c, suffix);
    TRY(gguf_get_f64(g, key.text, out, found, e));
    if ((!found || *found) && !(*out > above && *out < below && (float)*out > (float)above))
        return err_set(e, STATUS_BAD_FILE, "%s: expected a number between %g and %g, found %g",
                       key.text, above, below, *out);
    return STATUS_OK;
}

static enum status read_eps(const struct gguf *g, struct config *c, struct err *e)
{
    double eps = 0;
    TRY(read_number(g, c, c->arch->norm_eps_key, 0, 1, &eps, NULL, e));
    c->norm_eps = (float)eps;
    return STATUS_OK;
}

static enum status read_vocab(const struct gguf *g, struct config *c, struct err *e)
{
    TRY(rows_of(g, ROLE_TOKEN_EMBD, CONFIG_MAX_VOCAB, &c->n_vocab, e));
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (tokens && tokens->kind == GGUF_ARRAY && tokens->count != (uint64_t)c->n_vocab)
        return err_set(e, STATUS_BAD_FILE,
                       "tokenizer.ggml.tokens: expected as many tokens as token_embd.weight has "
                       "rows, %d, found %llu",
                       c->n_vocab, (unsigned long long)tokens->count);
    return STATUS_OK;
}

/* --- rotary positions ------------------------------------------------------------------------ */

/* Frequencies fall, and angles stay small enough for their sines to mean something. */
#define ROPE_LEAST_BASE   1.0
#define ROPE_MOST_BASE    1e30
#define ROPE_LEAST_FACTOR CONFIG_LEAST_ROPE_FACTOR
#define ROPE_MOST_FACTOR  1e9

#define SCALING_KEY "rope.scaling.type"

/* "linear" divides positions by a factor; older files have that factor alone. */
static enum status read_rope_scale(const struct gguf *g, struct config *c, struct err *e)
{
    struct text type = text_of("linear");
    double factor = 1;
    bool found;
    TRY(read_number(g, c, "rope.scale_linear", ROPE_LEAST_FACTOR, ROPE_MOST_FACTOR, &factor, &found,
                    e));
    TRY(gguf_get_text(g, arch_key(c, SCALING_KEY).text, &type, &found, e));
    if (!text_is(type, "linear"))
        return STATUS_OK;
    TRY(read_number(g, c, "rope.scaling.factor", ROPE_LEAST_FACTOR, ROPE_MOST_FACTOR, &factor,
                    &found, e));
    c->rope.scale = 1 / factor;
    return STATUS_OK;
}

static enum status read_rope(const struct gguf *g, struct config *c, struct err *e)
{
    const struct key_name key = arch_key(c, "rope.dimension_count");
    uint64_t n_dims = (uint64_t)c->head_dim;
    bool found;
    if (c->position != POSITION_ROPE)
        return STATUS_OK;
    TRY(gguf_get_u64(g, key.text, 2, (uint64_t)CONFIG_MAX_WIDTH, &n_dims, &found, e));
    if (!found && n_dims % 2 != 0)
        return err_set(e, STATUS_BAD_FILE,
                       "%s: expected an even number, found %d, for rotary positions",
                       arch_key(c, size_keys[HEAD_DIM].suffix).text, c->head_dim);
    if (n_dims % 2 != 0 || n_dims > (uint64_t)c->head_dim)
        return err_set(e, STATUS_BAD_FILE,
                       "%s: expected an even number of a head's %d elements, found %llu", key.text,
                       c->head_dim, (unsigned long long)n_dims);
    c->rope.n_dims = (int)n_dims;
    TRY(read_number(g, c, "rope.freq_base", ROPE_LEAST_BASE, ROPE_MOST_BASE, &c->rope.base, &found,
                    e));
    return read_rope_scale(g, c, e);
}

/* --- architecture `decode` ------------------------------------------------------------------- */

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
        used += (size_t)snprintf(out + used, size - used, "%s%s",
                                 i == 0         ? ""
                                 : names[i + 1] ? ", "
                                                : " or ",
                                 names[i]);
}

static enum status read_kind(const struct gguf *g, struct config *c, const struct kind_key *k,
                             struct err *e)
{
    const struct key_name key = arch_key(c, k->suffix);
    struct text name;
    TRY(gguf_get_text(g, key.text, &name, NULL, e));
    for (unsigned i = 0; k->names[i]; i++) {
        if (text_is(name, k->names[i])) {
            *kind_of_key(c, k) = i;
            return STATUS_OK;
        }
    }
    char known[96];
    list_names(k->names, known, sizeof known);
    return err_set(e, STATUS_BAD_FILE, "%s: expected %s, found \"%.*s\"", key.text, known,
                   text_width(name), name.data);
}

static bool has_tensor(const struct gguf *g, enum tensor_role role, bool is_bias)
{
    return gguf_find_tensor(g, arch_tensor_name(role, 0, is_bias).text) != NULL;
}

/* Between them no square of an element overflows, or vanishes. */
#define LEAST_EMBEDDING_SCALE 1e-9
#define MOST_EMBEDDING_SCALE  1e9

static enum status read_own_keys(const struct gguf *g, struct config *c, struct err *e)
{
    bool found;
    double scale = 1;
    for (size_t i = 0; i < N_KIND_KEYS; i++)
        TRY(read_kind(g, c, &kind_keys[i], e));
    TRY(gguf_get_bool(g, arch_key(c, "block.shared").text, &c->shared, &found, e));
    TRY(read_number(g, c, "embedding_scale", LEAST_EMBEDDING_SCALE, MOST_EMBEDDING_SCALE, &scale,
                    &found, e));
    c->embedding_scale = (float)scale;
    c->split_qkv = has_tensor(g, ROLE_ATTN_Q, false) && !has_tensor(g, ROLE_ATTN_QKV, false);
    c->no_biases = !has_tensor(g, ROLE_FFN_UP, true);
    return STATUS_OK;
}

static void write_own_keys(const struct config *c, struct gguf_writer *w)
{
    struct config copy = *c;
    for (size_t i = 0; i < N_KIND_KEYS; i++)
        gguf_add_text(w, arch_key(c, kind_keys[i].suffix).text,
                      text_of(kind_keys[i].names[*kind_of_key(&copy, &kind_keys[i])]));
    gguf_add_bool(w, arch_key(c, "block.shared").text, c->shared);
    gguf_add_f32(w, arch_key(c, "embedding_scale").text,
                 c->embedding_scale > 0 ? c->embedding_scale : 1.0f);
}

/* --- what does not run ----------------------------------------------------------------------- */

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

static bool is_number(const struct gguf_value *v)
{
    return v->kind == GGUF_F32 || v->kind == GGUF_F64 || v->kind == GGUF_BOOL ||
           gguf_is_integer(v->kind);
}

static enum status refuse_foreign_key(const struct key_name *key, const struct foreign_key *k,
                                      const struct gguf_value *v, struct err *e)
{
    char found[32];
    const double value = is_number(v) ? gguf_float_at(v, 0) : (double)NAN;
    if (value == k->neutral || value == k->none)
        return STATUS_OK;
    if (is_number(v))
        snprintf(found, sizeof found, "%g", value);
    else
        snprintf(found, sizeof found, "%s", gguf_kind_name(v->kind));
    return err_set(e, STATUS_BAD_FILE,
                   "%s: expected none or %g, because nothing else runs here; found %s", key->text,
                   k->neutral, found);
}

static enum status refuse_foreign_keys(const struct gguf *g, const struct config *c, struct err *e)
{
    for (size_t i = 0; i < sizeof foreign_keys / sizeof *foreign_keys; i++) {
        const struct foreign_key *k = &foreign_keys[i];
        const struct key_name key = arch_key(c, k->suffix);
        const struct gguf_value *v = gguf_find(g, key.text);
        if (v && !(c->arch->has_keys && k->own))
            TRY(refuse_foreign_key(&key, k, v, e));
    }
    return STATUS_OK;
}

static enum status refuse_foreign_scaling(const struct gguf *g, const struct config *c,
                                          struct err *e)
{
    const struct key_name key = arch_key(c, SCALING_KEY);
    struct text type = text_of("none");
    bool found;
    TRY(gguf_get_text(g, key.text, &type, &found, e));
    if (c->position == POSITION_ROPE && !text_is(type, "none") && !text_is(type, "linear"))
        return err_set(e, STATUS_BAD_FILE,
                       "%s: expected \"none\" or \"linear\", which run here; found \"%.*s\"",
                       key.text, text_width(type), type.data);
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Names of architectures, each once. */
#define MAX_ARCH_NAMES 8
static void list_archs(char *out, size_t size)
{
    const char *names[MAX_ARCH_NAMES + 1] = {0};
    int n = 0;
    for (int i = 0; arch_at(i) && n < MAX_ARCH_NAMES; i++)
        if (n == 0 || strcmp(arch_at(i)->name, names[n - 1]) != 0)
            names[n++] = arch_at(i)->name;
    list_names(names, out, size);
}

static enum status read_arch(const struct gguf *g, struct config *c, struct err *e)
{
    struct text name;
    TRY(gguf_get_text(g, "general.architecture", &name, NULL, e));
    const struct arch *arch = arch_find(name);
    if (!arch) {
        char known[128];
        list_archs(known, sizeof known);
        return err_set(e, STATUS_BAD_FILE, "general.architecture: expected %s, found \"%.*s\"",
                       known, text_width(name), name.data);
    }
    config_set_arch(c, arch);
    return STATUS_OK;
}

enum status config_read(const struct gguf *g, struct config *c, struct err *e)
{
    TRY(config_parse(g, c, e));
    TRY(refuse_foreign_scaling(g, c, e));
    return refuse_foreign_keys(g, c, e);
}

enum status config_parse(const struct gguf *g, struct config *c, struct err *e)
{
    *c = (struct config){.arch = NULL};
    TRY(read_arch(g, c, e));
    TRY(read_size(g, c, LAYERS, e));
    TRY(read_size(g, c, WIDTH, e));
    TRY(read_size(g, c, CONTEXT, e));
    TRY(read_size(g, c, HEADS, e));
    if (c->arch->has_keys)
        TRY(read_own_keys(g, c, e));
    TRY(read_size(g, c, HEAD_DIM, e));
    TRY(read_size(g, c, VALUE_DIM, e));
    TRY(complete_heads(c, e));
    TRY(read_kv_heads(g, c, e));
    if (c->arch->has_keys)
        TRY(config_read_latent(g, c, e));
    TRY(read_rope(g, c, e));
    TRY(read_size(g, c, FEED_FORWARD, e));
    if (!c->d_ff)
        TRY(rows_of(g, ROLE_FFN_UP, CONFIG_MAX_FF, &c->d_ff, e));
    TRY(read_eps(g, c, e));
    return read_vocab(g, c, e);
}

bool config_is_kv_heads_key(const struct config *c, struct text key)
{
    return text_is(key, arch_key(c, KV_HEADS_KEY).text);
}

void config_write_kv_heads(const struct config *c, struct gguf_writer *w)
{
    const struct key_name key = arch_key(c, KV_HEADS_KEY);
    if (config_same_kv_heads(c)) {
        /* What is latent takes the place of all heads' keys and values. */
        gguf_add_u32(w, key.text, (uint32_t)(config_is_latent(c) ? c->n_heads : c->n_kv_heads));
        return;
    }
    int32_t heads[CONFIG_MAX_LAYERS];
    for (int l = 0; l < c->n_layers; l++)
        heads[l] = config_kv_heads(c, l);
    gguf_add_i32s(w, key.text, heads, (uint64_t)c->n_layers);
}

static void write_rope(const struct config *c, struct gguf_writer *w)
{
    if (c->position != POSITION_ROPE)
        return;
    gguf_add_u32(w, arch_key(c, "rope.dimension_count").text, (uint32_t)c->rope.n_dims);
    gguf_add_f32(w, arch_key(c, "rope.freq_base").text, (float)c->rope.base);
    if (c->rope.scale != 1) {
        gguf_add_text(w, arch_key(c, "rope.scaling.type").text, text_of("linear"));
        gguf_add_f32(w, arch_key(c, "rope.scaling.factor").text, (float)(1 / c->rope.scale));
    }
}

void config_write(const struct config *c, struct gguf_writer *w)
{
    struct config copy = *c;
    config_complete(&copy);
    /* Those that follow from others are for those who chose them. */
    const bool own_dims = config_q_dim(&copy) != c->d_model || copy.value_dim != copy.head_dim;
    for (int key = 0; key < SIZE_KEYS; key++)
        if ((key != HEAD_DIM && key != VALUE_DIM) || own_dims)
            gguf_add_u32(w, arch_key(c, size_keys[key].suffix).text,
                         (uint32_t)*size_of_key(&copy, &size_keys[key]));
    config_write_kv_heads(c, w);
    gguf_add_f32(w, arch_key(c, c->arch->norm_eps_key).text, c->norm_eps);
    write_rope(&copy, w);
    if (c->arch->has_keys)
        write_own_keys(c, w);
    config_write_latent(c, w);
}
