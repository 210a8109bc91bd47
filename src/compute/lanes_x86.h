/*
 * lanes_x86 - lanes for AVX-512 with VNNI, and for AVX2 with FMA and F16C (included by lanes.h). A
 * value is one register of AVX-512 or two of AVX2: its parts.
 */
#pragma once

#include <immintrin.h>
#include <stdint.h>

/* Tells lanes.h that this instruction set has lanes_stream. */
#define LANES_STREAM

#if defined(__AVX512F__)

/* Loads and stores take masks: lanes.h need not go through memory for a part of the lanes. */
#define LANES_MASKED

typedef __m512 lanes, lanes_part;
typedef __m512i ints, bytes, ints_part;

/* The intrinsic of a part; loads of a whole one, of half of its bytes, and of a quarter; and the
 * lanes 0 to 7, and 8 to 15. */
#define PART(f)         _mm512_##f
#define LOAD_PART(p)    _mm512_loadu_si512(p)
#define LOAD_HALF(p)    _mm256_loadu_si256((const void *)(p))
#define LOAD_QUARTER(p) _mm_loadu_si128((const void *)(p))
#define LOW(a)          _mm512_castps512_ps256(a)
#define HIGH(a)         _mm512_extractf32x8_ps(a, 1)

/* Functions of values from what does the same for a part: of one value, two or three; of a number
 * for all lanes; of memory, where a part has n elements. */
#define LANES_1(to, name, from, f)                                                                 \
    static inline to name(from a)                                                                  \
    {                                                                                              \
        return f(a);                                                                               \
    }
#define LANES_2(to, name, f)                                                                       \
    static inline to name(to a, to b)                                                              \
    {                                                                                              \
        return f(a, b);                                                                            \
    }
#define LANES_3(to, name, f)                                                                       \
    static inline to name(to a, to b, to c)                                                        \
    {                                                                                              \
        return f(a, b, c);                                                                         \
    }
#define LANES_ALL                           LANES_1
#define LANES_LOAD(to, name, element, n, f) LANES_1(to, name, const element *, f)

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

typedef __m256 lanes_part;
typedef __m256i ints_part;
typedef struct {
    lanes_part low, high;
} lanes;
typedef struct {
    ints_part low, high;
} ints;
typedef ints bytes;

/* As above. */
#define PART(f)         _mm256_##f
#define LOAD_PART(p)    _mm256_loadu_si256((const void *)(p))
#define LOAD_HALF(p)    _mm_loadu_si128((const void *)(p))
#define LOAD_QUARTER(p) _mm_loadl_epi64((const void *)(p))
#define LOW(a)          (a).low
#define HIGH(a)         (a).high

#define LANES_1(to, name, from, f)                                                                 \
    static inline to name(from a)                                                                  \
    {                                                                                              \
        return (to){f(a.low), f(a.high)};                                                          \
    }
#define LANES_2(to, name, f)                                                                       \
    static inline to name(to a, to b)                                                              \
    {                                                                                              \
        return (to){f(a.low, b.low), f(a.high, b.high)};                                           \
    }
#define LANES_3(to, name, f)                                                                       \
    static inline to name(to a, to b, to c)                                                        \
    {                                                                                              \
        return (to){f(a.low, b.low, c.low), f(a.high, b.high, c.high)};                            \
    }
#define LANES_ALL(to, name, number, f)                                                             \
    static inline to name(number x)                                                                \
    {                                                                                              \
        return (to){f(x), f(x)};                                                                   \
    }
#define LANES_LOAD(to, name, element, n, f)                                                        \
    static inline to name(const element *p)                                                        \
    {                                                                                              \
        return (to){f(p), f(p + (n))};                                                             \
    }

#endif

/* --- what both do alike ----------------------------------------------------------------------- */

static inline lanes_part part_load_f16(const uint16_t *p)
{
    return PART(cvtph_ps)(LOAD_HALF(p));
}

static inline lanes_part part_load_bf16(const uint16_t *p)
{
    return (lanes_part)PART(slli_epi32)(PART(cvtepu16_epi32)(LOAD_HALF(p)), 16);
}

