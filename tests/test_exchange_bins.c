/*
 * The checkpoints of llama2.c and llm.c. Files are put together here from the tensors of golden
 * checkpoints, by name, in the orders of export.py and train_gpt2.py; what the readers make of them
 * must have the same bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "exchange/private.h"
#include "gguf_bytes.h"
#include "support.h"

/* All are F32. */
static const float *floats_of(const struct gguf *g, const char *name, size_t *n)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    ck_assert_msg(t && t->type->type == TENSOR_F32, "%s", name);
    *n = (size_t)t->n_elements;
    return (const float *)(const void *)t->data;
}

#define GROUP 64

/* What export.py makes of a tensor: GROUP elements as int8 of a factor of their own, rounded to
 * even. */
static void quantize_group(const float *x, int8_t *q, float *factor)
{
    float most = 0;
    for (int i = 0; i < GROUP; i++)
        most = fmaxf(most, fabsf(x[i]));
    *factor = most / 127.0f;
    for (int i = 0; i < GROUP; i++)
        q[i] = (int8_t)lrintf(x[i] / *factor);
}

typedef void put_floats(struct gguf_bytes *b, const float *x, size_t n);

static void put_f32(struct gguf_bytes *b, const float *x, size_t n)
{
    gb_put(b, x, n * sizeof *x);
}

static void put_bf16(struct gguf_bytes *b, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint16_t half = bf16_round(x[i]);
        gb_put(b, &half, sizeof half);
    }
}

static void put_int8(struct gguf_bytes *b, const float *x, size_t n)
{
    float *factors = malloc(n / GROUP * sizeof *factors);
    int8_t q[GROUP];
    ck_assert_uint_eq(n % GROUP, 0);
    for (size_t i = 0; i < n / GROUP; i++) {
        quantize_group(x + i * GROUP, q, &factors[i]);
        gb_put(b, q, GROUP);
    }
    gb_put(b, factors, n / GROUP * sizeof *factors);
    free(factors);
}

/* Tensors of these names, up to a NULL; "*" stands for "blk.N.", one layer after another. */
static void put_named(struct gguf_bytes *b, const struct gguf *g, const char *const *names,
                      int n_layers, put_floats *put)
{
    for (; *names; names++) {
        const bool in_block = **names == '*';
        for (int l = 0; l < (in_block ? n_layers : 1); l++) {
            char name[64];
            size_t n;
            if (in_block)
                snprintf(name, sizeof name, "blk.%d.%s", l, *names + 1);
            else
                snprintf(name, sizeof name, "%s", *names);
            const float *x = floats_of(g, name, &n);
            put(b, x, n);
        }
    }
}

static struct gguf_file golden;

static void close_golden(void)
{
    free_gguf(&golden);
}

/* Two of architecture llama: one has its own output, and K/V heads for four; rows of feed-forward
 * that groups of 64 do not divide. */
static const struct llama {
    const char *path;
    int32_t numbers[7]; /* of the header */
    bool own_output;
} llamas[] = {
    {"tests/data/golden/llama.gguf", {64, 160, 2, 8, 2, 400, 128}, true},
    {"tests/data/golden/llama-tied.gguf", {64, 96, 2, 4, 4, 400, 128}, false},
};
#define N_LLAMAS 2

static const char *const legacy_names[] = {
    "token_embd.weight", "*attn_norm.weight",   "*attn_q.weight",     "*attn_k.weight",
    "*attn_v.weight",    "*attn_output.weight", "*ffn_norm.weight",   "*ffn_gate.weight",
    "*ffn_down.weight",  "*ffn_up.weight",      "output_norm.weight", NULL};
static const char *const norm_names[] = {"*attn_norm.weight", "*ffn_norm.weight",
                                         "output_norm.weight", NULL};
static const char *const matrix_names[] = {
    "token_embd.weight", "*attn_q.weight",      "*attn_k.weight",
    "*attn_v.weight",    "*attn_output.weight", "*ffn_gate.weight",
    "*ffn_down.weight",  "*ffn_up.weight",      NULL};
static const char *const output_name[] = {"output.weight", NULL};

