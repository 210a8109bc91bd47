/*
 * lanes - KERNEL_LANES floats as one value, by the instruction set being compiled for
 * (private to the vector kernel objects).
 *
 * Each operation does to every lane what lanes_scalar.h, or its scalar counterpart, does, so that
 * kernels_vector.h gives the same bits everywhere. A function that takes n touches only the first n
 * lanes in memory, 0 <= n <= KERNEL_LANES. Those that only vectors have:
 *   lanes_first         the first n lanes of a, the others from b
 *   lanes_exchange      lane l gets what lane l ^ distance has; the distance is 1, 2, 4 or 8
 *   lanes_round         to the nearest integer, ties to even; |a| < 2^22
 *   lanes_largest_bits  the largest bit pattern of a magnitude in a and b
 *   ints, bytes         KERNEL_LANES int32, and as many groups of four bytes
 *   ints_sum            of all lanes of a and b
 *   ints_dot_halves     acc + sum_j w[j] * x[j], w from 0 to 15, x the four int8 of `quad`
 *   ints_load           KERNEL_LANES words
 *   ints_twice          the two words at p in turn
 *   ints_right          each lane shifted right by n, or by its own n; zeros follow
 *   ints_low            the lowest n bits of each lane, n < 31
 *   ints_dot_offset     acc + sum_j (w[j] - 128) * x[j], w from 0 to 255
 */
#pragma once

#include "compute/kernels_math.h"

/* For functions whose constant arguments (numbers of registers, a storage) must be constants. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* A loop whose few rounds are a constant where it is inlined, so that arrays of lanes become
 * registers. (Of GCC's pragma clang makes less: heads of a group then take three times as long.) */
#if defined(__clang__)
#define UNROLLED(i, n) _Pragma("clang loop unroll(full)") for (int i = 0; i < (n); i++)
#else
#define UNROLLED(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#endif

/* OF_SET(name) is what a function or table is called in this instruction set's object. */
#if defined(LANES_SCALAR)
#define SET_NAME     "scalar"
#define OF_SET(name) name##_scalar
#include "compute/lanes_scalar.h"
#elif defined(__aarch64__)
#define SET_NAME     "neon"
#define OF_SET(name) name##_neon
#include "compute/lanes_neon.h"
#else
#if defined(__AVX512F__)
#define SET_NAME     "avx512"
#define OF_SET(name) name##_avx512
#else
#define SET_NAME     "avx2"
#define OF_SET(name) name##_avx2
#endif
#include "compute/lanes_x86.h"
#endif

#ifndef LANES_SCALAR

/* Sums over a block whose x add up to sum_x begin with what takes the offset from the weights, if
 * the products do not: for ints_dot_offset 128. */
#ifndef OFFSET_START
#define OFFSET_START 0
#endif
static inline ints ints_start_offset(int32_t sum_x)
{
    return ints_all(OFFSET_START * sum_x);
}

/* --- numbers of four and five bits ----------------------------------------------------------- */

/* 0, 1, ... or 0, 0, 4, 4, 8, 8, ...: where the bits of two words are that ints_twice has in lanes.
 */
static inline ints ints_places(bool of_nibbles)
{
    static const uint32_t places[2][KERNEL_LANES] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
        {0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28}};
    return ints_load(places[of_nibbles]);
}

/* KERNEL_LANES numbers of a value: their lower bits in the lowest four of each lane. */
static inline ints ints_nibbles(const void *p)
{
    return ints_right_each(ints_twice(p), ints_places(true));
}

#ifndef LANES_OF_NIBBLES
/* Whether a bit is set: 1, else 0. */
typedef lanes marks;

/* Of each lane's lowest bit, and of bit l for lane l. */
static inline marks marks_lowest(ints a)
{
    return ints_to_lanes(ints_low(a, 1));
}

static inline marks marks_of_bits(uint16_t bits)
{
    return marks_lowest(ints_right_each(ints_all(bits), ints_places(false)));
}

/* The numbers from -8 on that lanes have in their lowest four bits, and those from -16 on with a
 * fifth. */
static inline lanes lanes_of_nibbles(ints a)
{
    return lanes_sub(ints_to_lanes(ints_low(a, 4)), lanes_all(8));
}

static inline lanes lanes_of_fifths(ints a, marks fifth)
{
    const lanes low = lanes_sub(ints_to_lanes(ints_low(a, 4)), lanes_all(16));
    return lanes_fma(fifth, lanes_all(16), low);
}
#endif

