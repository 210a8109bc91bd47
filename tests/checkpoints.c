#include "checkpoints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "formats/gguf.h"
#include "model/layout.h"
#include "support.h"

static void close_checkpoint(void *c)
{
    checkpoint_close(c);
    free(c);
}

struct checkpoint opened_checkpoint(const char *path, unsigned parts)
{
    struct checkpoint *c = malloc(sizeof *c);
    expect_ok(checkpoint_open(path, parts, c, &err));
    released_by(close_checkpoint, c);
    return *c;
}

/* The number behind "key=" in the sizes; 0: there is none. */
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
    struct config c = {.n_layers = size_of(sizes, "layers"),
                       .n_heads = size_of(sizes, "heads"),
                       .n_kv_heads = size_of(sizes, "kv"),
                       .head_dim = size_of(sizes, "dim"),
                       .d_model = size_of(sizes, "width"),
                       .d_ff = size_of(sizes, "ff"),
                       .n_ctx = size_of(sizes, "ctx"),
                       .n_vocab = size_of(sizes, "vocab"),
                       .norm_eps = 1e-5f};
    const struct arch *row = arch_find(text_of(arch));
    config_set_arch(&c, row ? row : arch_preset(text_of(arch)));
    return c;
}

struct builder {
    const struct checkpoint_shape *shape;
    struct gguf_writer *writer;
    void *blocks[512]; /* tensor data, until written */
    int n_blocks;
    uint64_t stream;
};

static void *keep(struct builder *b, size_t bytes)
{
    ck_assert_int_lt(b->n_blocks, 512);
    void *p = malloc(bytes);
    ck_assert_ptr_nonnull(p);
    b->blocks[b->n_blocks++] = p;
    return p;
}

/* Rows of one stream are the same numbers whatever the others are. */
static void fill_row(const struct builder *b, uint64_t row, float scale, float shift, float *out,
                     int n)
{
    struct rng r;
    rng_seed(&r, b->shape->seed, b->stream << 32 | row);
    for (int i = 0; i < n; i++)
        out[i] = shift + scale * (float)(rng_unit(&r) + rng_unit(&r) - 1.0);
}

static int q_dim_of(const struct checkpoint_shape *s)
{
    return s->n_heads * s->head_dim;
}

static int d_model_of(const struct checkpoint_shape *s)
{
    return s->d_model ? s->d_model : q_dim_of(s);
}

/* In the QKV matrix, the row whose numbers row r shares. */
static uint64_t source_row(const struct checkpoint_shape *s, int r)
{
    const int base = s->base_kv_heads ? s->base_kv_heads : s->n_kv_heads;
    const int q = q_dim_of(s), kv = s->n_kv_heads * s->head_dim;
    if (r < q)
        return (uint64_t)r;
    const int part = (r - q) / kv, in_part = (r - q) % kv;
    const int head = in_part / s->head_dim / (s->n_kv_heads / base);
    return (uint64_t)(1000000 * (part + 1) + head * s->head_dim + in_part % s->head_dim);
}

/* rows are those of n_matrices, one after the other, if that is more than 1. */
static void add_matrices(struct builder *b, const char *name, int cols, int rows, int n_matrices,
                         float scale, float shift, int is_qkv)
{
    uint32_t type = strncmp(name, "position", 8) != 0 ? b->shape->type : TENSOR_F32;
    if (b->shape->embedding_type && strncmp(name, "token_embd", 10) == 0)
        type = b->shape->embedding_type;
    const struct tensor_type_info *info = tensor_type_find(type);
    const size_t row_bytes = (size_t)cols / info->block_elements * info->block_bytes;
    unsigned char *data = keep(b, (size_t)rows * row_bytes);
    float *row = allocated((size_t)cols * sizeof *row);
    b->stream++;
    for (int r = 0; r < rows; r++) {
        fill_row(b, is_qkv ? source_row(b->shape, r) : (uint64_t)r, scale, shift, row, cols);
        blocks_encode(type, data + (size_t)r * row_bytes, row, (uint64_t)cols);
    }
    gguf_add_tensor(
        b->writer, text_of(name), type, n_matrices > 1 ? 3 : 2,
        (const uint64_t[]){(uint64_t)cols, (uint64_t)(rows / n_matrices), (uint64_t)n_matrices},
        data);
}

