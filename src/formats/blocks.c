/*
 * Loops over a block have fixed lengths, no calls and no branches, so that compilers turn them into
 * vector code for any processor.
 */
#include "formats/blocks.h"

#include "base/levels.h"
#include "base/mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensor data are little-endian and are copied as they are");

#define Q8_0_BYTES (2 + LEVEL_BLOCK)
#define Q4_0_BYTES (2 + LEVEL_BLOCK / 2)

/* --- types ------------------------------------------------------------------------------------ */

/* By number. Blocks of 256 belong to the K, IQ and TQ families. */
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
    for (const struct tensor_type_info *t = types; t < types + LENGTH(types); t++)
        if (t->type == type)
            return t;
    return NULL;
}

const struct tensor_type_info *tensor_type_named(struct text name)
{
    for (const struct tensor_type_info *t = types; t < types + LENGTH(types); t++)
        if (strlen(t->name) == name.len && !strncasecmp(t->name, name.data, name.len))
            return t;
    return NULL;
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

static void encode_q8_0(unsigned char *out, const float *x, uint64_t n)
{
    for (; n > 0; n -= LEVEL_BLOCK, x += LEVEL_BLOCK, out += Q8_0_BYTES)
        put_half(out, block_levels(8, out + 2, x));
}

static void decode_q8_0(float *out, const unsigned char *in, uint64_t n)
{
    for (; n > 0; n -= LEVEL_BLOCK, in += Q8_0_BYTES, out += LEVEL_BLOCK) {
        const float d = f16_widen(half_at(in));
        int8_t q[LEVEL_BLOCK];
        memcpy(q, in + 2, sizeof q);
        for (int j = 0; j < LEVEL_BLOCK; j++)
            out[j] = d * (float)q[j];
    }
}

static void encode_q4_0(unsigned char *out, const float *x, uint64_t n)
{
    for (; n > 0; n -= LEVEL_BLOCK, x += LEVEL_BLOCK, out += Q4_0_BYTES) {
        uint8_t q[LEVEL_BLOCK];
        put_half(out, block_levels(4, q, x));
        for (int j = 0; j < LEVEL_BLOCK / 2; j++)
            out[2 + j] = (uint8_t)(q[j] | q[j + LEVEL_BLOCK / 2] << 4);
    }
}

static void decode_q4_0(float *out, const unsigned char *in, uint64_t n)
{
    for (; n > 0; n -= LEVEL_BLOCK, in += Q4_0_BYTES, out += LEVEL_BLOCK) {
        const float d = f16_widen(half_at(in));
        uint8_t q[LEVEL_BLOCK / 2];
        memcpy(q, in + 2, sizeof q);
        for (int j = 0; j < LEVEL_BLOCK / 2; j++) {
            out[j] = d * (float)((q[j] & 15) - 8);
            out[j + LEVEL_BLOCK / 2] = d * (float)((q[j] >> 4) - 8);
        }
    }
}

/* --- types that are only read ----------------------------------------------------------------- */

/*
 * Block types that are read but not computed with: each element is scale * q + offset, with a scale
 * and an offset for every 16 or 32 elements. Each type unpacks its bits into those.
 *
 * Source: the dequantize_row functions of the ggml project, which define what is in a file.
 */

#define MOST_ELEMENTS 256

struct unpacked {
    int8_t q[MOST_ELEMENTS];
    float scale[MOST_ELEMENTS / 16], offset[MOST_ELEMENTS / 16];
};

static float f16_at(const uint8_t *in)
{
    return f16_widen(half_at(in));
}

/* Where the parts of a block are, in bytes from its start. */
struct parts {
    int d, least; /* binary16: what scales and offsets are multiplied by; `least` 0: no offsets */
    int scales;   /* integers of fewer bits */
    int low;      /* lower bits of the elements */
    int high;     /* upper bits; 0: there are none, but in Q3_K they are at 0 */
    int minus;    /* is taken off the elements */
};

/* A block with one scale. Its lower bits are the low nibbles of 16 bytes and then the high ones. */
static void unpack_32(struct unpacked *u, const uint8_t *in, const struct parts *at)
{
    for (int j = 0; j < 32; j++) {
        const int low = j < 16 ? in[at->low + j] & 15 : in[at->low + j - 16] >> 4;
        const int high = at->high ? in[at->high + j / 8] >> j % 8 & 1 : 0;
        u->q[j] = (low | high << 4) - at->minus;
    }
    u->scale[0] = f16_at(in + at->d);
    u->offset[0] = at->least ? f16_at(in + at->least) : 0;
}

/* The elements are levels that are not equally far apart. */
static void unpack_iq4_nl(struct unpacked *u, const uint8_t *in, const struct parts *at)
{
    static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    unpack_32(u, in, at);
    for (int j = 0; j < 32; j++)
        u->q[j] = levels[u->q[j]];
}

/* Pairs of bits: byte l of 32 holds those of the elements l, l + 32, l + 64 and l + 96. */
static int bits2(const uint8_t *in, int j)
{
    return in[j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3;
}

static void unpack_q2_k(struct unpacked *u, const uint8_t *in, const struct parts *at)
{
    const float d = f16_at(in + at->d), least = f16_at(in + at->least);
    for (int j = 0; j < 256; j++)
        u->q[j] = bits2(in + at->low, j);
    for (int g = 0; g < 16; g++) {
        u->scale[g] = d * (float)(in[at->scales + g] & 15);
        u->offset[g] = -(least * (float)(in[at->scales + g] >> 4));
    }
}

static void unpack_q3_k(struct unpacked *u, const uint8_t *in, const struct parts *at)
{
    const uint8_t *third = in + at->high, *scales = in + at->scales;
    const float d = f16_at(in + at->d);
    for (int j = 0; j < 256; j++)
        u->q[j] = bits2(in + at->low, j) - (third[j % 32] >> j / 32 & 1 ? 0 : 4);
    for (int g = 0; g < 16; g++) { /* of six bits, the upper two apart */
        const int lower = scales[g % 8] >> g / 8 * 4 & 15, upper = scales[8 + g % 4] >> g / 4 * 2;
        u->scale[g] = d * (float)((lower | (upper & 3) << 4) - 32);
        u->offset[g] = 0;
    }
}

/* Q4_K and Q5_K. Scales and least values have six bits each: those of the first four groups are in
 * bytes of their own, whose upper two bits hold those of the last four. */
static void unpack_q45_k(struct unpacked *u, const uint8_t *in, const struct parts *at)
{
    const float d = f16_at(in + at->d), least = f16_at(in + at->least);
    const uint8_t *six = in + at->scales, *fifth = in + at->high;
    for (int j = 0; j < 256; j++) {
        const int byte = in[at->low + j / 64 * 32 + j % 32];
        const int high = at->high ? fifth[j % 32] >> j / 32 & 1 : 0;
        u->q[j] = (byte >> j % 64 / 32 * 4 & 15) | high << 4;
    }
    for (int g = 0; g < 8; g++) {
        int scale = six[g % 4] & 63, min = six[4 + g % 4] & 63;
        if (g >= 4) {
            scale = (six[4 + g] & 15) | six[g - 4] >> 6 << 4;
            min = six[4 + g] >> 4 | six[g] >> 6 << 4;
        }
        u->scale[g] = d * (float)scale;
        u->offset[g] = -(least * (float)min);
    }
}

static void unpack_q6_k(struct unpacked *u, const uint8_t *in, const struct parts *at)
{
    const float d = f16_at(in + at->d);
    for (int j = 0; j < 256; j++) {
        const int low = in[at->low + j / 128 * 64 + j % 64] >> j % 128 / 64 * 4 & 15;
        u->q[j] = (low | bits2(in + at->high, j) << 4) - 32;
    }
    for (int g = 0; g < 16; g++) {
        const int scale = (int8_t)in[at->scales + g];
        u->scale[g] = d * (float)scale;
        u->offset[g] = 0;
    }
}

/* --- by type --------------------------------------------------------------------------------- */

/* How numbers of a type are read and written. The types that this program computes with have
 * `decode`; those that are only read have `unpack`. */
static const struct codec {
    void (*unpack)(struct unpacked *u, const uint8_t *in, const struct parts *at);
    int group; /* elements of one scale */
    struct parts at;
    bool in_f16; /* what is only read, in memory; else it is Q8_0 there */
    void (*decode)(float *out, const unsigned char *in, uint64_t n);
    void (*encode)(unsigned char *out, const float *x, uint64_t n);
    uint32_t file_type; /* llama.cpp's enum llama_ftype */
} codecs[] = {
    [TENSOR_F32] = {.decode = decode_f32, .encode = encode_f32, .file_type = 0},
    [TENSOR_F16] = {.decode = decode_f16, .encode = encode_f16, .file_type = 1},
    [TENSOR_Q4_0] = {.decode = decode_q4_0, .encode = encode_q4_0, .file_type = 2},
    [TENSOR_Q8_0] = {.decode = decode_q8_0, .encode = encode_q8_0, .file_type = 7},
    [TENSOR_BF16] = {.decode = decode_bf16, .encode = encode_bf16, .file_type = 32},
    [TENSOR_Q4_1] = {unpack_32, 32, .at = {.least = 2, .low = 4}},
    [TENSOR_Q5_0] = {unpack_32, 32, .at = {.high = 2, .low = 6, .minus = 16}},
    [TENSOR_Q5_1] = {unpack_32, 32, .at = {.least = 2, .high = 4, .low = 8}},
    [TENSOR_Q2_K] = {unpack_q2_k, 16, .at = {.low = 16, .d = 80, .least = 82}},
    [TENSOR_Q3_K] = {unpack_q3_k, 16, .at = {.low = 32, .scales = 96, .d = 108}},
    [TENSOR_Q4_K] = {unpack_q45_k, 32, .at = {.least = 2, .scales = 4, .low = 16}},
    [TENSOR_Q5_K] = {unpack_q45_k, 32, .at = {.least = 2, .scales = 4, .high = 16, .low = 48}},
    [TENSOR_Q6_K] = {unpack_q6_k, 16, .at = {.high = 128, .scales = 192, .d = 208}, .in_f16 = true},
    [TENSOR_IQ4_NL] = {unpack_iq4_nl, 32, .at = {.low = 2}},
};

/* The codec of a type; an empty one if it is not even read. */
static const struct codec *codec_of(uint32_t type)
{
    static const struct codec none;
    return type < (uint32_t)LENGTH(codecs) ? &codecs[type] : &none;
}

bool blocks_runs(uint32_t type)
{
    return codec_of(type)->decode;
}

uint32_t blocks_in_memory(uint32_t type)
{
    const struct codec *c = codec_of(type);
    return !c->unpack ? type : c->in_f16 ? TENSOR_F16 : TENSOR_Q8_0;
}

uint32_t gguf_file_type(uint32_t type)
{
    return codec_of(type)->file_type;
}

void blocks_encode(uint32_t type, void *out, const float *x, uint64_t n)
{
    assert(codec_of(type)->encode && n % tensor_type_find(type)->block_elements == 0);
    if (n > 0)
        codec_of(type)->encode(out, x, n);
}

void blocks_decode(uint32_t type, float *out, const void *in, uint64_t n)
{
    const struct tensor_type_info *info = tensor_type_find(type);
    const struct codec *c = codec_of(type);
    assert(blocks_runs(blocks_in_memory(type)) && n % info->block_elements == 0);
    if (c->decode && n > 0)
        c->decode(out, in, n);
    if (c->decode)
        return;
    for (const uint8_t *block = in; n > 0; n -= info->block_elements) {
        struct unpacked u;
        c->unpack(&u, block, &c->at);
        for (uint32_t j = 0; j < info->block_elements; j++)
            *out++ = u.scale[j / c->group] * (float)u.q[j] + u.offset[j / c->group];
        block += info->block_bytes;
    }
}