static void put_legacy(struct gguf_bytes *b, const struct llama *l, const struct gguf *g)
{
    int32_t numbers[7];
    memcpy(numbers, l->numbers, sizeof numbers);
    if (l->own_output)
        numbers[5] = -numbers[5];
    gb_put(b, numbers, sizeof numbers);
    put_named(b, g, legacy_names, numbers[2], put_f32);
    const float cosine = 0.25f;
    for (int i = 0; i < numbers[6] * (numbers[0] / numbers[3]); i++)
        put_f32(b, &cosine, 1);
}

static void put_new(struct gguf_bytes *b, const struct llama *l, const struct gguf *g, int version)
{
    static const char zeros[256];
    const int32_t head[] = {0x616b3432, version};
    const int32_t group = version == 2 ? GROUP : 0;
    gb_put(b, head, sizeof head);
    gb_put(b, l->numbers, sizeof l->numbers);
    gb_put(b, l->own_output ? "\0" : "\1", 1);
    gb_put(b, &group, sizeof group);
    gb_put(b, zeros, 256 - b->len);
    put_named(b, g, norm_names, l->numbers[2], put_f32);
    put_named(b, g, matrix_names, l->numbers[2], version == 2 ? put_int8 : put_f32);
}

/* In memory of its own, at an odd address and without a byte behind it. */
static struct text odd_copy(const void *bytes, size_t len)
{
    char *copy = allocated(len + 1);
    if (len)
        memcpy(copy + 1, bytes, len);
    return (struct text){copy + 1, len};
}

static struct text taken(struct gguf_bytes *b)
{
    released_by(free, b->data);
    return odd_copy(b->data, b->len);
}

/* The files, of `golden`, which they open. */
static struct text llama_file(int which, int version)
{
    const struct llama *l = &llamas[which];
    struct gguf_bytes b = {0};
    golden = read_gguf(l->path);
    if (version == 0)
        put_legacy(&b, l, golden.g);
    else
        put_new(&b, l, golden.g, version);
    if (l->own_output)
        put_named(&b, golden.g, output_name, 0, version == 2 ? put_int8 : put_f32);
    return taken(&b);
}

static struct text gpt2_file(int version)
{
    static const char *const embedding[] = {"token_embd.weight", NULL};
    static const char *const rest[] = {
        "position_embd.weight", "*attn_norm.weight",   "*attn_norm.bias",   "*attn_qkv.weight",
        "*attn_qkv.bias",       "*attn_output.weight", "*attn_output.bias", "*ffn_norm.weight",
        "*ffn_norm.bias",       "*ffn_up.weight",      "*ffn_up.bias",      "*ffn_down.weight",
        "*ffn_down.bias",       "output_norm.weight",  "output_norm.bias",  NULL};
    const int padded = 384, width = 64;
    const int32_t header[256] = {20240326, version, 64, 300, 2, 4, width, version > 1 ? padded : 0};
    const float padding = 77;
    put_floats *put = version == 5 ? put_bf16 : put_f32;
    struct gguf_bytes b = {0};
    golden = read_gguf("tests/data/golden/mha.gguf");
    gb_put(&b, header, sizeof header);
    put_named(&b, golden.g, embedding, 0, put);
    for (int i = 0; version > 1 && i < (padded - 300) * width; i++)
        put(&b, &padding, 1);
    put_named(&b, golden.g, rest, 2, put);
    return taken(&b);
}

enum { LLMC, LLAMA2C };

static bool is(int format, struct text file)
{
    return bin_format_of(file) == &bin_formats[format];
}

/* The file, which is of this format, opened. */
static struct bin_file opened(int format, struct text file)
{
    struct bin_file a;
    ck_assert(is(format, file));
    expect_ok(bin_open(&bin_formats[format], file, &a, &err));
    return a;
}

/* All bytes of a view, as a writer asks for them. */
static unsigned char *view_bytes(struct view *v, size_t bytes)
{
    struct view_maker maker = {0};
    unsigned char *out = allocated(bytes);
    v->maker = &maker;
    for (size_t at = 0; at < bytes;) {
        const void *data;
        size_t len;
        expect_ok(view_piece(v, at, &data, &len, &err));
        ck_assert(len > 0 && len <= bytes - at);
        memcpy(out + at, data, len);
        at += len;
    }
    view_maker_free(&maker);
    return out;
}

/* A number as a file has it. */
static float stored_as(const char *stored, const float *x, size_t i)
{
    int8_t q[GROUP];
    float factor;
    if (strcmp(stored, "f32") == 0)
        return x[i];
    if (strcmp(stored, "bf16") == 0)
        return bf16_widen(bf16_round(x[i]));
    quantize_group(x + i / GROUP * GROUP, q, &factor);
    return (float)q[i % GROUP] * factor;
}

