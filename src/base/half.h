/*
 * half - numbers as files have them: the 16-bit floating-point formats, in integer arithmetic (the
 * same bits everywhere), and little-endian integers at any address; and the bits of floats.
 *
 * Static, so that each kernel object has a copy compiled for its own instruction set. Pure
 * functions of their arguments.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Returns the bits of a binary32, and the binary32 of these bits. */
static inline uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Converts IEEE binary16 to binary32, exactly. NaNs become quiet. */
static inline float f16_widen(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 31;
    const uint32_t mantissa = half & 1023;
    if (exponent == 0) {
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    if (exponent == 31)
        return bits_float(sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0));
    return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* Rounds binary32 to the nearest binary16, ties to even. NaNs keep their top bits and become quiet.
 */
static inline uint16_t f16_round(float value)
{
    const uint32_t bits = float_bits(value);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000u) /* rounds to 65536 or more */
        return sign | 0x7c00;
    if (magnitude < 0x38800000u) /* subnormal: let the adder round to multiples of 2^-24 */
        return (uint16_t)(sign | (float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u));
    const uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude - 0x38000000u + 0xfff + odd) >> 13);
}

/* Converts bfloat16, which is the upper half of a binary32, exactly. */
static inline float bf16_widen(uint16_t half)
{
    return bits_float((uint32_t)half << 16);
}

/* Rounds binary32 to the nearest bfloat16, ties to even. NaNs become quiet. */
static inline uint16_t bf16_round(float value)
{
    const uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Reads a little-endian number of 1 to 8 bytes (asserted) at any address. */
static inline uint64_t little_load(const void *from, size_t bytes)
{
    assert(bytes >= 1 && bytes <= 8);
    const unsigned char *raw = from;
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)raw[i] << (8 * i);
    return value;
}

/* Writes the low 1 to 8 bytes (asserted) of the value at any address, little-endian. */
static inline void little_store(void *to, uint64_t value, size_t bytes)
{
    assert(bytes >= 1 && bytes <= 8);
    unsigned char *raw = to;
    for (size_t i = 0; i < bytes; i++)
        raw[i] = (unsigned char)(value >> (8 * i));
}
