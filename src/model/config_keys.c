#include "model/config_keys.h"

#include <math.h>

#include "base/figures.h"
#include "base/mem.h"
#include "formats/gguf_values.h"
#include "formats/gguf_write.h"
#include "model/layout.h"
#include "model/selection.h"

/* --- the keys -------------------------------------------------------------------------------- */

struct key_name {
    char text[96];
};

/* Returns the full name of a key of this architecture: "llama.block_count". */
static struct key_name arch_key(const struct config *c, const char *suffix)
{
    struct key_name key;
    chars_printf(key.text, "%s.%s", c->arch->name, suffix);
    return key;
}

/* What a key of one value is in struct config. A size that a file need not state stays 0. */
enum key_type {
    SIZE,   /* int, from 1 on */
    NUMBER, /* float, above `above` */
    NAME,   /* enum without negative values, which is an unsigned int: one of `names` */
    FLAG,   /* bool */
};

#define AT(member) offsetof(struct config, member)

/* With scales between these no square of an element overflows or vanishes. */
#define LEAST_EMBEDDING_SCALE 1e-9
#define MOST_EMBEDDING_SCALE  1e9

#define HEADS_KEY       "attention.head_count"
#define KV_HEADS_KEY    "attention.head_count_kv" /* one size, or one for each layer */
#define SCALING_KEY     "rope.scaling.type"
#define SCORE_KEY       "attention.score"
#define WINDOW_KEY      "attention.sliding_window" /* one size, or one for each layer */
#define PATTERN_KEY     "attention.sliding_window_pattern"
#define PARALLEL_KEY    "use_parallel_residual"
#define ALIBI_KEY       "attention.max_alibi_bias"
#define WINDOW_BASE_KEY "rope.freq_base_swa"
#define MOST_ALIBI      8.0 /* the exponent of ALiBi's slopes, as its paper has it */
#define FFN_KEY         "feed_forward.type"

/* In the order of a file that is written. */
enum { HEAD_DIM = 5, VALUE_DIM, NORM_EPS, SCORE_SCALE, FIRST_OWN, FFN_KIND = 12, N_KEYS = 22 };
static const struct config_key {
    const char *suffix; /* NULL: the architecture's norm_eps_key */
    enum key_type type;
    size_t offset; /* in struct config */
    double most;   /* a size is at most this, a number less */
    double above;
    const char *const *names;
    bool optional;
    bool by_layer; /* a size that a file may repeat for each layer */
    bool always;   /* an optional flag that is written even if it is false */
} keys[N_KEYS] = {
    {"context_length", SIZE, AT(n_ctx), .most = CONFIG_MAX_CTX},
    {"embedding_length", SIZE, AT(d_model), .most = CONFIG_MAX_WIDTH},
    {"feed_forward_length", SIZE, AT(d_ff), .most = CONFIG_MAX_FF, .optional = true,
     .by_layer = true},
    {"block_count", SIZE, AT(n_layers), .most = CONFIG_MAX_LAYERS},
    {HEADS_KEY, SIZE, AT(n_heads), .most = CONFIG_MAX_WIDTH},
    {"attention.key_length", SIZE, AT(head_dim), .most = CONFIG_MAX_WIDTH, .optional = true},
    {"attention.value_length", SIZE, AT(value_dim), .most = CONFIG_MAX_WIDTH, .optional = true},
    {NULL, NUMBER, AT(norm_eps), .most = 1},
    {"attention.scale", NUMBER, AT(score_scale), .above = -CONFIG_MOST_SCORE_SCALE,
     .most = CONFIG_MOST_SCORE_SCALE, .optional = true},
    /* From here on: only architectures that have keys for their kinds. */
    {"norm.type", NAME, AT(norm), .names = arch_norm_names},
    {"norm.placement", NAME, AT(placement), .names = arch_placement_names},
    {"position.type", NAME, AT(position), .names = arch_position_names},
    {FFN_KEY, NAME, AT(ffn), .names = arch_ffn_names},
    {SCORE_KEY, NAME, AT(score), .names = arch_score_names, .optional = true},
    {"block.shared", FLAG, AT(shared), .optional = true, .always = true},
    {"embedding_scale", NUMBER, AT(embedding_scale), .above = LEAST_EMBEDDING_SCALE,
     .most = MOST_EMBEDDING_SCALE, .optional = true},
    {"norm.embedding", FLAG, AT(parts.embedding_norm), .optional = true},
    {"norm.single", FLAG, AT(parts.one_norm), .optional = true},
    {"norm.queries_keys", FLAG, AT(parts.qk_norms), .optional = true},
    {"norm.added", FLAG, AT(parts.added_norms), .optional = true},
    {"norm.no_weights", FLAG, AT(parts.no_norm_weights), .optional = true},
    {"rope.halves", FLAG, AT(parts.rope_halves), .optional = true},
};

