/*
 * kernels_math - the scalar definitions that all kernel objects share (private).
 *
 * Everything is static: each object gets its own copy, compiled for its own instruction set, and
 * the linker cannot hand one object's copy to another.
 */
#pragma once

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "compute/kernels.h"

/*
 * exp(x) = 2^n * e^r with n = round(x / ln 2). Below EXP_MIN the result is 0, above EXP_MAX that
 * of EXP_MAX (so that 2^n is a normal number); a NaN stays one. exp(0) is exactly 1. The
 * polynomial is the minimax one of the Cephes library's expf; error below 1.5 ulp.
 */
#define EXP_MIN    (-87.0f)
#define EXP_MAX    88.0f
#define EXP_LOG2E  1.44269504088896341f
#define EXP_LN2_HI 0.693359375f /* exact in 9 bits, so n * EXP_LN2_HI is too */
#define EXP_LN2_LO (-2.12194440e-4f)
#define EXP_ROUND  (0x1.8p23f + 127) /* adding it leaves round(x) + 127 in the low mantissa bits */
#define EXP_C0     1.9875691500e-4f
#define EXP_C1     1.3981999507e-3f
#define EXP_C2     8.3334519073e-3f
#define EXP_C3     4.1665795894e-2f
#define EXP_C4     1.6666665459e-1f
#define EXP_C5     5.0000001201e-1f

/* 2^n, where z is n + EXP_ROUND, n from -126 to 127; 0 if n is -127. */
static inline float math_power_of_two(float z)
{
    return bits_float(float_bits(z) << 23);
}

static inline float math_exp(float x)
{
    if (x < EXP_MIN)
        return 0.0f;
    x = EXP_MAX < x ? EXP_MAX : x;
    const float z = fmaf(x, EXP_LOG2E, EXP_ROUND);
    const float n = z - EXP_ROUND;
    float r = fmaf(-n, EXP_LN2_HI, x);
    r = fmaf(-n, EXP_LN2_LO, r);
    float p = EXP_C0;
    p = fmaf(p, r, EXP_C1);
    p = fmaf(p, r, EXP_C2);
    p = fmaf(p, r, EXP_C3);
    p = fmaf(p, r, EXP_C4);
    p = fmaf(p, r, EXP_C5);
    p = fmaf(p, r * r, r) + 1.0f;
    return p * math_power_of_two(z);
}

/*
 * e^x for x <= 0, a score less the largest one: 2^n 2^r, where n is the integer nearest to x / ln 2
 * and r the rest. For r one product of a float and log2(e) is enough: the error is below
 * (1.7 - 0.14 x) 1e-7 of the result, so below 1.7e-7 of the largest weight. This takes three
 * quarters of the multiply-adds of math_exp. The result is 1 at 0, and 0 from WEIGHT_MIN down and
 * where n is -127; a NaN stays one. The polynomial is minimax in relative error among those that
 * are 1 at 0.
 */
#define WEIGHT_MIN (-88.0f)
#define WEIGHT_C1  0.6931469776f
#define WEIGHT_C2  0.2402224209f
#define WEIGHT_C3  0.05550733743f
#define WEIGHT_C4  0.00967151264f
#define WEIGHT_C5  0.00132647272f

static inline float math_weight(float x)
{
    x = WEIGHT_MIN > x ? WEIGHT_MIN : x;
    const float z = fmaf(x, EXP_LOG2E, EXP_ROUND), r = fmaf(x, EXP_LOG2E, EXP_ROUND - z);
    float p = fmaf(WEIGHT_C5, r, WEIGHT_C4);
    p = fmaf(p, r, WEIGHT_C3);
    p = fmaf(p, r, WEIGHT_C2);
    p = fmaf(p, r, WEIGHT_C1);
    return fmaf(p, r, 1.0f) * math_power_of_two(z);
}

/* tanh(x) = 1 - 2 / (1 + e^(2x)): the error is below 2e-7, however small the result, which is -1
 * and 1 at the ends; a NaN stays one. */
static inline float math_tanh(float x)
{
    return fmaf(-2.0f, 1.0f / (1.0f + math_exp(x + x)), 1.0f);
}

/* GELU(x) = x / 2 * (1 + tanh(u)) = x / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
 * (Hendrycks and Gimpel 2016) The constants below are -2 sqrt(2 / pi) and 0.044715 times it. */