/* `stored` as above; BF16 remains what it is where a checkpoint may have it. */
static void expect_tensor(struct view *v, const struct tensor_spec *spec, const struct gguf *g,
                          const char *stored)
{
    size_t n;
    const float *x = floats_of(g, spec->name.text, &n);
    const bool is_matrix = spec->n_dims == 2 && spec->role != ROLE_POSITION_EMBD;
    const size_t size = strcmp(stored, "bf16") == 0 && is_matrix ? 2 : 4;
    ck_assert_int_eq(v->n_parts, 1);
    ck_assert_int_eq(v->cols, spec->cols);
    ck_assert_int_eq(view_rows(v), spec->rows);
    ck_assert_uint_eq(v->type, size == 2 ? TENSOR_BF16 : TENSOR_F32);
    unsigned char *found = view_bytes(v, n * size);
    for (size_t i = 0; i < n; i++) {
        const float expected =
            stored_as(strcmp(stored, "int8") == 0 && !is_matrix ? "f32" : stored, x, i);
        unsigned char number[4] = {0};
        memcpy(number + 4 - size, found + i * size, size); /* the upper half of an F32 */
        ck_assert_msg(memcmp(number, &expected, 4) == 0, "%s: element %zu", spec->name.text, i);
    }
}

/* Each tensor of the config is that of g; `lacks` is one that the file has not. */
static void expect_tensors(const struct bin_file *a, const struct gguf *g, const char *stored,
                           enum tensor_role lacks, int expected)
{
    const struct config *c = &a->config;
    for (int64_t i = 0; i < layout_count(c); i++) {
        const struct tensor_spec spec = layout_at(c, i);
        struct view v;
        const bool found = bin_tensor(a, &spec, &v);
        const bool there = gguf_find_tensor(g, spec.name.text) && spec.role != lacks;
        ck_assert_msg(found == there, "%s", spec.name.text);
        if (found)
            expect_tensor(&v, &spec, g, stored);
        expected -= found;
    }
    ck_assert_int_eq(expected, 0);
}

TEST(llama2c_tensors, .loops = 3 * N_LLAMAS, .tags = ONE_THREAD, .after = close_golden)
{
    static const char *const stored[] = {"f32", "f32", "int8"};
    const struct llama *l = &llamas[_i % N_LLAMAS];
    const int version = _i / N_LLAMAS;
    const struct bin_file a = opened(LLAMA2C, llama_file(_i % N_LLAMAS, version));
    const struct config *c = &a.config;
    ck_assert_str_eq(c->arch->name, "llama");
    const int found[] = {c->d_model,    c->d_ff,    c->n_layers, c->n_heads,
                         c->n_kv_heads, c->n_vocab, c->n_ctx};
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(found[i], l->numbers[i]);
    ck_assert_int_eq(c->head_dim, l->numbers[0] / l->numbers[3]);
    ck_assert_int_eq(c->rope.n_dims, c->head_dim);
    ck_assert(c->rope.base == 10000 && c->rope.scale == 1 && c->norm_eps == 1e-5f);
    expect_tensors(&a, golden.g, stored[version], TENSOR_ROLES, l->own_output ? 21 : 20);
}

TEST(llmc_tensors, .loops = 3, .tags = ONE_THREAD, .after = close_golden)
{
    static const int versions[] = {1, 3, 5};
    const struct bin_file a = opened(LLMC, gpt2_file(versions[_i]));
    const struct config *c = &a.config;
    ck_assert_str_eq(c->arch->name, "gpt2");
    ck_assert(c->n_ctx == 64 && c->n_vocab == 300 && c->n_layers == 2 && c->n_heads == 4);
    ck_assert(c->n_kv_heads == 4 && c->d_model == 64 && c->head_dim == 16 && c->d_ff == 256);
    ck_assert(c->norm_eps == 1e-5f && c->ffn == FFN_GELU);
    expect_tensors(&a, golden.g, versions[_i] == 5 ? "bf16" : "f32", ROLE_OUTPUT, 28);
}