/* The two forms of GELU, which any architecture that has one may have. */
static const char *const gelu_names[] = {[FFN_GELU] = "gelu", [FFN_GELU_ERF] = "gelu_erf", NULL};

static const char *suffix_of(const struct config *c, const struct config_key *k)
{
    return k->suffix ? k->suffix : c->arch->norm_eps_key;
}

/* --- reading --------------------------------------------------------------------------------- */

/* What all readers of keys take. */
struct key_reader {
    const struct gguf *g;
    struct config *c;
    struct err *e;
};

/* Reads a size that no key holds: the rows of a two-dimensional tensor. */
static enum status read_row_count(const struct key_reader *r, const char *tensor, int max, int *out)
{
    const struct gguf_tensor *t = gguf_find_tensor(r->g, tensor);
    if (!t)
        return err_bad_file(r->e, "tensor %s: missing", tensor);
    if (t->n_dims != 2 || t->dims[1] > (uint64_t)max)
        return err_bad_file(r->e,
                            "tensor %s: expected 2 dimensions and at most %d rows, found %d "
                            "dimensions and %llu rows",
                            tensor, max, t->n_dims, (unsigned long long)t->dims[1]);
    *out = t->dims[1];
    return STATUS_OK;
}

/* Reads a number strictly between two others, also as a float. If it may be missing, *out stays. */
static enum status read_number(const struct key_reader *r, const char *suffix, double above,
                               double below, double *out, bool optional)
{
    const struct key_name key = arch_key(r->c, suffix);
    bool found = true;
    TRY(gguf_get_f64(r->g, key.text, out, optional ? &found : NULL, r->e));
    if (found && !(*out > above && *out < below && (float)*out > (float)above))
        return err_bad_file(r->e, "%s: expected a number between %g and %g, found %g", key.text,
                            above, below, figure_unsigned_nan(*out));
    return STATUS_OK;
}

/* Reads integers from `least` to `most` into numbers [n_layers]: v is one for all layers, or an
 * array with one for each. */
static enum status read_by_layer(const struct key_reader *r, const char *suffix,
                                 const struct gguf_value *v, int least, int most, int32_t *numbers)
{
    const struct key_name key = arch_key(r->c, suffix);
    const bool is_array = v->kind == GGUF_ARRAY;
    const enum gguf_kind kind = is_array ? v->element_kind : v->kind;
    const int n_layers = r->c->n_layers;
    if (is_array && v->count != (uint64_t)n_layers)
        return err_bad_file(r->e, "%s: expected one number a layer, %d, found %llu", key.text,
                            n_layers, (unsigned long long)v->count);
    if (!gguf_is_integer(kind))
        return err_bad_file(r->e, "%s: expected integers, found %s", key.text,
                            gguf_kind_name(kind));
    for (int l = 0; l < n_layers; l++) {
        const int64_t number = gguf_int_at(v, is_array ? l : 0);
        if (number < least || number > most)
            return err_bad_file(r->e, "%s: expected integers from %d to %d, found %lld", key.text,
                                least, most, (long long)number);
        numbers[l] = number;
    }
    return STATUS_OK;
}

