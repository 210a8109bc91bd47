/*
 * Types of tensors, and rows of numbers in five of them.
 *
 * The loops over a block have fixed lengths, no calls and no branches, so that compilers turn
 * them into vector code for any processor.
 */

#include <inttypes.h>
#include <math.h>

#include "base/mem.h"
#include "formats/gguf_private.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensor data are little-endian and are copied as they are");

#define BLOCK      32
#define Q8_0_BYTES (2 + BLOCK)
#define Q4_0_BYTES (2 + BLOCK / 2)

/* --- types ------------------------------------------------------------------------------------ */

/* Ordered by number. Blocks of 256 belong to the K, IQ and TQ families. */
static const struct tensor_type_info types[] = {
    {"F32", 0, 1, 4},         {"F16", 1, 1, 2},         {"Q4_0", 2, 32, 18},
    {"Q4_1", 3, 32, 20},      {"Q5_0", 6, 32, 22},      {"Q5_1", 7, 32, 24},
    {"Q8_0", 8, 32, 34},      {"Q8_1", 9, 32, 36},      {"Q2_K", 10, 256, 84},
    {"Q3_K", 11, 256, 110},   {"Q4_K", 12, 256, 144},   {"Q5_K", 13, 256, 176},
    {"Q6_K", 14, 256, 210},   {"Q8_K", 15, 256, 292},   {"IQ2_XXS", 16, 256, 66},
    {"IQ2_XS", 17, 256, 74},  {"IQ3_XXS", 18, 256, 98}, {"IQ1_S", 19, 256, 50},
    {"IQ4_NL", 20, 32, 18},   {"IQ3_S", 21, 256, 110},  {"IQ2_S", 22, 256, 82},
    {"IQ4_XS", 23, 256, 136}, {"I8", 24, 1, 1},         {"I16", 25, 1, 2},
    {"I32", 26, 1, 4},        {"I64", 27, 1, 8},        {"F64", 28, 1, 8},
    {"IQ1_M", 29, 256, 56},   {"BF16", 30, 1, 2},       {"TQ1_0", 34, 256, 54},
    {"TQ2_0", 35, 256, 66},   {"MXFP4", 39, 32, 17},    {"NVFP4", 40, 64, 36},
    {"Q1_0", 41, 128, 18},
};

const struct tensor_type_info *tensor_type_find(uint32_t type)
{
    for (const struct tensor_type_info *t = types; t < END_OF(types); t++)
        if (t->type == type)
            return t;
    return NULL;
}

const struct tensor_type_info *tensor_type_named(struct text name)
{
    for (const struct tensor_type_info *t = types; t < END_OF(types); t++)
        if (strlen(t->name) == name.len && !strncasecmp(t->name, name.data, name.len))
            return t;
    return NULL;
}

enum status gguf_tensor_measure(struct gguf_tensor *t, uint32_t type, enum status bad,
                                struct err *e)
{
    assert(t->n_dims >= 1 && t->n_dims <= GGUF_MAX_DIMS);
    t->type = tensor_type_find(type);
    if (!t->type)
        return err_set(
            e, bad,
            "type %" PRIu32
            " is unknown or was removed from GGUF: convert the model again with current tools",
            type);
    t->n_elements = 1;
    for (int d = 0; d < t->n_dims; d++) {
        if (t->dims[d] == 0)
            return err_set(e, bad, "dimension %d is 0, expected at least 1", d);
        t->n_elements = u64_product(t->n_elements, t->dims[d]);
    }
    if (t->dims[0] % t->type->block_elements != 0)
        return err_set(e, bad,
                       "dimension 0 is %" PRIu64 ", expected a multiple of %" PRIu32
                       ", the block of type %s",
                       t->dims[0], t->type->block_elements, t->type->name);
    t->n_bytes = u64_product(t->n_elements / t->type->block_elements, t->type->block_bytes);
    if (t->n_elements > INT64_MAX || t->n_bytes > INT64_MAX)
        return err_set(e, bad, "its shape overflows, expected less than 2^63 elements and bytes");
    return STATUS_OK;
}

/* --- numbers --------------------------------------------------------------------------------- */

static void put_half(unsigned char *out, uint16_t half)
{
    memcpy(out, &half, sizeof half);
}

static uint16_t half_at(const unsigned char *in)
{
    uint16_t half;
    memcpy(&half, in, sizeof half);
    return half;
}

static void encode_f32(unsigned char *out, const float *x, uint64_t n)
{
    memcpy(out, x, n * sizeof *x);
}

static void decode_f32(float *out, const unsigned char *in, uint64_t n)
{
    memcpy(out, in, n * sizeof *out);
}

static void encode_f16(unsigned char *out, const float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        put_half(out + 2 * i, f16_round(x[i]));
}

static void encode_bf16(unsigned char *out, const float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        put_half(out + 2 * i, bf16_round(x[i]));
}

static void decode_f16(float *out, const unsigned char *in, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = f16_widen(half_at(in + 2 * i));
}

static void decode_bf16(float *out, const unsigned char *in, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = bf16_widen(half_at(in + 2 * i));
}

/* --- blocks ---------------------------------------------------------------------------------- */

/* The largest magnitude of a block. As integers magnitudes have the same order, and a NaN is
 * above all of them. */
static float block_max(const float *x)
{
    int32_t max = 0;
    for (int j = 0; j < BLOCK; j++) {
        int32_t bits;
        memcpy(&bits, x + j, sizeof bits);
        bits &= INT32_MAX;
        max = bits > max ? bits : max;
    }
    float value;
    memcpy(&value, &max, sizeof value);
    return value;
}

/* x itself if it is near the numbers that are stored, else 0: what is too large to convert comes
 * from a d that is infinite, not a number, or so small that 1 / d overflows, and ggml's
 * conversion on x86 is 0 then, too. */
