#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint_parts.h"
#include "model/layout.h"
#include "text/pretokenize.h"

/* What a new one has beside its config. */
struct shape {
    struct config config;
    bool tied, tokenizer;
    bool mixed; /* types by chance, tensor by tensor; else all of `type` */
    uint32_t type;
};

static void some_kinds(struct parts *p, struct config *c)
{
    if (c->arch->has_keys) {
        c->norm = (enum norm_kind)pick(p, NORM_KINDS);
        c->placement = (enum norm_placement)pick(p, PLACEMENTS);
        c->position = (enum position_kind)pick(p, POSITION_KINDS);
        c->ffn = (enum ffn_kind)pick(p, FFN_KINDS);
        c->split_qkv = pick(p, 2);
        c->shared = pick(p, 4) == 0;
        c->embedding_scale = pick(p, 2) ? 1 : 2.5f;
    }
    if (c->position == POSITION_ROPE)
        c->rope = (struct config_rope){.n_dims = pick(p, 3) ? 0 : 2,
                                       .base = pick(p, 2) ? 0 : 5e5,
                                       .scale = pick(p, 2) ? 0 : 4};
    c->no_biases = pick(p, 4) == 0;
}

/* Widths of their own for keys and values, and K/V heads for each layer. */
static void some_heads(struct parts *p, struct config *c)
{
    static const int dims[] = {2, 4, 6, 7, 8, 16, 17};
    c->n_kv_heads = 1 + (int)pick(p, (size_t)c->n_heads);
    while (c->n_heads % c->n_kv_heads)
        c->n_kv_heads--;
    for (int l = 0; l < c->n_layers && !c->shared && pick(p, 3) == 0; l++)
        c->layer_kv_heads[l] = pick(p, 2) ? 1 : c->n_kv_heads;
    if (pick(p, 3) == 0) {
        c->head_dim = dims[pick(p, COUNT(dims))];
        c->value_dim = dims[pick(p, COUNT(dims))];
    }
    if (c->position == POSITION_ROPE && (c->head_dim ? c->head_dim : c->d_model / c->n_heads) % 2)
        c->head_dim = 2 + 2 * (int)pick(p, 4);
}

/* A latent cache instead, of ranks up to a little more than there may be. */
static void some_latent(struct parts *p, struct config *c)
{
    if (!c->arch->has_keys || c->position == POSITION_ROPE || pick(p, 4) > 0)
        return;
    const int rank = 1 + (int)pick(p, (size_t)c->d_model + 1);
    for (int l = 0; l < c->n_layers; l++)
        c->latent[l] = c->shared || pick(p, 2) ? rank : 1 + (int)pick(p, (size_t)c->d_model);
}

static struct shape some_shape(struct parts *p)
{
    static const int heads[] = {1, 2, 2, 3, 4, 4, 6, 8, 12, 13, 16}, sizes[] = {1, 2, 4, 8, 16, 32};
    static const int widths[] = {1, 4, 8, 32, 32, 64};
    static const uint32_t types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0, TENSOR_Q4_0};
    static const char *const architectures[] = {"gpt2", "starcoder", "llama", "decode", "decode"};
    struct shape s = {.config = {.n_heads = heads[pick(p, COUNT(heads))],
                                 .d_ff = widths[pick(p, 6)],
                                 .n_ctx = 1 + (int)pick(p, 9),
                                 .n_layers = 1 + (int)pick(p, 5) / 3,
                                 .norm_eps = 1e-5f},
                      .tied = pick(p, 2),
                      .tokenizer = pick(p, 4) == 0,
                      .mixed = pick(p, 2),
                      .type = types[pick(p, COUNT(types))]};
    struct config *c = &s.config;
    c->d_model = c->n_heads * sizes[pick(p, COUNT(sizes))];
    while (c->d_model > 64)
        c->d_model /= 2;
    c->d_model -= c->d_model % c->n_heads;
    c->n_vocab = s.tokenizer ? 260 : 2 + (int)pick(p, 32);
    config_set_arch(c, arch_find(text_of(architectures[pick(p, 5)])));
    some_kinds(p, c);
    some_heads(p, c);
    some_latent(p, c);
    config_complete(c);
    return s;
}