#define GELU_LINEAR (-1.59576912160573071f)
#define GELU_CUBIC  (-0.0713548162726009527f)

static inline float math_gelu(float x)
{
    const float minus_2u = x * fmaf(x * x, GELU_CUBIC, GELU_LINEAR);
    return x / (1.0f + math_exp(minus_2u));
}

/*
 * Exact GELU: x Phi(x), where Phi(-t) = e^(-t^2 / 2) P(1 / (1 + GELU_TAIL t)) for t >= 0: the form
 * of Hastings (1955; Abramowitz and Stegun 7.1.26), whose error is relative to the tail. P is a
 * minimax polynomial of degree 9 (scripts/make/gelu.py), off by at most 0.14 units of 2^-24. What
 * t^2 loses by rounding is given back to P. From GELU_LAST on the tail is 0. Error below 7 ulp
 * while results are normal numbers.
 */
#define GELU_TAIL  0.33f
#define GELU_LAST  14.0f
#define GELU_TERMS 10
/* The coefficients of P, the highest power first. */
static const float gelu_terms[GELU_TERMS] = {
    -0.0265025006f, 0.151830422f, -0.329549682f, 0.300701264f, -0.113868785f,
    0.149445412f,   0.102579165f, 0.133902961f,  0.131454282f, 7.46770912e-06f};

static inline float math_gelu_erf(float x)
{
    const float t = x > 0.0f - x ? x : 0.0f - x;
    const float u = GELU_LAST < t ? GELU_LAST : t;
    const float square = u * u, lost = fmaf(u, u, 0.0f - square);
    const float s = 1.0f / fmaf(GELU_TAIL, u, 1.0f);
    float p = gelu_terms[0];
    for (int i = 1; i < GELU_TERMS; i++)
        p = fmaf(p, s, gelu_terms[i]);
    p = fmaf(p, -0.5f * lost, p) * math_exp(-0.5f * square);
    return fmaf(0.0f - u, p, x > 0.0f ? x : 0.0f);
}

static inline float math_relu(float x)
{
    return 0.0f > x ? 0.0f : x; /* a NaN stays one */
}

/* x / (1 + e^-x); from -EXP_MAX down the result of -EXP_MAX, which is nearly 0. */
static inline float math_silu(float x)
{
    x = -EXP_MAX > x ? -EXP_MAX : x;
    return x / (1.0f + math_exp(0.0f - x));
}

/* A score at a distance with a head's bias. */
static inline float math_biased(const struct attend_bias *bias, float distance, float score)
{
    const float x = distance - bias->centre;
    return fmaf(x, fmaf(x, bias->square, bias->linear), score);
}

/* x + ROUND_MAGIC - ROUND_MAGIC is x rounded to the nearest integer, ties to even, for
 * |x| < 2^22. */
#define ROUND_MAGIC 0x1.8p23f

/* A block whose largest magnitude is less counts as zeros, because 127 / max would overflow. */
#define QUANT_LEAST 0x1p-100f

/*
 * One block of activations: q [QUANT_BLOCK], its scale and the sum of q. The largest magnitude
 * is found among the bit patterns, where a NaN is above infinity, so that no order of
 * comparisons hides it.
 */
static inline void math_quantize(int8_t *q, float *scale, int32_t *sum, const float *x)
{
    uint32_t largest = 0;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        const uint32_t bits = float_bits(x[i]) & 0x7fffffffu;
        largest = largest > bits ? largest : bits;
    }
    const float max = bits_float(largest);
    *sum = 0;
    if (!(max >= QUANT_LEAST && max < INFINITY)) {
        *scale = max < QUANT_LEAST ? 0.0f : NAN;
        memset(q, 0, QUANT_BLOCK);
        return;
    }
    *scale = max / 127.0f;
    const float inverse = 127.0f / max;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        q[i] = (int8_t)(x[i] * inverse + ROUND_MAGIC - ROUND_MAGIC);
        *sum += q[i];
    }
}

/* The panel of a quantised matrix that a row is in. */
static inline const unsigned char *math_panel(const struct matrix *w, int row)
{
    return (const unsigned char *)w->panels +
           row / KERNEL_LANES * matrix_panel_bytes(w->n_in, w->storage);
}

