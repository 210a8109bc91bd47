/*
 * The loops over a block have fixed lengths, no calls and no branches, so that compilers turn
 * them into vector code for any processor.
 */
#include "gguf/blocks.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "gguf/gguf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensor data are little-endian and are copied as they are");

#define BLOCK      32
#define Q8_0_BYTES (2 + BLOCK)
#define Q4_0_BYTES (2 + BLOCK / 2)

bool blocks_runs(uint32_t type)
{
    return type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16 || type == TENSOR_Q8_0 ||
           type == TENSOR_Q4_0;
}

/* --- halves ---------------------------------------------------------------------------------- */

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

/* The first of the values of largest magnitude. */
static float block_peak(const float *x)
{
    const float max = block_max(x);
    for (int j = 0; j < BLOCK && max > 0; j++)
        if (fabsf(x[j]) == max)
            return x[j];
    return max; /* no sign to be found: 0, or a NaN */
}

static inline int32_t nibble(float x, float id)
{
    const int32_t q = (int32_t)(convertible(x * id + 8.5f));
    return q < 15 ? q : 15;
}

static void encode_q4_0(unsigned char *out, const float *x, uint64_t n)
{
    for (; n > 0; n -= BLOCK, x += BLOCK, out += Q4_0_BYTES) {
        const float d = block_peak(x) / -8.0f, id = inverse(d);
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

void blocks_encode(uint32_t type, void *out, const float *x, uint64_t n)
{
    assert(blocks_runs(type) && n % tensor_type_find(type)->block_elements == 0);
    assert(n == 0 || (out && x));
    switch (type) {
    case TENSOR_F16:
        encode_f16(out, x, n);
        break;
    case TENSOR_BF16:
        encode_bf16(out, x, n);
        break;
    case TENSOR_Q8_0:
        encode_q8_0(out, x, n);
        break;
    case TENSOR_Q4_0:
        encode_q4_0(out, x, n);
        break;
    default:
        if (n > 0)
            memcpy(out, x, n * sizeof *x);
    }
}

void blocks_decode(uint32_t type, float *out, const void *in, uint64_t n)
{
    assert(blocks_runs(type) && n % tensor_type_find(type)->block_elements == 0);
    assert(n == 0 || (out && in));
    switch (type) {
    case TENSOR_F16:
        decode_f16(out, in, n);
        break;
    case TENSOR_BF16:
        decode_bf16(out, in, n);
        break;
    case TENSOR_Q8_0:
        decode_q8_0(out, in, n);
        break;
    case TENSOR_Q4_0:
        decode_q4_0(out, in, n);
        break;
    default:
        if (n > 0)
            memcpy(out, in, n * sizeof *out);
    }
}

void blocks_zero(uint32_t type, void *data, uint64_t first, uint64_t n)
{
    assert(blocks_runs(type) && (n == 0 || data));
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
