/*
 * lanes_x86 - lanes for AVX-512 with VNNI, and for AVX2 with FMA and F16C (included by lanes.h).
 */
#pragma once

#include <immintrin.h>
#include <stdint.h>

#if defined(__AVX512F__)

/* Loads and stores take masks: lanes.h need not go through memory for a part of the lanes. */
#define LANES_MASKED

typedef __m512 lanes;
typedef __m512i ints;
typedef __m512i bytes;

/* Functions of one value, or of two, from the intrinsic that does the same. */
#define LANES_1(to, name, from, f)                                                                 \
    static inline to name(from a)                                                                  \
    {                                                                                              \
        return f(a);                                                                               \
    }
#define LANES_2(name, f)                                                                           \
    static inline lanes name(lanes a, lanes b)                                                     \
    {                                                                                              \
        return f(a, b);                                                                            \
    }

LANES_2(lanes_add, _mm512_add_ps)
LANES_2(lanes_sub, _mm512_sub_ps)
LANES_2(lanes_mul, _mm512_mul_ps)
LANES_2(lanes_div, _mm512_div_ps)
LANES_2(lanes_max, _mm512_max_ps)
LANES_2(lanes_min, _mm512_min_ps)
LANES_1(lanes, lanes_all, float, _mm512_set1_ps)
LANES_1(lanes, lanes_load, const float *, _mm512_loadu_ps)
LANES_1(lanes, lanes_sqrt, lanes, _mm512_sqrt_ps)
LANES_1(lanes, ints_to_lanes, ints, _mm512_cvtepi32_ps)
LANES_1(ints, lanes_round, lanes, _mm512_cvtps_epi32)
LANES_1(ints, ints_all, int32_t, _mm512_set1_epi32)
LANES_1(ints, ints_load, const uint32_t *, _mm512_loadu_si512)
LANES_1(bytes, bytes_load, const uint8_t *, _mm512_loadu_si512)
LANES_1(__m256, lanes_low, lanes, _mm512_castps512_ps256)

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

static inline lanes lanes_first(lanes a, lanes b, int n)
{
    return _mm512_mask_blend_ps(lanes_mask(n), b, a);
}

static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline lanes lanes_swap(lanes a)
{
    return _mm512_permute_ps(a, 0xb1);
}

static inline lanes lanes_power_of_two(lanes z)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(z), 23));
}

static inline lanes lanes_zero_below(lanes a, lanes x, float limit)
{
    const __mmask16 above = _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ);
    return _mm512_maskz_mov_ps(above, a);
}

static inline lanes lanes_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

static inline ints ints_twice(const void *p)
{
    int64_t both;
    __builtin_memcpy(&both, p, sizeof both);
    return _mm512_set1_epi64(both);
}

static inline ints ints_right(ints a, int n)
{
    return _mm512_srli_epi32(a, n);
}

static inline ints ints_right_each(ints a, ints n)
{
    return _mm512_srlv_epi32(a, n);
}

/* A table in a register takes the place of a conversion. */
#define LANES_OF_NIBBLES
typedef __mmask16 marks;

static inline marks marks_lowest(ints a)
{
    return _mm512_test_epi32_mask(a, _mm512_set1_epi32(1));
}

static inline marks marks_of_bits(uint16_t bits)
{
    return bits;
}

static inline lanes lanes_of_nibbles(ints a)
{
    return _mm512_permutexvar_ps(
        a, _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7));
}

static inline lanes lanes_of_fifths(ints a, marks fifth)
{
    const lanes low = _mm512_permutexvar_ps(
        a, _mm512_setr_ps(-16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1));
    return _mm512_mask_add_ps(low, fifth, low, _mm512_set1_ps(16));
}

static inline bytes bytes_low_halves(bytes a)
{
    return _mm512_and_si512(a, _mm512_set1_epi8(15));
}

static inline bytes bytes_high_halves(bytes a)
{
    return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15));
}

#define OFFSET_START (-128)

static inline ints ints_dot_halves(ints acc, bytes w, int32_t quad)
{
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(quad));
}

static inline ints ints_dot_offset(ints acc, bytes w, int32_t quad)
{
    return ints_dot_halves(acc, w, quad);
}