static void add_tensor(struct parts *p, const struct shape *s, const struct tensor_spec *spec)
{
    if (p->n_tensors == MAX_TENSORS)
        return;
    const bool is_matrix = spec->n_dims > 1;
    const struct spec_dims dims = spec_dims(spec);
    const uint32_t type = is_matrix || s->type == TENSOR_F16 ? s->type : TENSOR_F32;
    struct gguf_tensor t = {.name = keep(p, spec->name.text),
                            .n_dims = spec->n_dims,
                            .dims = {dims.n[0], dims.n[1], dims.n[2], 1}};
    t.type = tensor_type_find(type);
    if (spec->cols % (int)t.type->block_elements)
        t.type = tensor_type_find(TENSOR_F16);
    static unsigned char weights[256];
    if (!weights[1]) /* small numbers, whatever type they are read as */
        for (size_t i = 0; i < sizeof weights; i++)
            weights[i] = (unsigned char)(i % 2 ? 0x20 + i % 31 : i * 37);
    static const float ones[] = {1, 1};
    const bool divides = spec->role == ROLE_ROPE_FREQS; /* must not be small */
    if (divides)
        t.type = tensor_type_find(TENSOR_F32);
    t.data = divides ? (const unsigned char *)ones : weights;
    t.n_bytes = divides ? sizeof ones : sizeof weights;
    parts_fit_data(p, &t);
    if (s->mixed && is_matrix)
        parts_change_type(p, &t);
    if (pick(p, 24) == 0)
        parts_change_data(p, &t);
    p->tensors[p->n_tensors++] = t;
}

/* All that a model of this shape may have, but factors of rotary positions and unusual biases only
 * by chance. */
static void add_tensors(struct parts *p, const struct shape *s)
{
    const struct config *c = &s->config;
    const unsigned rare = SPEC_UNUSUAL | SPEC_NOT_NEW;
    for (int64_t i = 0; i < layout_count(c); i++) {
        const struct tensor_spec spec = layout_at(c, i);
        const bool wanted = spec.flags & rare ? pick(p, 8) == 0 : true;
        if (wanted && !(s->tied && spec.role == ROLE_OUTPUT))
            add_tensor(p, s, &spec);
    }
}

/* The keys, as they are written to a file. */
static void add_config(struct parts *p, const struct config *c)
{
    struct gguf_writer *w;
    struct gguf *g = NULL;
    unsigned char *bytes = NULL, *kept = NULL;
    size_t size = 0;
    if (gguf_writer_create(&w, NULL) != STATUS_OK)
        return;
    gguf_add_text(w, "general.architecture", text_of(c->arch->name));
    config_write(c, w);
    if (gguf_write_memory(w, &bytes, &size, NULL) == STATUS_OK)
        kept = take(p, size);
    if (kept)
        memcpy(kept, bytes, size);
    if (kept && gguf_parse(kept, size, &g, NULL) == STATUS_OK)
        parts_add(p, g, true, false);
    gguf_free(g);
    gguf_writer_free(w);
    free(bytes);
}

static void add_number(struct parts *p, const char *prefix, const char *key, enum gguf_kind kind,
                       double x)
{
    char name[96];
    unsigned char *bytes = take(p, 8);
    if (!bytes || p->n_pairs == MAX_PAIRS)
        return;
    snprintf(name, sizeof name, "%s%s", prefix, key);
    parts_put_number(bytes, kind, x);
    p->pairs[p->n_pairs++] = (struct gguf_pair){
        keep(p, name),
        {.kind = kind, .count = 1, .bytes = {(const char *)bytes, parts_kind_bytes(kind)}}};
}

static void add_text(struct parts *p, const char *key, const char *value)
{
    p->pairs[p->n_pairs++] = (struct gguf_pair){
        text_of(key), {.kind = GGUF_STRING, .count = 1, .bytes = text_of(value)}};
}