#define CONVERTIBLE 0x43000000 /* 128 as bits */

static inline float convertible(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= -(uint32_t)((bits & INT32_MAX) <= CONVERTIBLE);
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float inverse(float d)
{
    return d != 0.0f ? 1.0f / d : 0.0f;
}

static void encode_q8_0(unsigned char *out, const float *x, uint64_t n)
{
    for (; n > 0; n -= BLOCK, x += BLOCK, out += Q8_0_BYTES) {
        const float d = block_max(x) / 127.0f, id = inverse(d);
        int8_t q[BLOCK];
        for (int j = 0; j < BLOCK; j++) {
            const float v = convertible(x[j] * id);
            const int32_t whole = (int32_t)v;
            const float rest = v - (float)whole; /* exact, so ties are seen as such */
            q[j] = (int8_t)(whole + (int32_t)(rest + rest));
        }
        put_half(out, f16_round(d));
        memcpy(out + 2, q, sizeof q);
    }
}

static void decode_q8_0(float *out, const unsigned char *in, uint64_t n)
{
    for (; n > 0; n -= BLOCK, in += Q8_0_BYTES, out += BLOCK) {
        const float d = f16_widen(half_at(in));
        int8_t q[BLOCK];
        memcpy(q, in + 2, sizeof q);
        for (int j = 0; j < BLOCK; j++)
            out[j] = d * (float)q[j];
    }
}

static inline int32_t nibble(float x, float id)
{
    const int32_t q = (int32_t)(convertible(x * id + 8.5f));
    return q < 15 ? q : 15;
}

static void encode_q4_0(unsigned char *out, const float *x, uint64_t n)
{
    for (; n > 0; n -= BLOCK, x += BLOCK, out += Q4_0_BYTES) {
        float peak = block_max(x); /* the first value of this magnitude, but for 0 and a NaN */
        for (int j = 0; j < BLOCK && peak > 0; j++)
            if (fabsf(x[j]) == peak) {
                peak = x[j];
                break;
            }
        const float d = peak / -8.0f, id = inverse(d);
        uint8_t q[BLOCK / 2];
        for (int j = 0; j < BLOCK / 2; j++)
            q[j] = (uint8_t)(nibble(x[j], id) | nibble(x[j + BLOCK / 2], id) << 4);
        put_half(out, f16_round(d));
        memcpy(out + 2, q, sizeof q);
    }
}

static void decode_q4_0(float *out, const unsigned char *in, uint64_t n)
{
    for (; n > 0; n -= BLOCK, in += Q4_0_BYTES, out += BLOCK) {
        const float d = f16_widen(half_at(in));
        uint8_t q[BLOCK / 2];
        memcpy(q, in + 2, sizeof q);
        for (int j = 0; j < BLOCK / 2; j++) {
            out[j] = d * (float)((q[j] & 15) - 8);
            out[j + BLOCK / 2] = d * (float)((q[j] >> 4) - 8);
        }
    }
}

/* --- by type --------------------------------------------------------------------------------- */

/* The types that this program computes with. */
static const struct codec {
    enum tensor_type type;
    uint32_t file_type; /* llama.cpp's enum llama_ftype */
    void (*encode)(unsigned char *out, const float *x, uint64_t n);
    void (*decode)(float *out, const unsigned char *in, uint64_t n);
} codecs[] = {
    {TENSOR_F32, 0, encode_f32, decode_f32},     {TENSOR_F16, 1, encode_f16, decode_f16},
    {TENSOR_Q4_0, 2, encode_q4_0, decode_q4_0},  {TENSOR_Q8_0, 7, encode_q8_0, decode_q8_0},
    {TENSOR_BF16, 32, encode_bf16, decode_bf16},
};

static const struct codec *codec_of(uint32_t type)
{
    for (const struct codec *c = codecs; c < END_OF(codecs); c++)
        if (c->type == type)
            return c;
    return NULL;
}

bool blocks_runs(uint32_t type)
{
    return codec_of(type) != NULL;
}

uint32_t gguf_file_type(uint32_t type)
{
    return blocks_runs(type) ? codec_of(type)->file_type : 0;
}

void blocks_encode(uint32_t type, void *out, const float *x, uint64_t n)
{
    assert(blocks_runs(type) && n % tensor_type_find(type)->block_elements == 0);
    if (n > 0)
        codec_of(type)->encode(out, x, n);
}

void blocks_decode(uint32_t type, float *out, const void *in, uint64_t n)
{
    const struct tensor_type_info *info = tensor_type_find(type);
    assert(blocks_runs(blocks_in_memory(type)) && n % info->block_elements == 0);
    if (!blocks_runs(type))
        blocks_decode_wide(info, out, in, n);
    else if (n > 0)
        codec_of(type)->decode(out, in, n);
}

void blocks_zero(uint32_t type, void *data, uint64_t first, uint64_t n)
{
    assert(blocks_runs(type));
    const struct tensor_type_info *info = tensor_type_find(type);
    unsigned char *bytes = data;
    if (info->block_elements == 1) {
        memset(bytes + first * info->block_bytes, 0, n * info->block_bytes);
        return;
    }
    for (uint64_t i = first; i < first + n; i++) {
        const uint64_t j = i % BLOCK;
        unsigned char *q = bytes + i / BLOCK * info->block_bytes + 2;
        if (type == TENSOR_Q8_0)
            q[j] = 0;
        else if (j < BLOCK / 2)
            q[j] = (unsigned char)((q[j] & 0xf0) | 8);
        else
            q[j - BLOCK / 2] = (unsigned char)((q[j - BLOCK / 2] & 15) | 8 << 4);
    }
}
