/* What a checkpoint must hold: every missing, misshapen or misfit part is refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoints.h"
#include "model/checkpoint.h"
#include "support.h"

static const struct checkpoint_shape small = {.n_layers = 1,
                                              .n_heads = 4,
                                              .n_kv_heads = 2,
                                              .head_dim = 4,
                                              .d_ff = 24,
                                              .n_ctx = 8,
                                              .n_vocab = 256};

/* --- a copy of a file with one thing changed ------------------------------------------------- */

struct change {
    const char *drop_key, *set_key; /* metadata */
    struct gguf_value value;
    const char *drop_tensor, *tensor; /* tensor: gets n_dims, dims and type */
    int n_dims;
    uint64_t dims[GGUF_MAX_DIMS];
    uint32_t type;
};

static bool is_named(struct text name, const char *wanted)
{
    return wanted && text_is(name, wanted);
}

/* Writes `from` to `to` with the change, and opens the result. */
static enum status open_changed(const struct change *c, struct err *e)
{
    char from[512], to[512];
    strcpy(from, scratch_path("whole.gguf"));
    strcpy(to, scratch_path("changed.gguf"));
    write_checkpoint(from, &small);
    struct file_map file;
    struct gguf *g;
    struct gguf_writer *w;
    ck_assert_int_eq(file_map_open(&file, from, e), STATUS_OK);
    ck_assert_int_eq(gguf_parse(file.data, file.len, &g, e), STATUS_OK);
    ck_assert_int_eq(gguf_writer_create(&w, e), STATUS_OK);
    for (size_t i = 0; i < g->n_pairs; i++)
        if (!is_named(g->pairs[i].key, c->drop_key) && !is_named(g->pairs[i].key, c->set_key))
            gguf_add_value(w, g->pairs[i].key, &g->pairs[i].value);
    if (c->set_key)
        gguf_add_value(w, text_of(c->set_key), &c->value);
    static const unsigned char zeros[1 << 16];
    for (size_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        if (is_named(t->name, c->tensor))
            gguf_add_tensor(w, t->name, c->type, c->n_dims, c->dims, zeros);
        else if (!is_named(t->name, c->drop_tensor))
            gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    const enum status written = gguf_write(w, to, e);
    ck_assert_msg(written == STATUS_OK, "%s", e->text);
    gguf_writer_free(w);
    gguf_free(g);
    file_map_close(&file);

    struct checkpoint opened;
    const enum status s = checkpoint_open(to, CHECKPOINT_MODEL, &opened, e);
    checkpoint_close(&opened);
    scratch_remove();
    return s;
}

static void assert_refused(const struct change *c, const char *word, const char *expected,
                           const char *found)
{
    struct err e = {{0}};
    expect_status(open_changed(c, &e), STATUS_BAD_FILE, &e, "changed.gguf");
    ck_assert_msg(strstr(e.text, word), "no \"%s\" in: %s", word, e.text);
    ck_assert_msg(strstr(e.text, expected), "no \"%s\" in: %s", expected, e.text);
    ck_assert_msg(strstr(e.text, found), "no \"%s\" in: %s", found, e.text);
}

static struct gguf_value u32_value(const uint32_t *x)
{
    return (struct gguf_value){.kind = GGUF_U32, .count = 1, .bytes = {(const char *)x, sizeof *x}};
}

TEST(the_unchanged_file_loads)
{
    struct err e = {{0}};
    const struct change none = {.drop_key = NULL};
    expect_ok(open_changed(&none, &e), &e);
}

static const char *const required_keys[] = {
    "general.architecture", "gpt2.context_length",       "gpt2.embedding_length",
    "gpt2.block_count",     "gpt2.attention.head_count", "gpt2.attention.layer_norm_epsilon",
};

TEST(missing_key, .loops = 6)
{
    const struct change c = {.drop_key = required_keys[_i]};
    assert_refused(&c, required_keys[_i], "missing", "");
}

TEST(defaulted_keys)
{
    struct err e = {{0}};
    /* The feed-forward width can be read off the tensors; K/V heads cannot: the default is MHA,
     * which this file's attn_qkv contradicts. */
    const struct change width = {.drop_key = "gpt2.feed_forward_length"};
    expect_ok(open_changed(&width, &e), &e);
    const struct change heads = {.drop_key = "gpt2.attention.head_count_kv"};
    assert_refused(&heads, "blk.0.attn_qkv.weight", "16 x 48", "16 x 32");
}

/* Zero, one too many, and the largest: in every size that a key holds. */
static const struct {
    const char *key;
    uint32_t value;
    const char *word, *found;
} bad_sizes[] = {
    {"gpt2.block_count", 0, "gpt2.block_count", "0"},
    {"gpt2.block_count", 2, "blk.1.attn_norm.weight", "missing"},
    {"gpt2.block_count", 1000000000, "gpt2.block_count", "1000000000"},
    {"gpt2.context_length", 0, "gpt2.context_length", "0"},
    {"gpt2.context_length", 9, "position_embd.weight", "16 x 8"},
    {"gpt2.context_length", 4294967295u, "gpt2.context_length", "4294967295"},
    {"gpt2.embedding_length", 0, "gpt2.embedding_length", "0"},
    {"gpt2.embedding_length", 17, "gpt2.attention.head_count", "4"},
    {"gpt2.embedding_length", 20, "token_embd.weight", "16 x 256"},
    {"gpt2.embedding_length", 4294967295u, "gpt2.embedding_length", "4294967295"},
    {"gpt2.attention.head_count", 0, "gpt2.attention.head_count", "0"},
    {"gpt2.attention.head_count", 3, "gpt2.attention.head_count", "3"},
    {"gpt2.attention.head_count_kv", 0, "gpt2.attention.head_count_kv", "0"},
    {"gpt2.attention.head_count_kv", 3, "gpt2.attention.head_count_kv", "3"},
    {"gpt2.attention.head_count_kv", 8, "gpt2.attention.head_count_kv", "8"},
    {"gpt2.attention.head_count_kv", 1, "blk.0.attn_qkv.weight", "16 x 32"},
    {"gpt2.feed_forward_length", 0, "gpt2.feed_forward_length", "0"},
    {"gpt2.feed_forward_length", 25, "blk.0.ffn_up.weight", "16 x 24"},
    {"gpt2.feed_forward_length", 4294967295u, "gpt2.feed_forward_length", "4294967295"},
};
#define N_BAD_SIZES ((int)COUNT(bad_sizes))

TEST(bad_size, .loops = N_BAD_SIZES)
{
    const struct change c = {.set_key = bad_sizes[_i].key,
                             .value = u32_value(&bad_sizes[_i].value)};
    assert_refused(&c, bad_sizes[_i].word, "", bad_sizes[_i].found);
}

TEST(wrong_kind_of_key)
{
    static const char text[] = "4";
    const struct change string = {.set_key = "gpt2.block_count",
                                  .value = {GGUF_STRING, GGUF_U8, 1, {text, 1}}};
    assert_refused(&string, "gpt2.block_count", "integer", "string");
    const float number = 1;
    const struct change real = {
        .set_key = "gpt2.block_count",
        .value = {GGUF_F32, GGUF_U8, 1, {(const char *)&number, sizeof number}}};
    assert_refused(&real, "gpt2.block_count", "integer", "f32");
    const int32_t minus = -1;
    const struct change negative = {
        .set_key = "gpt2.block_count",
        .value = {GGUF_I32, GGUF_U8, 1, {(const char *)&minus, sizeof minus}}};
    assert_refused(&negative, "gpt2.block_count", "", "-1");
    const struct change array = {
        .set_key = "gpt2.block_count",
        .value = {GGUF_ARRAY, GGUF_I32, 1, {(const char *)&minus, sizeof minus}}};
    assert_refused(&array, "gpt2.block_count", "integer", "array");
}

TEST(bad_epsilon, .loops = 4)
{
    const float values[] = {0.0f, -1.0f, 1.0f / 0.0f, 0.0f / 0.0f};
    const struct change c = {
        .set_key = "gpt2.attention.layer_norm_epsilon",
        .value = {GGUF_F32, GGUF_U8, 1, {(const char *)&values[_i], sizeof *values}}};
    assert_refused(&c, "layer_norm_epsilon", "between 0 and 1", "found");
}

TEST(unknown_architecture)
{
    const struct change c = {.set_key = "general.architecture",
                             .value = {GGUF_STRING, GGUF_U8, 1, {"ll\x1b[31mama", 10}}};
    assert_refused(&c, "general.architecture", "gpt2", "ll?[31mama");
}

static const char *const required_tensors[] = {
    "token_embd.weight",     "position_embd.weight",     "blk.0.attn_norm.weight",
    "blk.0.attn_qkv.weight", "blk.0.attn_output.weight", "blk.0.ffn_norm.weight",
    "blk.0.ffn_up.weight",   "blk.0.ffn_down.weight",    "output_norm.weight",
};

TEST(missing_tensor, .loops = 9)
{
    const struct change c = {.drop_tensor = required_tensors[_i]};
    assert_refused(&c, required_tensors[_i], "missing", "");
}

TEST(misshapen_tensor)
{
    static const struct {
        const char *name;
        int n_dims;
        uint64_t dims[GGUF_MAX_DIMS];
        const char *expected, *found;
    } cases[] = {
        {"blk.0.ffn_up.weight", 2, {24, 16}, "16 x 24", "24 x 16"},
        {"blk.0.ffn_up.weight", 1, {384}, "16 x 24", "384"},
        {"blk.0.ffn_up.weight", 3, {16, 24, 2}, "16 x 24", "16 x 24 x 2"},
        {"blk.0.ffn_up.bias", 1, {23}, "24", "23"},
        {"blk.0.attn_norm.weight", 1, {1}, "16", "1"},
        {"output.weight", 2, {16, 255}, "16 x 256", "16 x 255"},
        {"token_embd.weight", 2, {16, 255}, "255", "256"},
        {"token_embd.weight", 1, {16}, "2 dimensions", "1 dimensions"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct change c = {.tensor = cases[i].name, .n_dims = cases[i].n_dims, .type = TENSOR_F32};
        for (int d = 0; d < GGUF_MAX_DIMS; d++)
            c.dims[d] = cases[i].dims[d] ? cases[i].dims[d] : 1;
        assert_refused(&c, strstr(cases[i].name, "token_embd") ? "token" : cases[i].name,
                       cases[i].expected, cases[i].found);
    }
}

TEST(trailing_ones_do_not_matter)
{
    struct err e = {{0}};
    const struct change c = {
        .tensor = "blk.0.ffn_up.bias", .n_dims = 2, .dims = {24, 1, 1, 1}, .type = TENSOR_F32};
    expect_ok(open_changed(&c, &e), &e);
}

TEST(type_that_cannot_run)
{
    /* F64: a type that needs no blocks, so that only the type is wrong. */
    const struct change c = {
        .tensor = "blk.0.ffn_up.weight", .n_dims = 2, .dims = {16, 24, 1, 1}, .type = 28};
    assert_refused(&c, "blk.0.ffn_up.weight", "F32, F16, BF16, Q8_0 or Q4_0", "F64");
}

/* A block type that a matrix may have: vectors are not decoded by the block. */
TEST(vector_in_blocks)
{
    const struct change c = {
        .tensor = "blk.0.attn_qkv.bias", .n_dims = 1, .dims = {32, 1, 1, 1}, .type = TENSOR_Q8_0};
    assert_refused(&c, "blk.0.attn_qkv.bias", "expected type F32, F16 or BF16", "Q8_0");
}

TEST(embedding_rows)
{
    /* A row of the embedding plus a row of the positions, whatever the panels look like. */
    struct checkpoint c;
    struct err e = {{0}};
    for (int f16 = 0; f16 < 2; f16++) {
        struct checkpoint_shape shape = small;
        shape.n_vocab = 259;
        shape.type = f16 ? TENSOR_F16 : TENSOR_F32;
        const char *path = scratch_path("embed.gguf");
        write_checkpoint(path, &shape);
        ck_assert_int_eq(checkpoint_open(path, CHECKPOINT_MODEL, &c, &e), STATUS_OK);
        const struct gguf_tensor *rows = gguf_find_tensor(c.gguf, "token_embd.weight");
        const struct gguf_tensor *positions = gguf_find_tensor(c.gguf, "position_embd.weight");
        for (int token = 0; token < 259; token++) {
            float out[16], x[16], p[16];
            model_embed(c.model, &(struct positions){0}, token, token % 8, out);
            memcpy(p, positions->data + (size_t)(token % 8) * sizeof p, sizeof p);
            if (f16)
                kernels_scalar.from_f16(x, (const uint16_t *)(const void *)rows->data + token * 16,
                                        16);
            else
                memcpy(x, rows->data + (size_t)token * sizeof x, sizeof x);
            for (int i = 0; i < 16; i++)
                ck_assert(out[i] == x[i] + p[i]);
        }
        checkpoint_close(&c);
    }
    scratch_remove();
}

TEST(variant_names)
{
    const struct config c = {.n_heads = 8, .n_kv_heads = 8, .head_dim = 16};
    char name[16];
    config_variant_name(&c, 8, name);
    ck_assert_str_eq(name, "MHA");
    config_variant_name(&c, 4, name);
    ck_assert_str_eq(name, "GQA-4");
    config_variant_name(&c, 1, name);
    ck_assert_str_eq(name, "MQA");
    ck_assert_int_eq(config_k_dim(&c, 0), 128);
}