/* For ints_dot_halves 8. Their sums may be of another form until the block ends. */
#ifndef LANES_OF_PAIRS
static inline ints ints_start_halves(int32_t sum_x)
{
    return ints_all(-8 * sum_x);
}

static inline ints ints_end_halves(ints acc)
{
    return acc;
}
#endif

#endif

static inline lanes lanes_zero(void)
{
    return lanes_all(0.0f);
}

#ifndef LANES_MASKED

static inline lanes lanes_load_n(const float *p, int n)
{
    float full[16] = {0};
    memcpy(full, p, n * sizeof *full);
    return lanes_load(full);
}

static inline void lanes_store_n(float *p, lanes a, int n)
{
    float full[16];
    lanes_store(full, a);
    memcpy(p, full, n * sizeof *full);
}

static inline lanes lanes_first(lanes a, lanes b, int n)
{
    float mixed[16];
    lanes_store(mixed, b);
    lanes_store_n(mixed, a, n);
    return lanes_load(mixed);
}

#endif

/* The same for n that may exceed KERNEL_LANES: the usual case, a whole vector, stays cheap. */
static inline lanes lanes_load_upto(const float *p, int n)
{
    return n >= 16 ? lanes_load(p) : lanes_load_n(p, n);
}

static inline void lanes_store_upto(float *p, lanes a, int n)
{
    if (n >= 16)
        lanes_store(p, a);
    else
        lanes_store_n(p, a, n);
}

/* Stores the first n lanes as lanes_store_upto does, but past the caches where the instruction set
 * has such a store and p is on a line. A line that processors with caches of their own have read
 * takes one of them ten times as long to write into its cache (26 and 2 ns on Zen 4 across two of
 * its last caches). Other threads see what was stored after lanes_stream_end. */
static inline void lanes_stream_upto(float *p, lanes a, int n)
{
#ifdef LANES_STREAM
    if (n >= 16 && (uintptr_t)p % MEM_ALIGN == 0) {
        lanes_stream(p, a);
        return;
    }
#endif
    lanes_store_upto(p, a, n);
}

static inline void lanes_stream_end(void)
{
#ifdef LANES_STREAM
    _mm_sfence();
#endif
}

/* 0, 1, 2, ... */
static inline lanes lanes_places(void)
{
    static const float places[KERNEL_LANES] = {0, 1, 2,  3,  4,  5,  6,  7,
                                               8, 9, 10, 11, 12, 13, 14, 15};
    return lanes_load(places);
}

/* math_biased, operation for operation. */
static inline lanes lanes_biased(const struct attend_bias *bias, lanes distance, lanes score)
{
    const lanes x = lanes_sub(distance, lanes_all(bias->centre));
    return lanes_fma(x, lanes_fma(x, lanes_all(bias->square), lanes_all(bias->linear)), score);
}

/* math_exp, operation for operation. */
static inline lanes lanes_exp(lanes x)
{
    const lanes capped = lanes_min(lanes_all(EXP_MAX), x);
    const lanes z = lanes_fma(capped, lanes_all(EXP_LOG2E), lanes_all(EXP_ROUND));
    const lanes n = lanes_sub(z, lanes_all(EXP_ROUND));
    lanes r = lanes_fma(n, lanes_all(-EXP_LN2_HI), capped);
    r = lanes_fma(n, lanes_all(-(EXP_LN2_LO)), r);
    lanes p = lanes_all(EXP_C0);
    p = lanes_fma(p, r, lanes_all(EXP_C1));
    p = lanes_fma(p, r, lanes_all(EXP_C2));
    p = lanes_fma(p, r, lanes_all(EXP_C3));
    p = lanes_fma(p, r, lanes_all(EXP_C4));
    p = lanes_fma(p, r, lanes_all(EXP_C5));
    p = lanes_add(lanes_fma(p, lanes_mul(r, r), r), lanes_all(1.0f));
    return lanes_zero_below(lanes_mul(p, lanes_power_of_two(z)), x, EXP_MIN);
}