static inline void ints_store_i8(int8_t *p, ints a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(a));
}

static inline int32_t ints_sum(ints a, ints b)
{
    return _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
}

static inline uint32_t lanes_largest_bits(lanes a, lanes b)
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    const __m512i x = _mm512_and_si512(_mm512_castps_si512(a), mask);
    const __m512i y = _mm512_and_si512(_mm512_castps_si512(b), mask);
    return _mm512_reduce_max_epu32(_mm512_max_epu32(x, y));
}

static inline __m256 lanes_high(lanes a)
{
    return _mm512_extractf32x8_ps(a, 1);
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

typedef struct {
    __m256 low, high;
} lanes;

typedef struct {
    __m256i low, high;
} ints;
typedef ints bytes;

/* Functions of whole values from what does the same for a half: of one value, or two; of a number
 * for all lanes; of memory. */
#define LANES_1(to, name, from, f)                                                                 \
    static inline to name(from a)                                                                  \
    {                                                                                              \
        return (to){f(a.low), f(a.high)};                                                          \
    }
#define LANES_2(name, f)                                                                           \
    static inline lanes name(lanes a, lanes b)                                                     \
    {                                                                                              \
        return (lanes){f(a.low, b.low), f(a.high, b.high)};                                        \
    }
#define LANES_ALL(to, name, number, f)                                                             \
    static inline to name(number x)                                                                \
    {                                                                                              \
        return (to){f(x), f(x)};                                                                   \
    }
#define LANES_LOAD(name, element, f)                                                               \
    static inline lanes name(const element *p)                                                     \
    {                                                                                              \
        return (lanes){f(p), f(p + 8)};                                                            \
    }

static inline __m256 half_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline __m256 half_load_bf16(const uint16_t *p)
{
    const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

static inline __m256 half_swap(__m256 a)
{
    return _mm256_permute_ps(a, 0xb1);
}

static inline __m256 half_power_of_two(__m256 z)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(z), 23));
}

static inline __m256 half_zero_below(__m256 a, __m256 x, float limit)
{
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(limit), _CMP_LT_OQ), a);
}

static inline __m256 half_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

static inline __m256i half_low_halves(__m256i a)
{
    return _mm256_and_si256(a, _mm256_set1_epi8(15));
}

static inline __m256i half_high_halves(__m256i a)
{
    return half_low_halves(_mm256_srli_epi16(a, 4));
}

LANES_ALL(lanes, lanes_all, float, _mm256_set1_ps)
LANES_LOAD(lanes_load, float, _mm256_loadu_ps)
LANES_LOAD(lanes_load_f16, uint16_t, half_load_f16)
LANES_LOAD(lanes_load_bf16, uint16_t, half_load_bf16)
LANES_LOAD(lanes_load_i8, int8_t, half_load_i8)
LANES_2(lanes_add, _mm256_add_ps)
LANES_2(lanes_sub, _mm256_sub_ps)
LANES_2(lanes_mul, _mm256_mul_ps)
LANES_2(lanes_div, _mm256_div_ps)
LANES_2(lanes_max, _mm256_max_ps)
LANES_2(lanes_min, _mm256_min_ps)
LANES_1(lanes, lanes_sqrt, lanes, _mm256_sqrt_ps)
LANES_1(lanes, lanes_swap, lanes, half_swap)
LANES_1(lanes, lanes_power_of_two, lanes, half_power_of_two)
LANES_1(ints, lanes_round, lanes, _mm256_cvtps_epi32)
LANES_1(lanes, ints_to_lanes, ints, _mm256_cvtepi32_ps)
LANES_1(bytes, bytes_low_halves, bytes, half_low_halves)
LANES_1(bytes, bytes_high_halves, bytes, half_high_halves)
LANES_ALL(ints, ints_all, int32_t, _mm256_set1_epi32)

static inline ints ints_load(const uint32_t *p)
{
    return (ints){_mm256_loadu_si256((const __m256i *)(const void *)p),
                  _mm256_loadu_si256((const __m256i *)(const void *)(p + 8))};
}

