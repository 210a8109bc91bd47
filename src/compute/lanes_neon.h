/*
 * lanes_neon - lanes for AArch64 with NEON and its dot product (included by lanes.h).
 */
#pragma once

#include <arm_neon.h>
#include <stdint.h>

typedef struct {
    float32x4_t q0, q1, q2, q3;
} lanes;

/* KERNEL_LANES int32. */
typedef struct {
    int32x4_t q0, q1, q2, q3;
} ints;

/* A group of four bytes for each lane. */
typedef struct {
    uint8x16_t q0, q1, q2, q3;
} bytes;

/* Functions of whole values from what does the same for a quarter: of one value, or two; of a
 * number for all lanes; of memory. */
#define LANES_1(to, name, from, f)                                                                 \
    static inline to name(from a)                                                                  \
    {                                                                                              \
        return (to){f(a.q0), f(a.q1), f(a.q2), f(a.q3)};                                           \
    }
#define LANES_2(to, name, f)                                                                       \
    static inline to name(to a, to b)                                                              \
    {                                                                                              \
        return (to){f(a.q0, b.q0), f(a.q1, b.q1), f(a.q2, b.q2), f(a.q3, b.q3)};                   \
    }
#define LANES_ALL(to, name, number, f)                                                             \
    static inline to name(number x)                                                                \
    {                                                                                              \
        return (to){f(x), f(x), f(x), f(x)};                                                       \
    }
#define LANES_LOAD(to, name, element, n, f)                                                        \
    static inline to name(const element *p)                                                        \
    {                                                                                              \
        return (to){f(p), f(p + (n)), f(p + 2 * (n)), f(p + 3 * (n))};                             \
    }

static inline float32x4_t quarter_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline float32x4_t quarter_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p)), 16));
}

static inline void lanes_store(float *p, lanes a)
{
    vst1q_f32(p, a.q0);
    vst1q_f32(p + 4, a.q1);
    vst1q_f32(p + 8, a.q2);
    vst1q_f32(p + 12, a.q3);
}

static inline void quarter_store_f16(uint16_t *p, float32x4_t a)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}

static inline void lanes_store_f16(uint16_t *p, lanes a)
{
    quarter_store_f16(p, a.q0);
    quarter_store_f16(p + 4, a.q1);
    quarter_store_f16(p + 8, a.q2);
    quarter_store_f16(p + 12, a.q3);
}

/* Not FMAX, which gives the NaN whichever operand it is. */
static inline float32x4_t quarter_max(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return (lanes){vfmaq_f32(c.q0, a.q0, b.q0), vfmaq_f32(c.q1, a.q1, b.q1),
                   vfmaq_f32(c.q2, a.q2, b.q2), vfmaq_f32(c.q3, a.q3, b.q3)};
}

static inline float32x4_t quarter_min(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

static inline float32x4_t quarter_power_of_two(float32x4_t z)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(z), 23));
}

static inline float32x4_t quarter_zero_below(float32x4_t a, float32x4_t x, float32x4_t limit)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vcltq_f32(x, limit)));
}

static inline uint8x16_t quarter_low_halves(uint8x16_t a)
{
    return vandq_u8(a, vdupq_n_u8(15));
}

static inline uint8x16_t quarter_high_halves(uint8x16_t a)
{
    return vshrq_n_u8(a, 4);
}

static inline int32x4_t quarter_right(int32x4_t a, int32x4_t n)
{
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a), vnegq_s32(n)));
}

static inline uint8x16_t quarter_less_128(uint8x16_t w)
{
    return veorq_u8(w, vdupq_n_u8(128));
}

LANES_ALL(lanes, lanes_all, float, vdupq_n_f32)
LANES_ALL(ints, ints_all, int32_t, vdupq_n_s32)
LANES_LOAD(lanes, lanes_load, float, 4, vld1q_f32)
LANES_LOAD(lanes, lanes_load_f16, uint16_t, 4, quarter_load_f16)
LANES_LOAD(lanes, lanes_load_bf16, uint16_t, 4, quarter_load_bf16)
LANES_LOAD(bytes, bytes_load, uint8_t, 16, vld1q_u8)
LANES_2(lanes, lanes_add, vaddq_f32)
LANES_2(lanes, lanes_sub, vsubq_f32)
LANES_2(lanes, lanes_mul, vmulq_f32)
LANES_2(lanes, lanes_div, vdivq_f32)
LANES_2(lanes, lanes_max, quarter_max)
LANES_2(lanes, lanes_min, quarter_min)
LANES_2(ints, ints_and, vandq_s32)
LANES_2(ints, ints_right_each, quarter_right)
LANES_1(lanes, lanes_sqrt, lanes, vsqrtq_f32)
LANES_1(lanes, lanes_power_of_two, lanes, quarter_power_of_two)
LANES_1(ints, lanes_round, lanes, vcvtnq_s32_f32)
LANES_1(lanes, ints_to_lanes, ints, vcvtq_f32_s32)
LANES_1(bytes, bytes_low_halves, bytes, quarter_low_halves)
LANES_1(bytes, bytes_high_halves, bytes, quarter_high_halves)
LANES_1(bytes, bytes_less_128, bytes, quarter_less_128)

