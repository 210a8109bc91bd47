#include "checkpoints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/config_keys.h"
#include "model/layout.h"
#include "support.h"
#include "text/vocab.h"

RELEASER(close_checkpoint, checkpoint_close)

struct checkpoint opened_checkpoint(const char *path, unsigned parts)
{
    struct checkpoint *c = allocated(sizeof *c);
    expect_ok(checkpoint_open(path, parts, c, &err));
    released_by(close_checkpoint, c);
    return *c;
}

/* Returns the number behind "key=" in the sizes; 0: there is none. */
static int size_of(const char *sizes, const char *key)
{
    const size_t len = strlen(key);
    for (const char *at = sizes; (at = strstr(at, key)); at += len)
        if ((at == sizes || at[-1] == ' ') && at[len] == '=')
            return atoi(at + len + 1);
    return 0;
}

struct checkpoint_shape shape_of(const char *sizes)
{
    return (struct checkpoint_shape){.n_layers = size_of(sizes, "layers"),
                                     .n_heads = size_of(sizes, "heads"),
                                     .n_kv_heads = size_of(sizes, "kv"),
                                     .head_dim = size_of(sizes, "dim"),
                                     .d_ff = size_of(sizes, "ff"),
                                     .n_ctx = size_of(sizes, "ctx"),
                                     .n_vocab = size_of(sizes, "vocab"),
                                     .d_model = size_of(sizes, "width"),
                                     .base_kv_heads = size_of(sizes, "base"),
                                     .no_biases = size_of(sizes, "no_biases"),
                                     .tied = size_of(sizes, "tied"),
                                     .no_tokenizer = size_of(sizes, "no_tokenizer"),
                                     .seed = (uint64_t)size_of(sizes, "seed")};
}

struct config config_sized(const char *arch, const char *sizes)
{
    const struct checkpoint_shape s = shape_of(sizes);
    const struct arch *row = arch_find(text_of(arch));
    struct config c = {
        SIZES(s.n_layers, s.n_heads, s.n_kv_heads, s.head_dim, s.d_ff, s.n_ctx, s.n_vocab),
        .d_model = s.d_model, .norm_eps = 1e-5f};
    config_set_arch(&c, row ? row : arch_preset(text_of(arch)));
    return c;
}

struct config config_of_case(const struct model_case *m)
{
    struct config c = m->c;
    const struct arch *arch = arch_preset(text_of(m->preset ? m->preset : "decode"));
    if (m->preset)
        config_set_arch(&c, arch);
    c.arch = arch;
    if (!(c.norm_eps > 0))
        c.norm_eps = 1e-5f;
    if (!(c.embedding_scale > 0))
        c.embedding_scale = 1;
    config_complete(&c);
    for (int l = 0; l < c.n_layers; l++)
        c.n_kv_heads = c.layer_kv_heads[l] > c.n_kv_heads ? c.layer_kv_heads[l] : c.n_kv_heads;
    return c;
}

#define SAME(member) ck_assert_msg(a->member == b->member, "%s", #member)

void expect_same_config(const struct config *a, const struct config *b)
{
    ck_assert_str_eq(a->arch->name, b->arch->name); /* presets share one */
    SAME(n_layers), SAME(n_heads), SAME(n_kv_heads), SAME(head_dim), SAME(value_dim);
    SAME(d_model), SAME(d_ff), SAME(n_ctx), SAME(n_vocab), SAME(norm_eps), SAME(embedding_scale),
        SAME(score_scale);
    SAME(norm), SAME(placement), SAME(position), SAME(ffn), SAME(score), SAME(biases);
    SAME(split_qkv), SAME(shared);
    if (a->norm == NORM_LAYER && !a->parts.no_norm_weights)
        SAME(parts.no_norm_biases);
    SAME(parts.embedding_norm), SAME(parts.one_norm), SAME(parts.qk_norms);
    SAME(parts.added_norms), SAME(parts.no_norm_weights), SAME(parts.output_bias);
    SAME(parts.rope_halves);
    if (a->position == POSITION_ROPE) /* no key says it of others */
        SAME(rope.n_dims), SAME(rope.base), SAME(rope.scale), SAME(rope.window_base);
    for (int l = 0; l < a->n_layers; l++)
        ck_assert(config_kv_heads(a, l) == config_kv_heads(b, l) &&
                  a->layer_window[l] == b->layer_window[l]);
}

struct builder {
    const struct checkpoint_shape *shape;
    struct gguf_writer *writer;
    uint64_t stream;
};

/* Returns the row of the QKV matrix whose numbers row r shares. */
static uint64_t source_row(const struct checkpoint_shape *s, int r)
{
    const int base = s->base_kv_heads ? s->base_kv_heads : s->n_kv_heads;
    const int q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    if (r < q)
        return (uint64_t)r;
    const int part = (r - q) / kv, in_part = (r - q) % kv;
    const int head = in_part / s->head_dim / (s->n_kv_heads / base);
    return (uint64_t)(1000000 * (part + 1) + head * s->head_dim + in_part % s->head_dim);
}

/* A vector counts as rows of one element, so that QKV biases share numbers, too. The numbers of a
 * row do not depend on the other rows. */