static inline ints ints_twice(const void *p)
{
    int64_t both;
    __builtin_memcpy(&both, p, sizeof both);
    return (ints){_mm256_set1_epi64x(both), _mm256_set1_epi64x(both)};
}

static inline ints ints_right(ints a, int n)
{
    return (ints){_mm256_srli_epi32(a.low, n), _mm256_srli_epi32(a.high, n)};
}

static inline ints ints_right_each(ints a, ints n)
{
    return (ints){_mm256_srlv_epi32(a.low, n.low), _mm256_srlv_epi32(a.high, n.high)};
}

static inline ints ints_low(ints a, int n)
{
    const __m256i mask = _mm256_set1_epi32((1 << n) - 1);
    return (ints){_mm256_and_si256(a.low, mask), _mm256_and_si256(a.high, mask)};
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

static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return (lanes){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

static inline lanes lanes_zero_below(lanes a, lanes x, float limit)
{
    return (lanes){half_zero_below(a.low, x.low, limit), half_zero_below(a.high, x.high, limit)};
}

static inline bytes bytes_load(const uint8_t *p)
{
    return (bytes){_mm256_loadu_si256((const __m256i *)(const void *)p),
                   _mm256_loadu_si256((const __m256i *)(const void *)(p + 32))};
}

/* The sum is made here: compilers would put all of a block's below its products, for which the
 * registers do not suffice. */
static inline __m256i half_made(__m256i sum)
{
    __asm__("" : "+x"(sum));
    return sum;
}

#define LANES_OF_PAIRS

/* -8 * sum_x: until the block ends each lane is two of 16 bits that add up to it, which hold 16
 * products of at most 11 and 127, and 16 of 4 and 127. */
static inline ints ints_start_halves(int32_t sum_x)
{
    const __m256i start = _mm256_set1_epi16((int16_t)(-4 * sum_x));
    return (ints){start, start};
}

static inline ints ints_dot_halves(ints acc, bytes w, int32_t quad)
{
    const __m256i x = _mm256_set1_epi32(quad);
    return (ints){half_made(_mm256_add_epi16(acc.low, _mm256_maddubs_epi16(w.low, x))),
                  half_made(_mm256_add_epi16(acc.high, _mm256_maddubs_epi16(w.high, x)))};
}

static inline ints ints_end_halves(ints acc)
{
    const __m256i one = _mm256_set1_epi16(1);
    return (ints){_mm256_madd_epi16(acc.low, one), _mm256_madd_epi16(acc.high, one)};
}

/* The sign goes over to x, because the sum of two products of 255 and 127 would not fit 16 bits. */
static inline __m256i half_dot_offset(__m256i acc, __m256i w, __m256i x)
{
    const __m256i is = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(is), _mm256_sign_epi8(x, is));
    return half_made(_mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
}

static inline ints ints_dot_offset(ints acc, bytes w, int32_t quad)
{
    const __m256i x = _mm256_set1_epi32(quad);
    return (ints){half_dot_offset(acc.low, w.low, x), half_dot_offset(acc.high, w.high, x)};
}

static inline __m128i half_to_i16(__m256i a)
{
    return _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
}

static inline void ints_store_i8(int8_t *p, ints a)
{
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm_packs_epi16(half_to_i16(a.low), half_to_i16(a.high)));
}

static inline int32_t ints_sum(ints a, ints b)
{
    const __m256i eight =
        _mm256_add_epi32(_mm256_add_epi32(a.low, a.high), _mm256_add_epi32(b.low, b.high));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

static inline uint32_t lanes_largest_bits(lanes a, lanes b)
{
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256i ab_low = _mm256_max_epu32(_mm256_castps_si256(_mm256_and_ps(a.low, mask)),
                                            _mm256_castps_si256(_mm256_and_ps(b.low, mask)));
    const __m256i ab_high = _mm256_max_epu32(_mm256_castps_si256(_mm256_and_ps(a.high, mask)),
                                             _mm256_castps_si256(_mm256_and_ps(b.high, mask)));
    const __m256i eight = _mm256_max_epu32(ab_low, ab_high);
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1)));
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

static inline lanes lanes_all_f16(uint16_t half)
{
    return lanes_all(_cvtsh_ss(half));
}

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