static inline lanes_part part_load_i8(const int8_t *p)
{
    return PART(cvtepi32_ps)(PART(cvtepi8_epi32)(LOAD_QUARTER(p)));
}

static inline lanes_part part_power_of_two(lanes_part z)
{
    return (lanes_part)PART(slli_epi32)((ints_part)z, 23);
}

static inline ints_part part_low_halves(ints_part a)
{
    return a & PART(set1_epi8)(15);
}

static inline ints_part part_high_halves(ints_part a)
{
    return part_low_halves(PART(srli_epi16)(a, 4));
}

/* The two words at p in turn. */
static inline ints_part part_twice(const void *p)
{
    return PART(broadcastq_epi64)(_mm_loadl_epi64(p));
}

/* The larger bit patterns of magnitudes. */
static inline ints_part part_largest_bits(lanes_part a, lanes_part b)
{
    const ints_part mask = PART(set1_epi32)(0x7fffffff);
    return PART(max_epu32)((ints_part)a & mask, (ints_part)b & mask);
}

LANES_ALL(lanes, lanes_all, float, PART(set1_ps))
LANES_ALL(ints, ints_all, int32_t, PART(set1_epi32))
LANES_ALL(ints, ints_twice, const void *, part_twice)
LANES_LOAD(lanes, lanes_load, float, 8, PART(loadu_ps))
LANES_LOAD(lanes, lanes_load_f16, uint16_t, 8, part_load_f16)
LANES_LOAD(lanes, lanes_load_bf16, uint16_t, 8, part_load_bf16)
LANES_LOAD(lanes, lanes_load_i8, int8_t, 8, part_load_i8)
LANES_LOAD(ints, ints_load, uint32_t, 8, LOAD_PART)
LANES_LOAD(bytes, bytes_load, uint8_t, 32, LOAD_PART)
LANES_1(lanes, lanes_sqrt, lanes, PART(sqrt_ps))
LANES_1(lanes, lanes_power_of_two, lanes, part_power_of_two)
LANES_1(lanes, ints_to_lanes, ints, PART(cvtepi32_ps))
LANES_1(ints, lanes_round, lanes, PART(cvtps_epi32))
LANES_1(bytes, bytes_low_halves, bytes, part_low_halves)
LANES_1(bytes, bytes_high_halves, bytes, part_high_halves)
LANES_2(lanes, lanes_add, PART(add_ps))
LANES_2(lanes, lanes_sub, PART(sub_ps))
LANES_2(lanes, lanes_mul, PART(mul_ps))
LANES_2(lanes, lanes_div, PART(div_ps))
LANES_2(lanes, lanes_max, PART(max_ps))
LANES_2(lanes, lanes_min, PART(min_ps))
LANES_2(ints, ints_right_each, PART(srlv_epi32))
LANES_3(lanes, lanes_fma, PART(fmadd_ps))

/* --- what is AVX-512's -------------------------------------------------------------------------
 */

#if defined(__AVX512F__)

static inline void lanes_store(float *p, lanes a)
{
    _mm512_storeu_ps(p, a);
}

static inline void lanes_stream(float *p, lanes a)
{
    _mm512_stream_ps(p, a);
}

static inline void lanes_store_f16(uint16_t *p, lanes a)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
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

static inline lanes lanes_exchange(lanes a, int distance)
{
    const __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_permutexvar_ps(places ^ _mm512_set1_epi32(distance), a);
}

/* Row r's lane l changes places with row l's lane r: rows half as many apart in each round. */
static inline void lanes_transpose(lanes rows[KERNEL_LANES])
{
    static const __mmask16 upper[] = {0xff00, 0xf0f0, 0xcccc, 0xaaaa}; /* places with the bit */
    const __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
        const int apart = 8 >> round;
        const __m512i other = places ^ _mm512_set1_epi32(apart);
#pragma GCC unroll 16
        for (int r = 0; r < KERNEL_LANES; r++) {
            if (r & apart)
                continue;
            const lanes a = rows[r], b = rows[r + apart];
            rows[r] = _mm512_mask_permutexvar_ps(a, upper[round], other, b);
            rows[r + apart] = _mm512_mask_permutexvar_ps(b, (__mmask16)~upper[round], other, a);
        }
    }
}

