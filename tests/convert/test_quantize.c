/* Tests of whole checkpoints in other types: they have the bytes of llama-quantize and keep the
 * metadata. */
#include "convert/convert.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "convert/quantize.h"
#include "formats/gguf_values.h"
#include "golden.h"

static const uint32_t types[] = {TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_Q8_0, TENSOR_Q4_0};
#define N_TYPES (int)(COUNT(types))

RELEASER(close_quantize, quantize_free)

static struct gguf_file written(const struct checkpoint_shape *shape)
{
    const char *path = scratch_path("made.gguf");
    write_checkpoint(path, shape);
    return read_gguf(path);
}

/* Makes a small checkpoint of several units, with matrices of `type`. */
static struct gguf_file image_make(uint32_t type, int head_dim)
{
    struct checkpoint_shape shape = shape_of("layers=2 heads=4 kv=2 ff=96 ctx=8 vocab=600 seed=5");
    shape.head_dim = head_dim;
    shape.type = type;
    return written(&shape);
}

static struct gguf_file convert(const struct quantize_params *p, struct quantize *q)
{
    unsigned char *bytes;
    size_t len;
    expect_ok(quantize_plan(p, q, &err));
    expect_ok(gguf_write_memory(q->writer, &bytes, &len, &err));
    released_by(close_quantize, memcpy(allocated(sizeof *q), q, sizeof *q));
    return parsed_gguf(bytes, len);
}

static void expect_refusal(const struct quantize_params *p, enum status status, const char *parts)
{
    struct quantize q = {.tensors = NULL};
    unsigned char *bytes = NULL;
    size_t len = 0;
    enum status s = quantize_plan(p, &q, &err);
    if (s == STATUS_OK)
        s = gguf_write_memory(q.writer, &bytes, &len, &err);
    expect_status(s, status, parts);
    ck_assert(!bytes && len == 0);
    quantize_free(&q);
    quantize_free(&q);
}

/* The hashes are of all tensors' bytes, in the source's order, in the files that llama.cpp makes:
 * `llama-quantize --pure` (c392e5094, x86-64) of llama, and its package gguf 0.19, which gives the
 * same bytes for llama, of the others. With Q4_0 the token embedding is Q8_0. */
TEST(bytes_of_llama_quantize, .loops = 3)
{
    static const struct {
        const char *name;
        uint64_t hashes[5]; /* by type */
    } cases[] = {
        {"mha",
         {0xfddefff686c62a70, 0x4708e6da73e2d912, 0xb552458399b162d4, 0x81b15b74387dc359,
          0x62e47d85e545fb89}},
        {"mqa-f16",
         {0xd5a8ea0109951465, 0xbae39b8bec5893d6, 0x822715d0fc920c97, 0x800c20e0039d8544,
          0x1abcdd190980e754}},
        {"llama",
         {0x747ac28fda358e76, 0x627787c983e1fe78, 0x4ee0a2aa875a6812, 0x945fa4be27f6e1a0,
          0x3ad7c65d5263b5d8}},
    };
    struct gguf_file m = golden_gguf(cases[_i].name);
    for (int t = 0; t < N_TYPES; t++) {
        struct quantize q;
        uint64_t hash = HASH_START;
        struct gguf_file out =
            convert(&(struct quantize_params){.type = types[t], .gguf = m.g}, &q);
        for (size_t i = 0; i < out.g->n_tensors; i++)
            hash = hash_bytes(hash, out.g->tensors[i].data, out.g->tensors[i].n_bytes);
        ck_assert_uint_eq(hash, cases[_i].hashes[t]);
    }
}

/* Returns whether it is a weight other than of norms and tables. */
static bool is_matrix(struct text name)
{
    static const char *const others[] = {"norm.weight", "position_embd.weight", "rel.weight",
                                         "freqs.weight", "score.weight"};
    for (size_t i = 0; i < COUNT(others); i++)
        if (text_ends_with(name, others[i]))
            return false;
    return text_ends_with(name, ".weight");
}

/* Returns the error by its definition, in one sum. */
struct loss {
    double error, size, max, n;
};

