/*
 * lanes_neon - lanes for AArch64 with NEON (layer 1, included by lanes.h).
 */
#ifndef DECODE_PARTS_LANES_NEON_H
#define DECODE_PARTS_LANES_NEON_H

#include <arm_neon.h>
#include <stdint.h>

typedef struct {
    float32x4_t q0, q1, q2, q3;
} lanes;

static inline lanes lanes_all(float x)
{
    const float32x4_t q = vdupq_n_f32(x);
    return (lanes){q, q, q, q};
}

static inline lanes lanes_zero(void)
{
    return lanes_all(0.0f);
}

static inline lanes lanes_load(const float *p)
{
    return (lanes){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}

static inline float32x4_t quarter_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline lanes lanes_load_f16(const uint16_t *p)
{
    return (lanes){quarter_load_f16(p), quarter_load_f16(p + 4), quarter_load_f16(p + 8),
                   quarter_load_f16(p + 12)};
}

static inline float32x4_t quarter_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p)), 16));
}

static inline lanes lanes_load_bf16(const uint16_t *p)
{
    return (lanes){quarter_load_bf16(p), quarter_load_bf16(p + 4), quarter_load_bf16(p + 8),
                   quarter_load_bf16(p + 12)};
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

static inline lanes lanes_add(lanes a, lanes b)
{
    return (lanes){vaddq_f32(a.q0, b.q0), vaddq_f32(a.q1, b.q1), vaddq_f32(a.q2, b.q2),
                   vaddq_f32(a.q3, b.q3)};
}

static inline lanes lanes_sub(lanes a, lanes b)
{
    return (lanes){vsubq_f32(a.q0, b.q0), vsubq_f32(a.q1, b.q1), vsubq_f32(a.q2, b.q2),
                   vsubq_f32(a.q3, b.q3)};
}

static inline lanes lanes_mul(lanes a, lanes b)
{
    return (lanes){vmulq_f32(a.q0, b.q0), vmulq_f32(a.q1, b.q1), vmulq_f32(a.q2, b.q2),
                   vmulq_f32(a.q3, b.q3)};
}

static inline lanes lanes_div(lanes a, lanes b)
{
    return (lanes){vdivq_f32(a.q0, b.q0), vdivq_f32(a.q1, b.q1), vdivq_f32(a.q2, b.q2),
                   vdivq_f32(a.q3, b.q3)};
}

static inline lanes lanes_sqrt(lanes a)
{
    return (lanes){vsqrtq_f32(a.q0), vsqrtq_f32(a.q1), vsqrtq_f32(a.q2), vsqrtq_f32(a.q3)};
}

/* Not FMAX, which gives the NaN whichever operand it is. */
static inline float32x4_t quarter_max(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

/* a > b ? a : b, which is b if either is NaN. */
static inline lanes lanes_max(lanes a, lanes b)
{
    return (lanes){quarter_max(a.q0, b.q0), quarter_max(a.q1, b.q1), quarter_max(a.q2, b.q2),
                   quarter_max(a.q3, b.q3)};
}

/* a * b + c, rounded once. */
static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return (lanes){vfmaq_f32(c.q0, a.q0, b.q0), vfmaq_f32(c.q1, a.q1, b.q1),
                   vfmaq_f32(c.q2, a.q2, b.q2), vfmaq_f32(c.q3, a.q3, b.q3)};
}

static inline float32x4_t quarter_min(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

/* a < b ? a : b, which is b if either is NaN. */
static inline lanes lanes_min(lanes a, lanes b)
{
    return (lanes){quarter_min(a.q0, b.q0), quarter_min(a.q1, b.q1), quarter_min(a.q2, b.q2),
                   quarter_min(a.q3, b.q3)};
}

static inline float32x4_t quarter_power_of_two(float32x4_t z)
{
    const uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(z), 23);
    return vreinterpretq_f32_u32(vaddq_u32(n, vdupq_n_u32(127u << 23)));
}

/* 2^n, where the low mantissa bits of z hold n as after adding EXP_ROUND. */
static inline lanes lanes_power_of_two(lanes z)
{
    return (lanes){quarter_power_of_two(z.q0), quarter_power_of_two(z.q1),
                   quarter_power_of_two(z.q2), quarter_power_of_two(z.q3)};
}

static inline float32x4_t quarter_zero_below(float32x4_t a, float32x4_t x, float32x4_t limit)
{
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vcltq_f32(x, limit)));
}

/* 0 where x < limit, else a. */
static inline lanes lanes_zero_below(lanes a, lanes x, float limit)
{
    const float32x4_t l = vdupq_n_f32(limit);
    return (lanes){quarter_zero_below(a.q0, x.q0, l), quarter_zero_below(a.q1, x.q1, l),
                   quarter_zero_below(a.q2, x.q2, l), quarter_zero_below(a.q3, x.q3, l)};
}

/* The tree of the scalar definition: 8 + 8, 4 + 4, 2 + 2, 1 + 1. */
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

#endif