static inline ints ints_load(const uint32_t *p)
{
    const int32_t *q = (const int32_t *)p;
    return (ints){vld1q_s32(q), vld1q_s32(q + 4), vld1q_s32(q + 8), vld1q_s32(q + 12)};
}

static inline ints ints_twice(const void *p)
{
    int64_t both;
    __builtin_memcpy(&both, p, sizeof both);
    const int32x4_t q = vreinterpretq_s32_s64(vdupq_n_s64(both));
    return (ints){q, q, q, q};
}

static inline ints ints_right(ints a, int n)
{
    return ints_right_each(a, ints_all(n));
}

static inline ints ints_low(ints a, int n)
{
    return ints_and(a, ints_all((1 << n) - 1));
}

static inline lanes lanes_exchange(lanes a, int distance)
{
    if (distance == 8)
        return (lanes){a.q2, a.q3, a.q0, a.q1};
    if (distance == 4)
        return (lanes){a.q1, a.q0, a.q3, a.q2};
    if (distance == 2)
        return (lanes){vextq_f32(a.q0, a.q0, 2), vextq_f32(a.q1, a.q1, 2), vextq_f32(a.q2, a.q2, 2),
                       vextq_f32(a.q3, a.q3, 2)};
    return (lanes){vrev64q_f32(a.q0), vrev64q_f32(a.q1), vrev64q_f32(a.q2), vrev64q_f32(a.q3)};
}

static inline lanes lanes_zero_below(lanes a, lanes x, float limit)
{
    const float32x4_t l = vdupq_n_f32(limit);
    return (lanes){quarter_zero_below(a.q0, x.q0, l), quarter_zero_below(a.q1, x.q1, l),
                   quarter_zero_below(a.q2, x.q2, l), quarter_zero_below(a.q3, x.q3, l)};
}

static inline lanes lanes_load_i8(const int8_t *p)
{
    const int8x16_t all = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(all)), high = vmovl_s8(vget_high_s8(all));
    return (lanes){vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                   vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
                   vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                   vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))};
}

static inline ints ints_dot_halves(ints acc, bytes w, int32_t quad)
{
    const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(quad));
    return (ints){vdotq_s32(acc.q0, vreinterpretq_s8_u8(w.q0), x),
                  vdotq_s32(acc.q1, vreinterpretq_s8_u8(w.q1), x),
                  vdotq_s32(acc.q2, vreinterpretq_s8_u8(w.q2), x),
                  vdotq_s32(acc.q3, vreinterpretq_s8_u8(w.q3), x)};
}

static inline ints ints_dot_offset(ints acc, bytes w, int32_t quad)
{
    return ints_dot_halves(acc, bytes_less_128(w), quad);
}

static inline void ints_store_i8(int8_t *p, ints a)
{
    const int16x8_t low = vcombine_s16(vmovn_s32(a.q0), vmovn_s32(a.q1));
    const int16x8_t high = vcombine_s16(vmovn_s32(a.q2), vmovn_s32(a.q3));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

static inline int32_t ints_sum(ints a, ints b)
{
    const int32x4_t of_a = vaddq_s32(vaddq_s32(a.q0, a.q1), vaddq_s32(a.q2, a.q3));
    const int32x4_t of_b = vaddq_s32(vaddq_s32(b.q0, b.q1), vaddq_s32(b.q2, b.q3));
    return vaddvq_s32(vaddq_s32(of_a, of_b));
}

static inline uint32x4_t quarter_largest_bits(float32x4_t a, float32x4_t b)
{
    return vmaxq_u32(vreinterpretq_u32_f32(vabsq_f32(a)), vreinterpretq_u32_f32(vabsq_f32(b)));
}

static inline uint32_t lanes_largest_bits(lanes a, lanes b)
{
    const uint32x4_t low =
        vmaxq_u32(quarter_largest_bits(a.q0, b.q0), quarter_largest_bits(a.q1, b.q1));
    const uint32x4_t high =
        vmaxq_u32(quarter_largest_bits(a.q2, b.q2), quarter_largest_bits(a.q3, b.q3));
    return vmaxvq_u32(vmaxq_u32(low, high));
}

static inline float lanes_sum(lanes a)
{
    const float32x4_t four = vaddq_f32(vaddq_f32(a.q0, a.q2), vaddq_f32(a.q1, a.q3));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

static inline float lanes_largest(lanes a)
{
    const float32x4_t four = quarter_max(quarter_max(a.q0, a.q2), quarter_max(a.q1, a.q3));
    const float32x4_t two = quarter_max(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(quarter_max(two, vextq_f32(two, two, 1)), 0);
}
