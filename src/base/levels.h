/*
 * levels - how a block of 32 numbers becomes integers that share a factor d, as Q8_0, Q5_0 and Q4_0
 * have them in the ggml project.
 *
 * Static and plain, for the reason in half.h: the loops have a fixed length, no calls and no
 * branches, so that compilers turn them into vector code for any instruction set.
 */
#pragma once

#include <math.h>

#include "base/half.h"

#define LEVEL_BLOCK 32

/* Returns the largest magnitude of a block. Magnitudes have the same order as integers, where a NaN
 * is the largest. */
static inline float block_max(const float *x)
{
    int32_t max = 0;
    for (int j = 0; j < LEVEL_BLOCK; j++) {
        const int32_t bits = float_bits(x[j]) & INT32_MAX;
        max = bits > max ? bits : max;
    }
    return bits_float(max);
}

/* Returns x if it is near the numbers that are stored, else 0. What is too large to convert comes
 * from a d that is infinite, not a number, or so small that 1 / d overflows; ggml's conversion on
 * x86 is 0 then, too. */
#define CONVERTIBLE 0x43000000 /* 128 as bits */

static inline float convertible(float x)
{
    const uint32_t bits = float_bits(x);
    return bits_float(bits & -(uint32_t)((bits & INT32_MAX) <= CONVERTIBLE));
}

static inline float inverse(float d)
{
    return d != 0.0f ? 1.0f / d : 0.0f;
}

/* Makes the numbers of a block in 8 bits, as int8, and returns d. They are rounded to the nearest
 * integer, ties away from 0: to add the float below a half and cut the fraction off gives the same
 * for every float of this size. */
#define BELOW_HALF 0x1.fffffep-2f
static inline float block_signed(uint8_t *q, const float *x)
{
    const float d = block_max(x) / 127.0f, id = inverse(d);
    for (int j = 0; j < LEVEL_BLOCK; j++) {
        const float v = x[j] * id;
        q[j] = (uint8_t)(int32_t)convertible(v + copysignf(BELOW_HALF, v));
    }
    return d;
}

/* Returns the first value of the largest magnitude of a block; of 0 and a NaN the magnitude. The
 * largest of each sign, compared as integers, say which value that is, unless both are as large. */
static inline float block_peak(const float *x)
{
    int32_t plus = 0, minus = 0;
    for (int j = 0; j < LEVEL_BLOCK; j++) {
        const int32_t bits = float_bits(x[j]), turned = bits ^ INT32_MIN;
        plus = bits > plus ? bits : plus;
        minus = turned > minus ? turned : minus;
    }
    const float most = bits_float(plus > minus ? plus : minus);
    if (plus != minus && !isnan(most))
        return plus > minus ? most : -most;
    for (int j = 0; j < LEVEL_BLOCK && most > 0; j++)
        if (fabsf(x[j]) == most)
            return x[j];
    return most;
}

/* Makes the numbers of a block as levels from 0 to 2 half - 1, where the peak is 0. Returns d. */
static inline float block_unsigned(uint8_t *q, const float *x, int32_t half)
{
    const float d = block_peak(x) / (float)-half, id = inverse(d), middle = (float)half + 0.5f;
    for (int j = 0; j < LEVEL_BLOCK; j++) {
        const int32_t level = (int32_t)(convertible(x[j] * id + middle));
        q[j] = (uint8_t)(level < 2 * half - 1 ? level : 2 * half - 1);
    }
    return d;
}

/* Makes the 32 numbers q of a block of x [32] in 8, 5 or 4 bits: of 8 bits int8, x ~ d q; of fewer
 * bits levels, x ~ d (q - 2^(bits - 1)). Returns d as binary16. */
static inline uint16_t block_levels(int bits, uint8_t *q, const float *x)
{
    return f16_round(bits == 8 ? block_signed(q, x) : block_unsigned(q, x, 1 << (bits - 1)));
}