static void add(struct builder *b, const char *name, int cols, int rows, float scale, float shift,
                int is_qkv)
{
    add_matrices(b, name, cols, rows, 1, scale, shift, is_qkv);
}

/* A bias, or a norm's gain: a vector, whose rows are its elements so that QKV biases share too. */
static void add_vector(struct builder *b, const char *name, int n, float scale, float shift,
                       int is_qkv)
{
    float *data = keep(b, (size_t)n * sizeof *data);
    b->stream++;
    for (int i = 0; i < n; i++)
        fill_row(b, is_qkv ? source_row(b->shape, i) : (uint64_t)i, scale, shift, &data[i], 1);
    gguf_add_tensor(b->writer, text_of(name), TENSOR_F32, 1, (const uint64_t[]){(uint64_t)n}, data);
}

static void add_linear(struct builder *b, const char *prefix, int n_out, int n_in, int is_qkv)
{
    char name[96];
    snprintf(name, sizeof name, "%s.weight", prefix);
    add(b, name, n_in, n_out, 0.2f, 0, is_qkv);
    snprintf(name, sizeof name, "%s.bias", prefix);
    if (!b->shape->no_biases)
        add_vector(b, name, n_out, 0.1f, 0, is_qkv);
}

static void add_norm(struct builder *b, const char *prefix, int n)
{
    char name[96];
    snprintf(name, sizeof name, "%s.weight", prefix);
    add_vector(b, name, n, 0.2f, 1, 0);
    snprintf(name, sizeof name, "%s.bias", prefix);
    if (!b->shape->no_biases)
        add_vector(b, name, n, 0.1f, 0, 0);
}

static void add_tensors(struct builder *b)
{
    const struct checkpoint_shape *s = b->shape;
    const int d = d_model_of(s), q = q_dim_of(s);
    char prefix[64];
    add(b, "token_embd.weight", d, s->n_vocab, 0.5f, 0, 0);
    add(b, "position_embd.weight", d, s->n_ctx, 0.2f, 0, 0);
    for (int l = 0; l < s->n_layers; l++) {
        snprintf(prefix, sizeof prefix, "blk.%d.attn_norm", l);
        add_norm(b, prefix, d);
        snprintf(prefix, sizeof prefix, "blk.%d.attn_qkv", l);
        add_linear(b, prefix, q + 2 * s->n_kv_heads * s->head_dim, d, 1);
        snprintf(prefix, sizeof prefix, "blk.%d.attn_output", l);
        add_linear(b, prefix, d, q, 0);
        snprintf(prefix, sizeof prefix, "blk.%d.ffn_norm", l);
        add_norm(b, prefix, d);
        snprintf(prefix, sizeof prefix, "blk.%d.ffn_up", l);
        add_linear(b, prefix, s->d_ff, d, 0);
        snprintf(prefix, sizeof prefix, "blk.%d.ffn_down", l);
        add_linear(b, prefix, d, s->d_ff, 0);
    }
    add_norm(b, "output_norm", d);
    if (!s->tied)
        add(b, "output.weight", d, s->n_vocab, 0.5f, 0, 0);
}