/* The importer may lower the context: the first rows of the positions. */
TEST(llmc_lower_context, .tags = ONE_THREAD, .after = close_golden)
{
    struct bin_file a = opened(LLMC, gpt2_file(3));
    struct view v;
    size_t n;
    a.config.n_ctx = 10;
    const struct tensor_spec spec = layout_weight(&a.config, ROLE_POSITION_EMBD, 0);
    ck_assert(bin_tensor(&a, &spec, &v) && view_rows(&v) == 10);
    ck_assert_mem_eq(view_bytes(&v, 10 * 64 * sizeof(float)),
                     floats_of(golden.g, "position_embd.weight", &n), 10 * 64 * sizeof(float));
    const struct tensor_spec norm = layout_weight(&a.config, ROLE_ATTN_NORM, 1);
    ck_assert(bin_tensor(&a, &norm, &v));
    expect_tensor(&v, &norm, golden.g, "f32");
}

static void refused(int format, const void *bytes, size_t len, const char *message)
{
    struct bin_file a;
    const enum status status = bin_open(&bin_formats[format], odd_copy(bytes, len), &a, &err);
    if (*message)
        ck_assert_str_eq(err.text, message);
    expect_status(status, STATUS_BAD_FILE, "");
}

/* A number of a good file's header that is another, and what is said to that. */
struct bent {
    size_t at;
    int32_t value;
    const char *message;
};

static void expect_bent(int format, struct text good, const struct bent *bent, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *bytes = memcpy(allocated(good.len), good.data, good.len);
        memcpy(bytes + bent[i].at, &bent[i].value, sizeof bent[i].value);
        refused(format, bytes, good.len, bent[i].message);
    }
}
#define EXPECT_BENT(format, good, bent) expect_bent(format, good, bent, COUNT(bent))

/* No beginning of a file is one, nor is a file with a byte more. */
TEST(lengths, .loops = 3 * N_LLAMAS + 2, .tags = ONE_THREAD, .after = close_golden)
{
    const int format = _i < 3 * N_LLAMAS ? LLAMA2C : LLMC;
    const struct text good =
        format == LLAMA2C ? llama_file(_i % N_LLAMAS, _i / N_LLAMAS) : gpt2_file(_i % 2 ? 3 : 5);
    char *longer = memcpy(allocated_zeros(good.len + 1), good.data, good.len);
    const size_t others[] = {good.len / 2, good.len - 1, good.len + 1};
    for (size_t len = 0; len < 1100; len++)
        refused(format, longer, len, "");
    for (size_t i = 0; i < COUNT(others); i++)
        refused(format, longer, others[i], "");
}

TEST(llama2c_legacy_numbers, .tags = ONE_THREAD, .after = close_golden)
{
    static const struct bent bent[] = {
        {0, 0, "dim at byte 0: expected 1 to 65536, found 0"},
        {0, -64, "dim at byte 0: expected 1 to 65536, found -64"},
        {4, 1 << 25, "hidden_dim at byte 4: expected 1 to 16777216, found 33554432"},
        {8, 513, "n_layers at byte 8: expected 1 to 512, found 513"},
        {12, INT32_MAX, "n_heads at byte 12: expected 1 to 65536, found 2147483647"},
        {12, 3, "3 heads: expected a divisor of the width, 64"},
        {12, 64, "heads of 1 elements: expected an even number, for rotary positions"},
        {16, 0, "n_kv_heads at byte 16: expected 1 to 65536, found 0"},
        {16, 3, "3 K/V heads: expected a divisor of the heads, 8"},
        {16, 16, "16 K/V heads: expected a divisor of the heads, 8"},
        {20, 0, "vocab_size at byte 20: expected 1 to 16777216, found 0"},
        {20, INT32_MIN, "vocab_size at byte 20: expected 1 to 16777216, found -2147483648"},
        {24, 0, "seq_len at byte 24: expected 1 to 4194304, found 0"},
        /* Tied: one matrix of 400 rows less. */
        {20, 400,
         "expected 435484 bytes, as the header of llama2.c's version 0 says, found 537884: the "
         "file is not what its header says"},
        {24, 129,
         "expected 537916 bytes, as the header of llama2.c's version 0 says, found 537884: the "
         "file is truncated"},
    };
    const struct text good = llama_file(0, 0);
    EXPECT_BENT(LLAMA2C, good, bent);
    ck_assert(!is(LLAMA2C, (struct text){good.data, 27}));
    char *no_width = memcpy(allocated(good.len), good.data, good.len);
    no_width[0] = 0;
    ck_assert(!is(LLAMA2C, (struct text){no_width, good.len}));
}