/* math_weight, operation for operation. */
static inline lanes lanes_weight(lanes x)
{
    const lanes log2e = lanes_all(EXP_LOG2E), round = lanes_all(EXP_ROUND);
    x = lanes_max(lanes_all(WEIGHT_MIN), x);
    const lanes z = lanes_fma(x, log2e, round), r = lanes_fma(x, log2e, lanes_sub(round, z));
    lanes p = lanes_fma(lanes_all(WEIGHT_C5), r, lanes_all(WEIGHT_C4));
    p = lanes_fma(p, r, lanes_all(WEIGHT_C3));
    p = lanes_fma(p, r, lanes_all(WEIGHT_C2));
    p = lanes_fma(p, r, lanes_all(WEIGHT_C1));
    return lanes_mul(lanes_fma(p, r, lanes_all(1.0f)), lanes_power_of_two(z));
}

/* math_tanh, operation for operation. */
static inline lanes lanes_tanh(lanes x)
{
    const lanes one = lanes_all(1.0f);
    const lanes rest = lanes_div(one, lanes_add(one, lanes_exp(lanes_add(x, x))));
    return lanes_fma(lanes_all(-2.0f), rest, one);
}

/* math_gelu, operation for operation. */
static inline lanes lanes_gelu(lanes x)
{
    const lanes inner = lanes_fma(lanes_mul(x, x), lanes_all(GELU_CUBIC), lanes_all(GELU_LINEAR));
    return lanes_div(x, lanes_add(lanes_all(1.0f), lanes_exp(lanes_mul(x, inner))));
}

/* min(|x|, GELU_LAST); a NaN stays one. */
static inline lanes lanes_gelu_distance(lanes x)
{
    return lanes_min(lanes_all(GELU_LAST), lanes_max(x, lanes_sub(lanes_zero(), x)));
}

/* The two factors of Phi(-u) in math_gelu_erf, operation for operation; 0 <= u <= GELU_LAST. */
static inline lanes lanes_gelu_ratio(lanes u)
{
    const lanes one = lanes_all(1.0f), minus_square = lanes_sub(lanes_zero(), lanes_mul(u, u));
    const lanes lost = lanes_fma(u, u, minus_square);
    const lanes s = lanes_div(one, lanes_fma(lanes_all(GELU_TAIL), u, one));
    lanes p = lanes_all(gelu_terms[0]);
    for (int i = 1; i < GELU_TERMS; i++)
        p = lanes_fma(p, s, lanes_all(gelu_terms[i]));
    return lanes_fma(p, lanes_mul(lanes_all(-0.5f), lost), p);
}

static inline lanes lanes_gelu_bell(lanes u)
{
    return lanes_exp(lanes_mul(lanes_all(-0.5f), lanes_mul(u, u)));
}

/* math_gelu_erf, operation for operation. */
static inline lanes lanes_gelu_erf(lanes x)
{
    const lanes u = lanes_gelu_distance(x);
    const lanes tail = lanes_mul(lanes_gelu_ratio(u), lanes_gelu_bell(u));
    return lanes_fma(lanes_sub(lanes_zero(), u), tail, lanes_max(x, lanes_zero()));
}

static inline lanes lanes_relu(lanes x)
{
    return lanes_max(lanes_zero(), x);
}

/* math_silu, operation for operation. */
static inline lanes lanes_silu(lanes x)
{
    x = lanes_max(lanes_all(-EXP_MAX), x);
    return lanes_div(x, lanes_add(lanes_all(1.0f), lanes_exp(lanes_sub(lanes_zero(), x))));
}

/* What the norm of a row x [n] takes off, the mean or, of NORM_RMS, 0, and then multiplies by. */
static inline void lanes_norm_stats(enum norm_kind kind, const float *x, int n, float eps,
                                    float *stats)
{
    lanes sum = lanes_zero(), squares = lanes_zero();
    for (int i = 0; kind == NORM_LAYER && i < n; i += KERNEL_LANES)
        sum = lanes_add(sum, lanes_load_upto(x + i, n - i)); /* 0 past the end */
    stats[0] = kind == NORM_LAYER ? lanes_sum(sum) / (float)n : 0;
    const lanes mean = lanes_all(stats[0]);
    for (int i = 0; i < n; i += KERNEL_LANES) {
        const lanes d = lanes_sub(lanes_load_upto(x + i, n - i), mean);
        const lanes more = lanes_fma(d, d, squares);
        squares = n - i < KERNEL_LANES ? lanes_first(more, squares, n - i) : more;
    }
    stats[1] = 1.0f / sqrtf(lanes_sum(squares) / (float)n + eps);
}