/* An array of n strings that lie one after another in the pool, each behind its length. */
static void add_texts(struct parts *p, const char *key, size_t from, uint64_t n)
{
    p->pairs[p->n_pairs++] =
        (struct gguf_pair){text_of(key),
                           {.kind = GGUF_ARRAY,
                            .element_kind = GGUF_STRING,
                            .count = n,
                            .bytes = {(const char *)p->pool + from, p->used - from}}};
}

static void put_text(struct parts *p, const char *text, size_t len)
{
    unsigned char *out = take(p, 8 + len);
    const uint64_t n = len;
    if (!out)
        return;
    memcpy(out, &n, 8);
    memcpy(out + 8, text, len);
}

/* An array of i32 in which the last three tokens, by chance, are not normal ones. */
static void add_types(struct parts *p, const char *key, size_t n)
{
    unsigned char *types = take(p, n * 4);
    if (!types)
        return;
    memset(types, 0, n * 4);
    for (size_t i = 0; i < n; i++)
        types[4 * i] = i + 3 < n ? 1 : (unsigned char)pick(p, 7);
    p->pairs[p->n_pairs++] = (struct gguf_pair){text_of(key),
                                                {.kind = GGUF_ARRAY,
                                                 .element_kind = GGUF_I32,
                                                 .count = n,
                                                 .bytes = {(const char *)types, n * 4}}};
}

/* All bytes, a merge, three other tokens: special, a byte's, or normal. */
static void add_tokenizer(struct parts *p)
{
    static const char *const rules[] = {"gpt-2", "starcoder", "llama-bpe", "qwen2"};
    static const char *const others[] = {"<|a|>", "<|ab|>", "<0x41>", "<0xfg>", "a b", "th", "t"};
    add_text(p, "tokenizer.ggml.model", pick(p, 4) ? "gpt2" : "llama");
    add_text(p, "tokenizer.ggml.pre", rules[pick(p, 4)]);
    size_t from = p->used;
    for (int byte = 0; byte < 256; byte++) {
        char c[2];
        put_text(p, c, byte_alphabet_write((unsigned char)byte, c));
    }
    put_text(p, "th", 2);
    for (int i = 0; i < 3; i++) {
        const char *other = others[pick(p, COUNT(others))];
        put_text(p, other, strlen(other));
    }
    add_texts(p, "tokenizer.ggml.tokens", from, 260);
    if (pick(p, 3))
        add_types(p, "tokenizer.ggml.token_type", 260);
    from = p->used;
    put_text(p, "t h", 3);
    if (pick(p, 4) == 0)
        put_text(p, pick(p, 2) ? "a h" : "thh", 3);
    add_texts(p, "tokenizer.ggml.merges", from, p->used > from + 11 ? 2 : 1);
    if (pick(p, 2))
        add_number(p, "", "tokenizer.ggml.bos_token_id", GGUF_U32, 257);
    if (pick(p, 2))
        add_number(p, "", "tokenizer.ggml.add_bos_token", GGUF_BOOL, (double)pick(p, 2));
}

/* What fuzz_convert does with it. */
static void add_conversion(struct parts *p, const struct config *c)
{
    add_number(p, "fuzz", ".kv_heads", GGUF_U32, 1 + (double)pick(p, (size_t)c->n_kv_heads));
    add_number(p, "fuzz", ".method", GGUF_U32, (double)pick(p, 5));
    add_number(p, "fuzz", ".tokens", GGUF_U32, (double)pick(p, 24));
    add_number(p, "fuzz", ".cluster", GGUF_BOOL, (double)pick(p, 2));
    add_number(p, "fuzz", ".refit", GGUF_U32, (double)pick(p, 4));
}

size_t make_checkpoint(uint8_t *data, size_t max_size, uint64_t *random)
{
    struct parts *p = parts_start(random);
    const struct shape s = some_shape(p);
    add_config(p, &s.config);
    if (s.tokenizer)
        add_tokenizer(p);
    add_conversion(p, &s.config);
    add_tensors(p, &s);
    return parts_write(p, data, max_size);
}
