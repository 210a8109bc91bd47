/*
 * Block types that are read but not computed with: each element is scale * q + offset, with a scale
 * and an offset for every 16 or 32 elements. Each type unpacks its bits into those.
 *
 * Source: the dequantize_row functions of the ggml project, which define what is in a file.
 */
#include "base/mem.h"
#include "formats/gguf_private.h"

#define MOST_ELEMENTS 256

struct unpacked {
    int8_t q[MOST_ELEMENTS];
    float scale[MOST_ELEMENTS / 16], offset[MOST_ELEMENTS / 16];
};

static float half_at(const uint8_t *in)
{
    uint16_t half;
    memcpy(&half, in, sizeof half);
    return f16_widen(half);
}

/* Low nibbles of 16 bytes, then high ones; their fifth bits follow each other in `fifth`, which may
 * be NULL. */
static void nibbles(int8_t *q, const uint8_t *in, const uint8_t *fifth, int minus)
{
    for (int j = 0; j < 32; j++) {
        const int low = j < 16 ? in[j] & 15 : in[j - 16] >> 4;
        const int high = fifth ? fifth[j / 8] >> j % 8 & 1 : 0;
        q[j] = (low | high << 4) - minus;
    }
}

static void unpack_q4_1(struct unpacked *u, const uint8_t *in)
{
    nibbles(u->q, in + 4, NULL, 0);
    u->scale[0] = half_at(in);
    u->offset[0] = half_at(in + 2);
}

static void unpack_q5_0(struct unpacked *u, const uint8_t *in)
{
    nibbles(u->q, in + 6, in + 2, 16);
    u->scale[0] = half_at(in);
    u->offset[0] = 0;
}

static void unpack_q5_1(struct unpacked *u, const uint8_t *in)
{
    nibbles(u->q, in + 8, in + 4, 0);
    u->scale[0] = half_at(in);
    u->offset[0] = half_at(in + 2);
}

/* Levels that are not equally far apart. */
static void unpack_iq4_nl(struct unpacked *u, const uint8_t *in)
{
    static const int8_t levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    nibbles(u->q, in + 2, NULL, 0);
    for (int j = 0; j < 32; j++)
        u->q[j] = levels[u->q[j]];
    u->scale[0] = half_at(in);
    u->offset[0] = 0;
}

/* Pairs of bits: byte l of 32 holds those of the elements l, l + 32, l + 64 and l + 96. */
static int bits2(const uint8_t *in, int j)
{
    return in[j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3;
}

static void unpack_q2_k(struct unpacked *u, const uint8_t *in)
{
    const float d = half_at(in + 80), least = half_at(in + 82);
    for (int j = 0; j < 256; j++)
        u->q[j] = bits2(in + 16, j);
    for (int g = 0; g < 16; g++) {
        u->scale[g] = d * (float)(in[g] & 15);
        u->offset[g] = -(least * (float)(in[g] >> 4));
    }
}

static void unpack_q3_k(struct unpacked *u, const uint8_t *in)
{
    const uint8_t *third = in, *low = in + 32, *scales = in + 96;
    const float d = half_at(in + 108);
    for (int j = 0; j < 256; j++)
        u->q[j] = bits2(low, j) - (third[j % 32] >> j / 32 & 1 ? 0 : 4);
    for (int g = 0; g < 16; g++) { /* of six bits, the upper two apart */
        const int lower = scales[g % 8] >> g / 8 * 4 & 15, upper = scales[8 + g % 4] >> g / 4 * 2;
        u->scale[g] = d * (float)((lower | (upper & 3) << 4) - 32);
        u->offset[g] = 0;
    }
}

/* Scales and least values of six bits each: of the first four groups in bytes of their own, whose
 * upper two bits hold those of the last four. Without fifth bits `fifth` is NULL. */
static void unpack_q45_k(struct unpacked *u, const uint8_t *in, const uint8_t *fifth,
                         const uint8_t *low)
{
    const float d = half_at(in), least = half_at(in + 2);
    const uint8_t *six = in + 4;
    for (int j = 0; j < 256; j++) {
        const int byte = low[j / 64 * 32 + j % 32], high = fifth ? fifth[j % 32] >> j / 32 & 1 : 0;
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

static void unpack_q4_k(struct unpacked *u, const uint8_t *in)
{
    unpack_q45_k(u, in, NULL, in + 16);
}

static void unpack_q5_k(struct unpacked *u, const uint8_t *in)
{
    unpack_q45_k(u, in, in + 16, in + 48);
}

static void unpack_q6_k(struct unpacked *u, const uint8_t *in)
{
    const float d = half_at(in + 208);
    for (int j = 0; j < 256; j++) {
        const int low = in[j / 128 * 64 + j % 64] >> j % 128 / 64 * 4 & 15;
        u->q[j] = (low | bits2(in + 128, j) << 4) - 32;
    }
    for (int g = 0; g < 16; g++) {
        const int scale = in[192 + g];
        u->scale[g] = d * (float)(scale < 128 ? scale : scale - 256);
        u->offset[g] = 0;
    }
}

static const struct wide {
    uint32_t type, in_memory;
    int group; /* elements of one scale */
    void (*unpack)(struct unpacked *u, const uint8_t *in);
} wide[] = {
    {TENSOR_Q4_1, TENSOR_Q8_0, 32, unpack_q4_1},     {TENSOR_Q5_0, TENSOR_Q8_0, 32, unpack_q5_0},
    {TENSOR_Q5_1, TENSOR_Q8_0, 32, unpack_q5_1},     {TENSOR_Q2_K, TENSOR_Q8_0, 16, unpack_q2_k},
    {TENSOR_Q3_K, TENSOR_Q8_0, 16, unpack_q3_k},     {TENSOR_Q4_K, TENSOR_Q8_0, 32, unpack_q4_k},
    {TENSOR_Q5_K, TENSOR_Q8_0, 32, unpack_q5_k},     {TENSOR_Q6_K, TENSOR_F16, 16, unpack_q6_k},
    {TENSOR_IQ4_NL, TENSOR_Q8_0, 32, unpack_iq4_nl},
};

static const struct wide *wide_of(uint32_t type)
{
    for (const struct wide *w = wide; w < END_OF(wide); w++)
        if (w->type == type)
            return w;
    return NULL;
}

uint32_t blocks_in_memory(uint32_t type)
{
    const struct wide *w = wide_of(type);
    return w ? w->in_memory : type;
}

void blocks_decode_wide(const struct tensor_type_info *type, float *out, const uint8_t *in,
                        uint64_t n)
{
    const struct wide *w = wide_of(type->type);
    for (; n > 0; n -= type->block_elements, in += type->block_bytes) {
        struct unpacked u;
        w->unpack(&u, in);
        for (uint32_t j = 0; j < type->block_elements; j++)
            *out++ = u.scale[j / w->group] * (float)u.q[j] + u.offset[j / w->group];
    }
}
