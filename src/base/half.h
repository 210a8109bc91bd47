/*
 * half - numbers as files have them: the 16-bit floating-point formats, in integer arithmetic (the
 * same bits everywhere), and little-endian integers.
 *
 * Static, so that each kernel object has a copy compiled for its own instruction set. Pure
 * functions of their arguments.
 */
#pragma once

#include <assert.h>
#include <stdint.h>
#include <string.h>

/* Converts IEEE binary16 to binary32, exactly. NaNs become quiet. */
static inline float f16_widen(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 31;
    const uint32_t mantissa = half & 1023;
    uint32_t bits;
    if (exponent == 0) {
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    if (exponent == 31)
        bits = sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0);
    else
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds binary32 to the nearest binary16, ties to even. NaNs keep their top bits and become quiet.
 */
static inline uint16_t f16_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000u) /* rounds to 65536 or more */
        return sign | 0x7c00;
    if (magnitude < 0x38800000u) { /* subnormal: let the adder round to multiples of 2^-24 */
        float x;
        memcpy(&x, &magnitude, sizeof x);
        x += 0.5f;
        uint32_t rounded;
        memcpy(&rounded, &x, sizeof rounded);
        return (uint16_t)(sign | (rounded - 0x3f000000u));
    }
    const uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfff + odd) >> 13);
}

/* Converts bfloat16, which is the upper half of a binary32, exactly. */
static inline float bf16_widen(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds binary32 to the nearest bfloat16, ties to even. NaNs become quiet. */
static inline uint16_t bf16_round(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