static inline lanes lanes_zero_below(lanes a, lanes x, float limit)
{
    const __mmask16 above = _mm512_cmp_ps_mask(x, _mm512_set1_ps(limit), _CMP_NLT_UQ);
    return _mm512_maskz_mov_ps(above, a);
}

static inline ints ints_right(ints a, int n)
{
    return _mm512_srli_epi32(a, n);
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
    _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(a));
}

static inline int32_t ints_sum(ints a, ints b)
{
    return _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
}

static inline uint32_t lanes_largest_bits(lanes a, lanes b)
{
    return _mm512_reduce_max_epu32(part_largest_bits(a, b));
}

/* --- what is AVX2's ----------------------------------------------------------------------------
 */

#else

static inline ints ints_right(ints a, int n)
{
    return (ints){_mm256_srli_epi32(a.low, n), _mm256_srli_epi32(a.high, n)};
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

static inline void lanes_stream(float *p, lanes a)
{
    _mm256_stream_ps(p, a.low);
    _mm256_stream_ps(p + 8, a.high);
}

static inline void lanes_store_f16(uint16_t *p, lanes a)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((void *)(p + 8), _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}

static inline lanes lanes_exchange(lanes a, int distance)
{
    const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7) ^ _mm256_set1_epi32(distance);
    if (distance == 8)
        return (lanes){a.high, a.low};
    return (lanes){_mm256_permutevar8x32_ps(a.low, places),
                   _mm256_permutevar8x32_ps(a.high, places)};
}

static inline lanes lanes_zero_below(lanes a, lanes x, float limit)
{
    const __m256 l = _mm256_set1_ps(limit);
    return (lanes){_mm256_andnot_ps(_mm256_cmp_ps(x.low, l, _CMP_LT_OQ), a.low),
                   _mm256_andnot_ps(_mm256_cmp_ps(x.high, l, _CMP_LT_OQ), a.high)};
}

/* The sum is made here: compilers would put all of a block's below its products, for which the
 * registers do not suffice. */
static inline __m256i part_made(__m256i sum)
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
    return (ints){part_made(_mm256_add_epi16(acc.low, _mm256_maddubs_epi16(w.low, x))),
                  part_made(_mm256_add_epi16(acc.high, _mm256_maddubs_epi16(w.high, x)))};
}

static inline ints ints_end_halves(ints acc)
{
    const __m256i one = _mm256_set1_epi16(1);
    return (ints){_mm256_madd_epi16(acc.low, one), _mm256_madd_epi16(acc.high, one)};
}

/* The sign goes over to x, because the sum of two products of 255 and 127 would not fit 16 bits. */
static inline __m256i part_dot_offset(__m256i acc, __m256i w, __m256i x)
{
    const __m256i is = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(is), _mm256_sign_epi8(x, is));
    return part_made(_mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))));
}

static inline ints ints_dot_offset(ints acc, bytes w, int32_t quad)
{
    const __m256i x = _mm256_set1_epi32(quad);
    return (ints){part_dot_offset(acc.low, w.low, x), part_dot_offset(acc.high, w.high, x)};
}

static inline __m128i part_to_i16(__m256i a)
{
    return _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
}

static inline void ints_store_i8(int8_t *p, ints a)
{
    _mm_storeu_si128((void *)p, _mm_packs_epi16(part_to_i16(a.low), part_to_i16(a.high)));
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
    const __m256i eight =
        _mm256_max_epu32(part_largest_bits(a.low, b.low), part_largest_bits(a.high, b.high));
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1)));
}

#endif

static inline float lanes_sum(lanes a)
{
    const __m256 eight = _mm256_add_ps(LOW(a), HIGH(a));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

static inline float lanes_largest(lanes a)
{
    const __m256 eight = _mm256_max_ps(LOW(a), HIGH(a));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