/* Reads a size; an array must repeat it for each layer. */
static enum status read_size(const struct key_reader *r, const struct config_key *k,
                             const char *key, bool *found)
{
    const struct gguf_value *v = gguf_find(r->g, key);
    int *out = (int *)((char *)r->c + k->offset);
    uint64_t size = *out, n_layers = 0;
    if (!k->by_layer || !v || v->kind != GGUF_ARRAY) {
        TRY(gguf_get_u64(r->g, key, 1, k->most, &size, found, r->e));
        *out = size;
        return STATUS_OK;
    }
    TRY(gguf_get_u64(r->g, arch_key(r->c, "block_count").text, 1, CONFIG_MAX_LAYERS, &n_layers,
                     NULL, r->e));
    r->c->n_layers = n_layers;
    int32_t numbers[CONFIG_MAX_LAYERS];
    TRY(read_by_layer(r, k->suffix, v, 1, k->most, numbers));
    for (uint64_t l = 1; l < n_layers; l++)
        if (numbers[l] != numbers[0])
            return err_bad_file(r->e,
                                "%s: expected the same number for all layers, found %d and %d", key,
                                numbers[0], numbers[l]);
    *out = numbers[0];
    return STATUS_OK;
}

static enum status read_key(const struct key_reader *r, const struct config_key *k)
{
    const char *suffix = suffix_of(r->c, k);
    const struct key_name key = arch_key(r->c, suffix);
    void *member = (char *)r->c + k->offset;
    bool found;
    bool *if_missing = k->optional ? &found : NULL;
    if (k->type == SIZE) {
        return read_size(r, k, key.text, if_missing);
    } else if (k->type == NUMBER) {
        double number = (double)*(float *)member;
        TRY(read_number(r, suffix, k->above, k->most, &number, k->optional));
        *(float *)member = (float)number;
    } else if (k->type == FLAG) {
        return gguf_get_bool(r->g, key.text, member, if_missing, r->e);
    } else {
        struct text name;
        unsigned kind = 0;
        TRY(gguf_get_text(r->g, key.text, &name, if_missing, r->e));
        if (if_missing && !found)
            return STATUS_OK;
        while (k->names[kind] && !text_is(name, k->names[kind]))
            kind++;
        if (!k->names[kind])
            return err_bad_file(r->e, "%s: expected %s, found \"%.*s\"", key.text,
                                names_joined(k->names, " or ").text, text_width(name), name.data);
        *(unsigned *)member = kind;
    }
    return STATUS_OK;
}

/* Reads the K/V heads. The other sizes are known. */
static enum status read_kv_heads(const struct key_reader *r)
{
    struct config *c = r->c;
    const struct gguf_value *v = gguf_find(r->g, arch_key(c, KV_HEADS_KEY).text);
    if (!v) /* as many as query heads */
        return STATUS_OK;
    int32_t numbers[CONFIG_MAX_LAYERS];
    TRY(read_by_layer(r, KV_HEADS_KEY, v, 1, CONFIG_MAX_WIDTH, numbers));
    if (heads_check(arch_key(c, KV_HEADS_KEY).text, c, numbers, c->n_layers, r->e) != STATUS_OK)
        return STATUS_BAD_FILE;
    c->n_kv_heads = 0;
    for (int l = 0; l < c->n_layers; l++) {
        c->layer_kv_heads[l] = numbers[l];
        c->n_kv_heads = MAX(numbers[l], c->n_kv_heads);
    }
    if (config_same_kv_heads(c))
        memset(c->layer_kv_heads, 0, sizeof c->layer_kv_heads);
    return STATUS_OK;
}

/* Reads the window of each layer. In architectures with a period every layer at a multiple of it
 * has none. The pattern may be another period, or an array with 0 for each layer without a window.
 */
