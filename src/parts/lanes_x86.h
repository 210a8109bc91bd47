/*
 * lanes_x86 - lanes for AVX-512, and for AVX2 with FMA and F16C (layer 1, included by lanes.h).
 */
#ifndef DECODE_PARTS_LANES_X86_H
#define DECODE_PARTS_LANES_X86_H

#include <immintrin.h>
#include <stdint.h>

#if defined(__AVX512F__)

/* Loads and stores take masks: lanes.h need not go through memory for a part of the lanes. */
#define LANES_MASKED

typedef __m512 lanes;

static inline lanes lanes_zero(void)
{
    return _mm512_setzero_ps();
}

static inline lanes lanes_all(float x)
{
    return _mm512_set1_ps(x);
}

static inline lanes lanes_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline lanes lanes_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline lanes lanes_load_bf16(const uint16_t *p)
{
    const __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

static inline void lanes_store(float *p, lanes a)
{
    _mm512_storeu_ps(p, a);
}

static inline void lanes_store_f16(uint16_t *p, lanes a)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline __mmask16 lanes_mask(int n)
{
    return (__mmask16)((1u << n) - 1);
}

static inline lanes lanes_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(lanes_mask(n), p);
}

static inline void lanes_store_n(float *p, lanes a, int n)
{
    _mm512_mask_storeu_ps(p, lanes_mask(n), a);
}

/* The first n lanes of a, the others from b. */
static inline lanes lanes_first(lanes a, lanes b, int n)
{
    return _mm512_mask_blend_ps(lanes_mask(n), b, a);
}

static inline lanes lanes_add(lanes a, lanes b)
{
    return _mm512_add_ps(a, b);
}

static inline lanes lanes_sub(lanes a, lanes b)
{
    return _mm512_sub_ps(a, b);
}

static inline lanes lanes_mul(lanes a, lanes b)
{
    return _mm512_mul_ps(a, b);
}

static inline lanes lanes_div(lanes a, lanes b)
{
    return _mm512_div_ps(a, b);
}

static inline lanes lanes_sqrt(lanes a)
{
    return _mm512_sqrt_ps(a);
}

/* a > b ? a : b, which is b if either is NaN. */
static inline lanes lanes_max(lanes a, lanes b)
{
    return _mm512_max_ps(a, b);
}

/* a * b + c, rounded once. */
static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* a < b ? a : b, which is b if either is NaN. */
static inline lanes lanes_min(lanes a, lanes b)
{
    return _mm512_min_ps(a, b);
}

/* 2^n, where the low mantissa bits of z hold n as after adding EXP_ROUND. */
static inline lanes lanes_power_of_two(lanes z)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(z), 23),
                                                _mm512_set1_epi32(127 << 23)));
}

/* 0 where x < limit, else a. */
static inline lanes lanes_zero_below(lanes a, lanes x, float limit)
{
    const __mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ);
    return _mm512_maskz_mov_ps(keep, a);
}

static inline __m256 lanes_high(lanes a)
{
    return _mm512_extractf32x8_ps(a, 1);
}

static inline __m256 lanes_low(lanes a)
{
    return _mm512_castps512_ps256(a);
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

typedef struct {
    __m256 low, high;
} lanes;

static inline lanes lanes_zero(void)
{
    return (lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

static inline lanes lanes_all(float x)
{
    return (lanes){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

static inline lanes lanes_load(const float *p)
{
    return (lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

static inline lanes lanes_load_f16(const uint16_t *p)
{
    return (lanes){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)))};
}

static inline __m256 half_load_bf16(const uint16_t *p)
{
    const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

static inline lanes lanes_load_bf16(const uint16_t *p)
{
    return (lanes){half_load_bf16(p), half_load_bf16(p + 8)};
}

static inline void lanes_store(float *p, lanes a)
{
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}

static inline void lanes_store_f16(uint16_t *p, lanes a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(p + 8),
                     _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}

static inline lanes lanes_add(lanes a, lanes b)
{
    return (lanes){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

static inline lanes lanes_sub(lanes a, lanes b)
{
    return (lanes){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

static inline lanes lanes_mul(lanes a, lanes b)
{
    return (lanes){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

static inline lanes lanes_div(lanes a, lanes b)
{
    return (lanes){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

static inline lanes lanes_sqrt(lanes a)
{
    return (lanes){_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)};
}

/* a > b ? a : b, which is b if either is NaN. */
static inline lanes lanes_max(lanes a, lanes b)
{
    return (lanes){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

/* a * b + c, rounded once. */
static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return (lanes){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

/* a < b ? a : b, which is b if either is NaN. */
static inline lanes lanes_min(lanes a, lanes b)
{
    return (lanes){_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

static inline __m256 half_power_of_two(__m256 z)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(z), 23),
                                                _mm256_set1_epi32(127 << 23)));
}

/* 2^n, where the low mantissa bits of z hold n as after adding EXP_ROUND. */
static inline lanes lanes_power_of_two(lanes z)
{
    return (lanes){half_power_of_two(z.low), half_power_of_two(z.high)};
}

static inline __m256 half_zero_below(__m256 a, __m256 x, float limit)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_LT_OQ), a);
}

/* 0 where x < limit, else a. */
static inline lanes lanes_zero_below(lanes a, lanes x, float limit)
{
    return (lanes){half_zero_below(a.low, x.low, limit), half_zero_below(a.high, x.high, limit)};
}

static inline __m256 lanes_high(lanes a)
{
    return a.high;
}

static inline __m256 lanes_low(lanes a)
{
    return a.low;
}

#endif

/* The tree of the scalar definition: 8 + 8, 4 + 4, 2 + 2, 1 + 1. */
static inline float lanes_sum(lanes a)
{
    const __m256 eight = _mm256_add_ps(lanes_low(a), lanes_high(a));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

static inline float lanes_largest(lanes a)
{
    const __m256 eight = _mm256_max_ps(lanes_low(a), lanes_high(a));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

#endif