static void add_tensor(struct builder *b, const struct tensor_spec *t, float scale)
{
    const bool is_vector = t->n_dims == 1, is_weight = !t->is_bias;
    const int rows = is_vector ? t->cols : t->rows, cols = is_vector ? 1 : t->cols;
    const uint32_t of_embedding = b->shape->embedding_type;
    const uint32_t type = t->form != FORM_MATRIX || !is_weight              ? TENSOR_F32
                          : t->role == ROLE_TOKEN_EMBD && of_embedding != 0 ? of_embedding
                                                                            : b->shape->type;
    const float shift = is_weight && (t->form == FORM_NORM || t->role == ROLE_ROPE_FREQS);
    const bool shares = t->role == ROLE_ATTN_QKV && b->shape->n_kv_heads > 0;
    const struct tensor_type_info *info = tensor_type_find(type);
    const size_t row_bytes = (size_t)cols / info->block_elements * info->block_bytes;
    unsigned char *data = allocated((size_t)rows * row_bytes);
    float *row = allocated((size_t)cols * sizeof *row);
    b->stream++;
    for (int r = 0; r < rows; r++) {
        struct rng random;
        const uint64_t source = shares ? source_row(b->shape, r) : (uint64_t)r;
        rng_seed(&random, b->shape->seed, b->stream << 32 | source);
        for (int i = 0; i < cols; i++)
            row[i] = shift + scale * (float)(rng_unit(&random) + rng_unit(&random) - 1.0);
        blocks_encode(type, data + (size_t)r * row_bytes, row, (uint64_t)cols);
    }
    gguf_add_tensor(b->writer, text_of(t->name.text), type, t->n_dims, spec_dims(t).n, data);
}

/* Writes GPT-2's printable character for a byte, as UTF-8. */
static size_t byte_token(int byte, char *out)
{
    int code = 256;
    for (int b = 0; b <= byte; b++) {
        const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte && printable)
            code = byte;
        else
            code += !printable && b < byte;
    }
    if (code < 128)
        return (size_t)snprintf(out, 16, "%c", code);
    return (size_t)snprintf(out, 16, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 63));
}

static void add_tokenizer(struct builder *b)
{
    const int n = b->shape->n_vocab;
    struct text *tokens = allocated((size_t)n * sizeof *tokens);
    int32_t *types = allocated((size_t)n * sizeof *types);
    for (int i = 0; i < n; i++) {
        types[i] = i < 256 ? TOKEN_NORMAL : TOKEN_USER_DEFINED;
        char *at = allocated(16);
        tokens[i] =
            (struct text){at, i < 256 ? byte_token(i, at) : (size_t)snprintf(at, 16, "<x%d>", i)};
    }
    gguf_add_text(b->writer, "tokenizer.ggml.model", text_of("gpt2"));
    gguf_add_text(b->writer, "tokenizer.ggml.pre", text_of("gpt-2"));
    gguf_add_texts(b->writer, "tokenizer.ggml.tokens", tokens, (uint64_t)n);
    if (n > 256)
        gguf_add_array(b->writer, "tokenizer.ggml.token_type", GGUF_I32, types, (uint64_t)n);
    gguf_add_texts(b->writer, "tokenizer.ggml.merges", NULL, 0);
    gguf_add_u32(b->writer, "tokenizer.ggml.bos_token_id", 10);
    gguf_add_u32(b->writer, "tokenizer.ggml.eos_token_id", 0);
}

static bool is_asked_for(const struct tensor_spec *t, unsigned as)
{
    if (t->role == ROLE_OUTPUT && as & CONFIG_TIED)
        return false;
    if (t->role == ROLE_ROPE_FREQS && as & CONFIG_ROPE_FACTORS)
        return true;
    return !(t->flags & (SPEC_NOT_NEW | SPEC_UNUSUAL));
}

static void write_tensors(const char *path, const struct checkpoint_shape *shape,
                          const struct config *config, unsigned as)
{
    struct builder b = {.shape = shape};
    struct config c = *config;
    config_complete(&c);
    expect_ok(gguf_writer_create(&b.writer, &err));
    gguf_add_text(b.writer, "general.architecture", text_of(c.arch->name));
    config_write(&c, b.writer);
    if (!(as & CONFIG_NO_TOKENIZER))
        add_tokenizer(&b);
    for (int64_t i = 0; i < layout_count(&c); i++) {
        const struct tensor_spec t = layout_at(&c, i);
        const bool by_role = shape->n_heads > 0; /* how far numbers go */
        const bool embeds = t.role == ROLE_TOKEN_EMBD || t.role == ROLE_OUTPUT;
        if (is_asked_for(&t, as))
            add_tensor(&b, &t, !by_role ? 0.2f : t.is_bias ? 0.1f : embeds ? 0.5f : 0.2f);
    }
    expect_ok(gguf_write(b.writer, path, &err));
    gguf_writer_free(b.writer);
}

void write_checkpoint(const char *path, const struct checkpoint_shape *s)
{
    struct config c = {
        SIZES(s->n_layers, s->n_heads, s->n_kv_heads, s->head_dim, s->d_ff, s->n_ctx, s->n_vocab),
        .d_model = s->d_model ? s->d_model : s->n_heads * s->head_dim, .norm_eps = 1e-5f};
    config_set_arch(&c, arch_find(text_of(s->architecture ? s->architecture : "gpt2")));
    c.parts.no_norm_biases = s->no_biases;
    c.biases = s->no_biases ? BIASES_NONE : BIASES_ALL;
    write_tensors(path, s, &c,
                  (s->tied ? CONFIG_TIED : 0) | (s->no_tokenizer ? CONFIG_NO_TOKENIZER : 0));
}

struct checkpoint made_checkpoint(const struct checkpoint_shape *shape)
{
    const char *path = scratch_path("made.gguf");
    write_checkpoint(path, shape);
    return opened_checkpoint(path, CHECKPOINT_MODEL);
}

void write_config_checkpoint(const char *path, const struct config *c)
{
    write_config_checkpoint_as(path, c, 0);
}

void write_config_checkpoint_as(const char *path, const struct config *c, unsigned as)
{
    const struct checkpoint_shape shape = {.n_vocab = c->n_vocab, .seed = 1};
    write_tensors(path, &shape, c, as);
}