static enum status read_windows(const struct key_reader *r)
{
    struct config *c = r->c;
    const struct gguf_value *v = gguf_find(r->g, arch_key(c, WINDOW_KEY).text);
    const struct gguf_value *pattern = gguf_find(r->g, arch_key(c, PATTERN_KEY).text);
    int32_t numbers[CONFIG_MAX_LAYERS];
    if (!v || !c->arch->window_period)
        return STATUS_OK;
    TRY(read_by_layer(r, WINDOW_KEY, v, 0, CONFIG_MAX_CTX, c->layer_window));
    for (int l = 0; l < c->n_layers; l++)
        numbers[l] = c->arch->window_period;
    if (pattern && c->arch->window_period > 1)
        TRY(read_by_layer(r, PATTERN_KEY, pattern, 0, CONFIG_MAX_LAYERS, numbers));
    const bool is_list = pattern && pattern->kind == GGUF_ARRAY;
    for (int l = 0; l < c->n_layers && c->arch->window_period > 1; l++)
        if (is_list ? !numbers[l] : numbers[l] == 0 || (l + 1) % numbers[l] == 0)
            c->layer_window[l] = 0;
    return STATUS_OK;
}

/* Frequencies fall, and angles stay small enough for their sines to mean something. */
#define ROPE_LEAST_BASE  1.0
#define ROPE_MOST_BASE   1e30
#define ROPE_MOST_FACTOR 1e9

static enum status read_rope(const struct key_reader *r)
{
    struct config *c = r->c;
    const struct key_name key = arch_key(c, "rope.dimension_count");
    uint64_t n_dims = c->head_dim;
    TRY(gguf_get_u64(r->g, key.text, 2, CONFIG_MAX_WIDTH, &n_dims, GGUF_OPTIONAL, r->e));
    if (n_dims % 2 != 0 || n_dims > (uint64_t)c->head_dim)
        return err_bad_file(r->e, "%s: expected an even number of a head's %d elements, found %llu",
                            key.text, c->head_dim, (unsigned long long)n_dims);
    c->rope.n_dims = n_dims;
    TRY(read_number(r, "rope.freq_base", ROPE_LEAST_BASE, ROPE_MOST_BASE, &c->rope.base, true));
    TRY(read_number(r, WINDOW_BASE_KEY, ROPE_LEAST_BASE, ROPE_MOST_BASE, &c->rope.window_base,
                    true));
    /* "linear" divides positions by a factor; older files have that factor alone. */
    struct text type = text_of("linear");
    double factor = 1;
    TRY(gguf_get_text(r->g, arch_key(c, SCALING_KEY).text, &type, GGUF_OPTIONAL, r->e));
    const char *const factor_keys[] = {"rope.scale_linear", "rope.scaling.factor"};
    const bool is_linear = text_is(type, "linear");
    for (int i = 0; i <= is_linear; i++)
        TRY(read_number(r, factor_keys[i], CONFIG_LEAST_ROPE_FACTOR, ROPE_MOST_FACTOR, &factor,
                        true));
    if (is_linear)
        c->rope.scale = 1 / factor;
    return STATUS_OK;
}

/* Sets what an architecture's name says, and reads keys that only it has. */
static enum status read_implied(const struct key_reader *r)
{
    static const struct config_key gelu = {FFN_KEY, NAME, AT(ffn), .names = gelu_names,
                                           .optional = true};
    struct config *c = r->c;
    const struct arch *arch = c->arch;
    bool is_parallel = true;
    if (arch->has_keys)
        return STATUS_OK;
    if (arch->scales_embedding)
        c->embedding_scale = sqrtf((float)c->d_model);
    /* Gemma 3's largest model, which is known by its layers, divides scores by another root. */
    if (arch->window_period > 1 && c->n_layers == 62 && c->score_scale == 0)
        c->score_scale = 1 / sqrtf((float)c->d_model / (float)c->n_heads);
    if (arch->ffn == FFN_GELU || arch->ffn == FFN_GELU_ERF)
        TRY(read_key(r, &gelu));
    if (arch->has_parallel_key && arch->placement == PLACEMENT_PARALLEL)
        TRY(gguf_get_bool(r->g, arch_key(c, PARALLEL_KEY).text, &is_parallel, NULL, r->e));
    if (!is_parallel)
        c->placement = PLACEMENT_BEFORE;
    return STATUS_OK;
}