/* Element i of a row in a panel of w, without its scale; and the scale of a block of the row. */
static inline int math_quant(const struct matrix *w, const unsigned char *panel, int row, int i)
{
    const unsigned char *elements = panel + matrix_scales_bytes(w->n_in);
    const size_t lane = row % KERNEL_LANES;
    if (w->storage == STORAGE_Q8_0)
        return elements[((size_t)(i / 4) * KERNEL_LANES + lane) * 4 + i % 4] - 128;
    const size_t block = i / QUANT_BLOCK, in_block = i % QUANT_BLOCK;
    const size_t quad = block * 4 + in_block % 16 / 4;
    const int both = elements[(quad * KERNEL_LANES + lane) * 4 + in_block % 4];
    return (in_block < 16 ? both & 15 : both >> 4) - 8;
}

static inline float math_quant_scale(const unsigned char *panel, int row, int block)
{
    const uint16_t *scales = (const uint16_t *)(const void *)panel;
    return f16_widen(scales[block * KERNEL_LANES + row % KERNEL_LANES]);
}

/* Element i of an array of F32, F16 or BF16. */
static inline float math_load(const void *base, enum storage storage, size_t i)
{
    switch (storage) {
    case STORAGE_F16:
        return f16_widen(((const uint16_t *)base)[i]);
    case STORAGE_BF16:
        return bf16_widen(((const uint16_t *)base)[i]);
    default:
        return ((const float *)base)[i];
    }
}

/* Number i of the cells or values of a cache of F32, F16 or Q8_0, without its scale. */
static inline float math_cached(const void *base, enum cache_type type, size_t i)
{
    return type == CACHE_Q8_0  ? (float)((const int8_t *)base)[i]
           : type == CACHE_F16 ? f16_widen(((const uint16_t *)base)[i])
                               : ((const float *)base)[i];
}

/* Number i of the key at position t of a chunk, without its *scale, which is 1 in types that have
 * none. */
static inline float math_chunk_key(const struct kv_chunk *kv, int t, int i, float *scale)
{
    const enum cache_type type = kv->type.keys;
    const size_t panel = t / KERNEL_LANES, lane = t % KERNEL_LANES;
    const size_t block = panel * quant_blocks(kv->key_dim) + i / QUANT_BLOCK;
    const size_t cells = cache_key_cells(type, kv->key_dim);
    *scale =
        cache_types[type].has_scales ? f16_widen(kv->k_scales[block * KERNEL_LANES + lane]) : 1;
    if (!cache_in_words(type))
        return math_cached(kv->k, type, (panel * cells + i) * KERNEL_LANES + lane);
    const uint32_t *words = (const uint32_t *)kv->k + panel * cells * KERNEL_LANES + lane;
    const int level = words[i / 8 * KERNEL_LANES] >> 4 * (i % 8) & 15;
    if (type == CACHE_Q4_0)
        return (float)(level - 8);
    const size_t at = cache_words(kv->key_dim) + i / QUANT_BLOCK;
    const int fifth = words[at * KERNEL_LANES] >> i % QUANT_BLOCK & 1;
    return (float)(level + 16 * fifth - 16);
}

/* Number i of the value at position t, without its *scale. */
static inline float math_chunk_value(const struct kv_chunk *kv, int t, int i, float *scale)
{
    const enum cache_type type = kv->type.values;
    const unsigned char *row =
        (const unsigned char *)kv->v + t * cache_value_bytes(type, kv->value_dim);
    const size_t block = t / KERNEL_LANES * quant_blocks(kv->value_dim) + i / QUANT_BLOCK;
    *scale = cache_types[type].has_scales
                 ? f16_widen(kv->v_scales[block * KERNEL_LANES + t % KERNEL_LANES])
                 : 1;
    if (!cache_in_words(type))
        return math_cached(row, type, i);
    const int vector = i / KERNEL_LANES, lane = i % KERNEL_LANES;
    uint32_t words[2];
    uint16_t fifths;
    memcpy(words, row + vector * sizeof words, sizeof words);
    const int level = words[lane % 2] >> 4 * (lane / 2) & 15;
    if (type == CACHE_Q4_0)
        return (float)(level - 8);
    memcpy(&fifths, row + kernel_padded(kv->value_dim) / 2 + vector * sizeof fifths, sizeof fifths);
    return (float)(level + 16 * (fifths >> lane & 1) - 16);
}