TEST(llama2c_numbers, .tags = ONE_THREAD, .after = close_golden)
{
    static const struct bent bent[] = {
        {4, 0, "version at byte 4: expected 1 (float32) or 2 (int8), found 0"},
        {4, 3, "version at byte 4: expected 1 (float32) or 2 (int8), found 3"},
        {4, -1, "version at byte 4: expected 1 (float32) or 2 (int8), found -1"},
        {8, 65537, "dim at byte 8: expected 1 to 65536, found 65537"},
        {28, -400, "vocab_size at byte 28: expected 1 to 16777216, found -400"},
        {37, 0, "group_size at byte 37: expected a divisor of dim 64, found 0"},
        {37, -64, "group_size at byte 37: expected a divisor of dim 64, found -64"},
        {37, 48, "group_size at byte 37: expected a divisor of dim 64, found 48"},
        {37, INT32_MAX, "group_size at byte 37: expected a divisor of dim 64, found 2147483647"},
        /* No magic, so its first: a width that no model has. */
        {0, 0x616b3400, "dim at byte 0: expected 1 to 65536, found 1634415616"},
    };
    EXPECT_BENT(LLAMA2C, llama_file(0, 2), bent);
}

/* The largest numbers that are taken: sizes beyond any file, computed without overflow (Python). */
TEST(largest_numbers, .tags = ONE_THREAD)
{
    const int32_t llama[64] = {0x616b3432, 2,       1 << 16, 1 << 24, 512,
                               1 << 15,    1 << 15, 1 << 24, 1 << 22, 0x100};
    const int32_t gpt2[256] = {20240326, 3, 1 << 22, 1 << 24, 512, 1 << 16, 1 << 16, 1 << 24};
    unsigned char bytes[256];
    memcpy(bytes, llama, sizeof bytes);
    refused(LLAMA2C, bytes, sizeof bytes,
            "expected 8499225151406336 bytes, as the header of llama2.c's version 2 says, found "
            "256: the file is truncated");
    refused(LLMC, gpt2, sizeof gpt2,
            "expected 111052419761152 bytes, as the header of llm.c says, found 1024: the file is "
            "truncated");
}

TEST(llmc_numbers, .tags = ONE_THREAD, .after = close_golden)
{
    static const struct bent bent[] = {
        {0, 0, "magic at byte 0: expected 20240326, a GPT-2 of llm.c, found 0"},
        {0, 20240328,
         "magic at byte 0: expected 20240326, a GPT-2 of llm.c, found 20240328, another "
         "file of its programs (a Llama 3 comes in as a Hugging Face folder)"},
        {4, 2,
         "version at byte 4: expected 1, 3 (float32) or 5 (bfloat16), as llm.c's train_gpt2.py "
         "writes it, found 2"},
        {8, 0, "max_seq_len at byte 8: expected 1 to 4194304, found 0"},
        {12, -1, "vocab_size at byte 12: expected 1 to 16777216, found -1"},
        {12, 385, "padded_vocab_size at byte 28: expected vocab_size, 385, to 16777216, found 384"},
        {16, 1 << 30, "num_layers at byte 16: expected 1 to 512, found 1073741824"},
        {20, 5, "5 heads: expected a divisor of the width, 64"},
        {20, 128, "128 heads: expected a divisor of the width, 64"},
        {24, INT32_MIN, "channels at byte 24: expected 1 to 65536, found -2147483648"},
        {28, 0, "padded_vocab_size at byte 28: expected vocab_size, 300, to 16777216, found 0"},
        {28, 383,
         "expected 515840 bytes, as the header of llm.c says, found 516096: the file is not what "
         "its header says"},
        {4, 5,
         "expected 258560 bytes, as the header of llm.c says, found 516096: the file is not what "
         "its header says"},
    };
    EXPECT_BENT(LLMC, gpt2_file(3), bent);
    const int32_t magic = 20240803; /* a Llama 3 is recognised, so that it can be told so */
    ck_assert(is(LLMC, (struct text){(const char *)&magic, sizeof magic}));
    ck_assert(!is(LLMC, (struct text){(const char *)&magic, 3}));
    ck_assert(!is(LLMC, (struct text){NULL, 0}) && !is(LLAMA2C, (struct text){NULL, 0}));
}