enum status config_check_kind(const struct gguf *g, struct err *e)
{
    static const struct {
        const char *type, *what;
    } kinds[] = {
        {"adapter", "changes to a model's weights, to be merged into it first (llama-export-lora)"},
        {"imatrix", "an importance matrix, by which llama.cpp quantizes a model"},
        {"mmproj", "a projector that turns images or sound into a model's embeddings"},
    };
    struct text type = text_of("model");
    TRY(gguf_get_text(g, "general.type", &type, GGUF_OPTIONAL, e));
    for (int i = 0; i < LENGTH(kinds); i++)
        if (text_is(type, kinds[i].type))
            return err_bad_file(e, "general.type: expected \"model\", found \"%s\": %s",
                                kinds[i].type, kinds[i].what);
    return STATUS_OK;
}

enum status config_parse(const struct gguf *g, struct config *c, struct err *e)
{
    const struct key_reader r = {g, c, e};
    struct text name;
    *c = (struct config){.arch = NULL};
    TRY(config_check_kind(g, e));
    TRY(gguf_get_text(g, "general.architecture", &name, NULL, e));
    const struct arch *arch = arch_find(name);
    if (!arch)
        return err_bad_file(e, "general.architecture: expected %s, found \"%.*s\"",
                            names_joined(arch_names, " or ").text, text_width(name), name.data);
    config_set_arch(c, arch);
    for (int key = 0; key < (arch->has_keys ? N_KEYS : FIRST_OWN); key++)
        TRY(read_key(&r, &keys[key]));
    if (arch->has_keys) {
        c->split_qkv = gguf_find_tensor(g, "blk.0.attn_q.weight") &&
                       !gguf_find_tensor(g, "blk.0.attn_qkv.weight");
        const enum tensor_role q = c->split_qkv ? ROLE_ATTN_Q : ROLE_ATTN_QKV;
        const enum tensor_role norm =
            c->placement == PLACEMENT_AFTER ? ROLE_ATTN_OUTPUT_NORM : ROLE_ATTN_NORM;
        c->biases = layout_find(g, ROLE_FFN_UP, 0, true) ? BIASES_ALL
                    : layout_find(g, q, 0, true)         ? BIASES_QKV
                                                         : BIASES_NONE;
        c->parts.no_norm_biases = !layout_find(g, norm, 0, true);
        c->parts.output_bias = layout_find(g, ROLE_OUTPUT, 0, true);
    }
    TRY(read_implied(&r));
    const char *refusal = config_score_refusal(c);
    if (refusal)
        return err_bad_file(e, "%s: expected dot, found additive: %s", arch_key(c, SCORE_KEY).text,
                            refusal);
    /* No head may make the rows of a product too long. */
    if (!c->head_dim && c->d_model % c->n_heads != 0)
        return err_bad_file(e, "%s: expected a divisor of embedding_length %d, found %d",
                            arch_key(c, HEADS_KEY).text, c->d_model, c->n_heads);
    config_complete(c);
    const int dims[] = {c->head_dim, c->value_dim};
    for (int i = 0; i < 2; i++)
        if (dims[i] > CONFIG_MAX_WIDTH / c->n_heads)
            return err_bad_file(e, "%s: expected at most %d for %d heads, found %d",
                                arch_key(c, keys[HEAD_DIM + i].suffix).text,
                                CONFIG_MAX_WIDTH / c->n_heads, c->n_heads, dims[i]);
    TRY(read_kv_heads(&r));
    TRY(read_windows(&r));
    if (c->position == POSITION_ROPE)
        TRY(read_rope(&r));
    if (!c->d_ff)
        TRY(read_row_count(&r, "blk.0.ffn_up.weight", CONFIG_MAX_FF, &c->d_ff));
    TRY(read_row_count(&r, "token_embd.weight", CONFIG_MAX_VOCAB, &c->n_vocab));
    const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (tokens && tokens->kind == GGUF_ARRAY && tokens->count != (uint64_t)c->n_vocab)
        return err_bad_file(e,
                            "tokenizer.ggml.tokens: expected as many tokens as token_embd.weight "
                            "has rows, %d, found %llu",
                            c->n_vocab, (unsigned long long)tokens->count);
    return STATUS_OK;
}