static void add_loss(struct loss *l, const struct gguf_tensor *from, const struct gguf_tensor *to)
{
    const uint64_t n = from->n_elements;
    float *x = allocated(n * sizeof *x), *y = allocated(n * sizeof *y);
    blocks_decode(from->type->type, x, from->data, n);
    blocks_decode(to->type->type, y, to->data, n);
    for (uint64_t i = 0; i < n; i++) {
        const double difference = (double)x[i] - (double)y[i];
        l->error += difference * difference;
        l->size += (double)x[i] * (double)x[i];
        l->max = fmax(l->max, fabs(difference));
    }
    l->n += (double)n;
}

static void expect_tensor(const struct gguf_tensor *from, const struct gguf_tensor *out,
                          uint32_t type)
{
    const uint64_t n = from->n_elements;
    ck_assert(text_equal(from->name, out->name) && from->n_dims == out->n_dims);
    ck_assert_mem_eq(from->dims, out->dims, sizeof from->dims);
    if (!is_matrix(from->name) || from->type->type == type) {
        ck_assert_ptr_eq(out->type, from->type);
        ck_assert_mem_eq(out->data, from->data, from->n_bytes);
        return;
    }
    ck_assert_uint_eq(out->type->type, type);
    float *x = allocated(n * sizeof *x);
    unsigned char *expected = allocated(out->n_bytes);
    blocks_decode(from->type->type, x, from->data, n);
    blocks_encode(type, expected, x, n);
    ck_assert_mem_eq(out->data, expected, out->n_bytes);
}

/* Files go from every type to every type. Some have separate matrices, gates, tables that are not
 * quantised, or odd widths. Only the matrices change, and the file is a model again. */
TEST(tensors, .loops = N_TYPES + N_GOLDEN, .tags = ONE_THREAD)
{
    const bool typed = _i < N_TYPES;
    struct quantize q;
    struct gguf_file f32 = image_make(TENSOR_F32, 32);
    const struct quantize_params first = {.type = types[_i % N_TYPES], .gguf = f32.g};
    struct gguf_file m = typed ? convert(&first, &q) : golden_gguf(golden_names[_i - N_TYPES]);
    for (int i = 0; i < N_TYPES; i++) {
        const struct quantize_params p = {.type = types[i], .gguf = m.g};
        struct gguf_file out = convert(&p, &q);
        struct loss loss = {.n = 0};
        ck_assert_uint_eq(out.g->n_tensors, m.g->n_tensors);
        for (size_t k = 0; k < m.g->n_tensors; k++) {
            const struct gguf_tensor *from = &m.g->tensors[k], *to = &out.g->tensors[k];
            const bool embeds = text_is(from->name, "token_embd.weight");
            const bool as_q8 = embeds && types[i] == TENSOR_Q4_0;
            const uint32_t type = as_q8 ? TENSOR_Q8_0 : types[i];
            const bool fits = from->dims[0] % tensor_type_find(type)->block_elements == 0;
            ck_assert_ptr_eq(q.tensors[k].from, from);
            if (fits || !is_matrix(from->name))
                expect_tensor(from, to, type);
            else
                ck_assert_uint_eq(to->type->type,
                                  from->type->type == TENSOR_F32 ? TENSOR_F16 : from->type->type);
            if (from->type != to->type)
                add_loss(&loss, from, to);
        }
        ck_assert_double_eq_tol(q.error.rms, loss.n > 0 ? sqrt(loss.error / loss.n) : 0, 1e-12);
        ck_assert_double_eq_tol(q.error.relative, loss.error > 0 ? sqrt(loss.error / loss.size) : 0,
                                1e-12);
        ck_assert_double_eq(q.error.max, loss.max);
        ck_assert(!typed || (i == _i ? q.error.rms <= 0 : i == 0 || q.error.rms > 0));
        expect_ok(model_check(out.g, &err));
    }
}