/* GPT-2's printable stand-in for a byte, as UTF-8. */
static int byte_token(int byte, char *out)
{
    int code = byte;
    if (!((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)) {
        code = 256;
        for (int b = 0; b < byte; b++)
            code += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    }
    if (code < 128) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
}

static void add_tokenizer(struct builder *b)
{
    const int n = b->shape->n_vocab;
    struct text *tokens = keep(b, (size_t)n * sizeof *tokens);
    char *bytes = keep(b, (size_t)n * 16);
    for (int i = 0; i < n; i++) {
        char *at = bytes + (size_t)i * 16;
        const int len = i < 256 ? byte_token(i, at) : snprintf(at, 16, "<x%d>", i);
        tokens[i] = (struct text){at, (size_t)len};
    }
    gguf_add_text(b->writer, "tokenizer.ggml.model", text_of("gpt2"));
    gguf_add_text(b->writer, "tokenizer.ggml.pre", text_of("gpt-2"));
    gguf_add_texts(b->writer, "tokenizer.ggml.tokens", tokens, (uint64_t)n);
    gguf_add_texts(b->writer, "tokenizer.ggml.merges", NULL, 0);
    gguf_add_u32(b->writer, "tokenizer.ggml.bos_token_id", 10);
    gguf_add_u32(b->writer, "tokenizer.ggml.eos_token_id", 0);
}

static void add_config(struct builder *b)
{
    const struct checkpoint_shape *s = b->shape;
    const char *arch = s->architecture ? s->architecture : "gpt2";
    const struct {
        const char *suffix;
        int value;
    } sizes[] = {
        {"context_length", s->n_ctx},          {"embedding_length", d_model_of(s)},
        {"feed_forward_length", s->d_ff},      {"block_count", s->n_layers},
        {"attention.head_count", s->n_heads},  {"attention.head_count_kv", s->n_kv_heads},
        {"attention.key_length", s->head_dim}, /* the last: only with d_model */
    };
    char key[96];
    gguf_add_text(b->writer, "general.architecture", text_of(arch));
    const size_t n_sizes = COUNT(sizes) - (s->d_model ? 0 : 1);
    for (size_t i = 0; i < n_sizes; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, sizes[i].suffix);
        gguf_add_u32(b->writer, key, (uint32_t)sizes[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", arch);
    gguf_add_f32(b->writer, key, 1e-5f);
}

static void finish(struct builder *b, const char *path)
{
    const enum status s = gguf_write(b->writer, path, &err);
    expect_ok(s);
    gguf_writer_free(b->writer);
    for (int i = 0; i < b->n_blocks; i++)
        free(b->blocks[i]);
}

void write_checkpoint(const char *path, const struct checkpoint_shape *shape)
{
    struct builder b = {.shape = shape};
    expect_ok(gguf_writer_create(&b.writer, &err));
    add_config(&b);
    if (!shape->no_tokenizer)
        add_tokenizer(&b);
    add_tensors(&b);
    finish(&b, path);
}

void write_config_checkpoint(const char *path, const struct config *c)
{
    write_config_checkpoint_as(path, c, 0);
}

static bool is_asked_for(const struct tensor_spec *t, unsigned as)
{
    if (t->role == ROLE_OUTPUT && as & CONFIG_TIED)
        return false;
    if (t->role == ROLE_ROPE_FREQS && as & CONFIG_ROPE_FACTORS)
        return true;
    return !(t->flags & (SPEC_NOT_NEW | SPEC_UNUSUAL));
}

void write_config_checkpoint_as(const char *path, const struct config *c, unsigned as)
{
    const struct checkpoint_shape shape = {.n_vocab = c->n_vocab, .seed = 1};
    struct builder b = {.shape = &shape};
    struct config whole = *c;
    config_complete(&whole);
    expect_ok(gguf_writer_create(&b.writer, &err));
    gguf_add_text(b.writer, "general.architecture", text_of(c->arch->name));
    config_write(&whole, b.writer);
    if (!(as & CONFIG_NO_TOKENIZER))
        add_tokenizer(&b);
    for (int64_t i = 0; i < layout_count(&whole); i++) {
        const struct tensor_spec t = layout_at(&whole, i);
        if (!is_asked_for(&t, as))
            continue;
        const bool is_factor = (t.form == FORM_NORM || t.role == ROLE_ROPE_FREQS) && !t.is_bias;
        if (t.n_dims > 1)
            add_matrices(&b, t.name.text, t.cols, t.rows, t.n_matrices, 0.2f, 0, 0);
        else
            add_vector(&b, t.name.text, t.cols, 0.2f, is_factor, 0);
    }
    finish(&b, path);
}