/* --- what does not run ----------------------------------------------------------------------- */

/* Keys of other models that would change the results, and the values with which they do not. */
static const struct foreign_key {
    const char *suffix;
    double neutral; /* changes nothing */
    double none;    /* says that there is no such thing */
} foreign_keys[] = {
    {.suffix = "expert_count"},
    {"attention.causal", .neutral = 1, .none = 1},
    {.suffix = WINDOW_KEY},
    {.suffix = "attention.clamp_kqv"},
    {.suffix = ALIBI_KEY},
    {.suffix = "attn_logit_softcapping"},
    {.suffix = "final_logit_softcapping"},
    {"logit_scale", .neutral = 1},
    {"residual_scale", .neutral = 1},
    {"embedding_scale", .neutral = 1},
    {"rope.scaling.attn_factor", .neutral = 1},
    {.suffix = PARALLEL_KEY},
    {.suffix = "attention.latent"}, /* one vector a position in place of keys and values */
};

/* Whether a key that is foreign to others is this architecture's own. */
static bool is_own(const struct config *c, const char *suffix)
{
    const struct arch *a = c->arch;
    return (a->has_keys && str_is(suffix, "embedding_scale")) ||
           (a->window_period && str_is(suffix, WINDOW_KEY)) ||
           (a->has_parallel_key && str_is(suffix, PARALLEL_KEY));
}