/* The type's number is that of llama.cpp's enum llama_ftype; all other keys stay. */
TEST(metadata, .loops = 2 * N_TYPES)
{
    static const char *const keys[] = {"general.file_type", "general.quantization_version"};
    static const uint64_t file_types[] = {0, 1, 32, 7, 2};
    struct gguf_file m = golden_gguf(_i % 2 ? "mha" : "mqa-f16");
    struct quantize q;
    struct gguf_file out =
        convert(&(struct quantize_params){.type = types[_i / 2], .gguf = m.g}, &q);
    size_t added = 2;
    for (int i = 0; i < 2; i++) {
        uint64_t value;
        expect_ok(gguf_get_u64(out.g, keys[i], 0, UINT64_MAX, &value, NULL, &err));
        ck_assert_uint_eq(value, i ? 2 : file_types[_i / 2]);
        added -= gguf_find(m.g, keys[i]) != NULL;
    }
    for (size_t i = 0; i < m.g->n_pairs; i++) {
        const struct gguf_pair *pair = &m.g->pairs[i];
        char key[128];
        snprintf(key, sizeof key, "%.*s", text_width(pair->key), pair->key.data);
        const struct gguf_value *found = gguf_find(out.g, key);
        const bool set = strcmp(key, keys[0]) == 0 || strcmp(key, keys[1]) == 0;
        ck_assert(found && (set || (found->kind == pair->value.kind &&
                                    found->element_kind == pair->value.element_kind &&
                                    text_equal(found->bytes, pair->value.bytes))));
    }
    ck_assert_uint_eq(out.g->n_pairs, m.g->n_pairs + added);
}

/* The tensor has more elements than go through at once, and its last unit is short. */
TEST(threads_change_nothing, .loops = N_TYPES)
{
    static const int counts[] = {2, 3, 8};
    const struct checkpoint_shape shape =
        shape_of("layers=1 heads=2 kv=1 dim=80 ff=32 ctx=4 vocab=6601 tied=1 no_tokenizer=1");
    struct gguf_file m = written(&shape);
    struct quantize_params p = {.type = types[_i], .gguf = m.g};
    struct quantize serial, q;
    struct gguf_file expected = convert(&p, &serial);
    for (size_t c = SANITIZED ? 1 : 0; c < COUNT(counts); c += SANITIZED ? 2 : 1) {
        p.pool = new_pool(counts[c]);
        struct gguf_file found = convert(&p, &q);
        ck_assert_uint_eq(found.len, expected.len);
        ck_assert_mem_eq(found.bytes, expected.bytes, found.len);
        ck_assert_mem_eq(&q.error, &serial.error, sizeof q.error);
    }
}

/* The value stands in a matrix, or in a tensor that is only copied. */
TEST(values_not_finite, .loops = N_TYPES, .tags = ONE_THREAD)
{
    struct gguf_file m = image_make(TENSOR_F32, 32);
    struct quantize_params p = {.type = types[_i], .gguf = m.g};
    float *matrix = floats_of(m.g, "token_embd.weight"),
          *bias = floats_of(m.g, "blk.0.ffn_up.bias");
    const float was = matrix[70001];
    matrix[70001] = NAN;
    matrix[70002] = INFINITY;
    expect_refusal(&p, STATUS_BAD_FILE, "token_embd.weight: element 70001|nan");
    matrix[70001] = was;
    expect_refusal(&p, STATUS_BAD_FILE, "token_embd.weight: element 70002|inf");
    matrix[70002] = 0;
    bias[3] = -INFINITY;
    expect_refusal(&p, STATUS_BAD_FILE, "blk.0.ffn_up.bias: element 3|-inf");
}

/* F16, and so the scale of a block, ends at 65504; BF16 ends a little before F32. */
TEST(values_too_large, .loops = N_TYPES, .tags = ONE_THREAD)
{
    static const float least[] = {0, 65520, 0x1.ffp127f, 127 * 65520.0f, 8 * 65520.0f};
    struct gguf_file m = image_make(TENSOR_F32, 32);
    const struct quantize_params p = {.type = types[_i], .gguf = m.g};
    float *x = floats_of(m.g, "blk.1.ffn_down.weight");
    if (least[_i] > 0) {
        x[40] = least[_i];
        expect_refusal(&p, STATUS_FAILED, "blk.1.ffn_down.weight: element|too large for");
    }
    x[40] = least[_i] > 0 ? nextafterf(least[_i], 0) : 3e38f;
    struct quantize q;
    convert(&p, &q);
    ck_assert(isfinite(q.error.rms) && isfinite(q.error.max));
}