enum status config_read(const struct gguf *g, struct config *c, struct err *e)
{
    TRY(config_parse(g, c, e));
    const struct key_name scaling = arch_key(c, SCALING_KEY);
    struct text type = text_of("none");
    TRY(gguf_get_text(g, scaling.text, &type, GGUF_OPTIONAL, e));
    if (c->position == POSITION_ROPE && !text_is(type, "none") && !text_is(type, "linear"))
        return err_bad_file(e,
                            "%s: expected \"none\" or \"linear\", which run here; found \"%.*s\"",
                            scaling.text, text_width(type), type.data);
    for (int i = 0; i < LENGTH(foreign_keys); i++) {
        const struct foreign_key *k = &foreign_keys[i];
        const struct key_name key = arch_key(c, k->suffix);
        const struct gguf_value *v = gguf_find(g, key.text);
        if (!v || is_own(c, k->suffix))
            continue;
        const bool is_number = v->kind == GGUF_F32 || v->kind == GGUF_F64 || v->kind == GGUF_BOOL ||
                               gguf_is_integer(v->kind);
        const double value = is_number ? gguf_float_at(v, 0) : (double)NAN;
        const bool is_slopes = !c->arch->has_keys && c->position == POSITION_ALIBI;
        const double neutral = is_slopes && str_is(k->suffix, ALIBI_KEY) ? MOST_ALIBI : k->neutral;
        if (value == neutral || (value == k->none && neutral == k->neutral))
            continue;
        char number[32];
        chars_printf(number, "%g", figure_unsigned_nan(value));
        return err_bad_file(e, "%s: expected none or %g: decode does not implement this; found %s",
                            key.text, neutral, is_number ? number : gguf_kind_name(v->kind));
    }
    return STATUS_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

bool config_is_kv_heads_key(const struct config *c, struct text key)
{
    return text_is(key, arch_key(c, KV_HEADS_KEY).text);
}

/* Writes one number for all layers, as u32, or an array with one for each. */
static void write_by_layer(const struct config *c, const char *suffix, const int32_t *numbers,
                           struct gguf_writer *w)
{
    const struct key_name key = arch_key(c, suffix);
    bool same = true;
    for (int l = 1; l < c->n_layers; l++)
        same &= numbers[l] == numbers[0];
    if (same)
        gguf_add_u32(w, key.text, numbers[0]);
    else
        gguf_add_array(w, key.text, GGUF_I32, numbers, c->n_layers);
}

void config_write_kv_heads(const struct config *c, struct gguf_writer *w)
{
    int32_t numbers[CONFIG_MAX_LAYERS];
    for (int l = 0; l < c->n_layers; l++)
        numbers[l] = config_kv_heads(c, l);
    write_by_layer(c, KV_HEADS_KEY, numbers, w);
}

/* Writes the keys from `first` to end - 1. */
static void write_keys(const struct config *c, int first, int end, struct gguf_writer *w)
{
    for (const struct config_key *k = &keys[first]; k < &keys[end]; k++) {
        const struct key_name key = arch_key(c, suffix_of(c, k));
        const void *member = (const char *)c + k->offset;
        if (k->type == SIZE)
            gguf_add_u32(w, key.text, *(const int *)member);
        else if ((k->type == NUMBER && k->optional && *(const float *)member == 0) ||
                 (k->type == NAME && k->optional && *(const unsigned *)member == 0) ||
                 (k->type == FLAG && !k->always && !*(const bool *)member))
            continue; /* the usual, unsaid */
        else if (k->type == NUMBER)
            gguf_add_f32(w, key.text, *(const float *)member);
        else if (k->type == FLAG)
            gguf_add_bool(w, key.text, *(const bool *)member);
        else
            gguf_add_text(w, key.text, text_of(k->names[*(const unsigned *)member]));
    }
}

void config_write(const struct config *config, struct gguf_writer *w)
{
    struct config complete = *config;
    struct config *c = &complete;
    config_complete(c);
    if (!(c->embedding_scale > 0))
        c->embedding_scale = 1;
    /* Dimensions are written only if they do not follow from others. */
    const bool own_dims = c->n_heads * c->head_dim != c->d_model || c->value_dim != c->head_dim;
    write_keys(c, 0, own_dims ? NORM_EPS : HEAD_DIM, w);
    config_write_kv_heads(config, w);
    write_keys(c, NORM_EPS, FIRST_OWN, w);
    if (c->position == POSITION_ROPE) {
        gguf_add_u32(w, arch_key(c, "rope.dimension_count").text, c->rope.n_dims);
        gguf_add_f32(w, arch_key(c, "rope.freq_base").text, (float)c->rope.base);
        if (c->rope.scale != 1) {
            gguf_add_text(w, arch_key(c, SCALING_KEY).text, text_of("linear"));
            gguf_add_f32(w, arch_key(c, "rope.scaling.factor").text, (float)(1 / c->rope.scale));
        }
        if (c->rope.window_base > 0)
            gguf_add_f32(w, arch_key(c, WINDOW_BASE_KEY).text, (float)c->rope.window_base);
    }
    if (config_has_windows(c) && c->arch->window_period > 1)
        gguf_add_u32(w, arch_key(c, WINDOW_KEY).text, c->layer_window[0]);
    else if (config_has_windows(c))
        write_by_layer(c, WINDOW_KEY, c->layer_window, w);
    if (c->arch->has_keys) {
        write_keys(c, FIRST_OWN, N_KEYS, w);
        return;
    }
    if (c->position == POSITION_ALIBI)
        gguf_add_f32(w, arch_key(c, ALIBI_KEY).text, MOST_ALIBI);
    if (c->arch->has_parallel_key)
        gguf_add_bool(w, arch_key(c, PARALLEL_KEY).text, c->placement == PLACEMENT_PARALLEL);
    if (c->ffn != c->arch->ffn)
        write_keys(c, FFN_KIND, FFN_KIND + 1, w);
}
