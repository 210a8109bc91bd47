/* Compares functions of single numbers that kernels share with the C library's in double, and
 * conversions to and from halves of every table. */
#include <math.h>
#include <string.h>

#include "compute/kernels_math.h"
#include "kernel_data.h"
#include "support.h"

#define MATH_TEST(name) TEST(name, .tags = TAKES_LONG, .before = seed_numbers)

MATH_TEST(exp_is_accurate)
{
    for (int i = -870000; i <= 880000; i += 7) {
        const double exact = exp((double)((float)i * 1e-4f));
        ck_assert_double_lt(fabs((double)math_exp((float)i * 1e-4f) - exact), 2.0e-7 * exact);
    }
    ck_assert(math_exp(0.0f) == 1.0f && math_exp(-INFINITY) == 0.0f);
    ck_assert(isfinite(math_exp(INFINITY)) && isnan(math_exp(NAN)));
}

MATH_TEST(weight_is_accurate)
{
    for (int i = 0; i <= 873000; i += 7) {
        const float x = (float)i * -1e-4f;
        const double exact = exp((double)x), bound = (1.7 - 0.14 * (double)x) * 1e-7;
        ck_assert_double_lt(fabs((double)math_weight(x) - exact), bound * exact);
    }
    ck_assert(math_weight(0.0f) == 1.0f && math_weight(-INFINITY) == 0.0f);
    ck_assert(math_weight(-88.0f) == 0.0f && math_weight(-1e30f) == 0.0f);
    ck_assert(isnan(math_weight(NAN)));
}

MATH_TEST(gelu_is_the_tanh_form)
{
    for (int i = -12000; i <= 12000; i++) {
        const float x = (float)i * 1e-3f;
        const double d = (double)x, u = sqrt(2 / acos(-1)) * (d + 0.044715 * d * d * d);
        ck_assert_double_eq_tol((double)math_gelu(x), d / 2 * (1 + tanh(u)), 1e-6);
    }
    ck_assert(math_gelu(1e30f) == 1e30f);
    ck_assert(fabsf(math_gelu(-1e10f)) < 1e-20f); /* the capped exponential leaves a crumb */
    ck_assert(isnan(math_gelu(NAN)));
}

/* Returns the error of f(x) in units of the last place of the exact result. */
static double error_in_ulps(float found, double exact)
{
    int exponent;
    frexp(exact, &exponent);
    return fabs((double)found - exact) / ldexp(1, exponent - 24);
}

/* The arguments are floats of all magnitudes and of either sign. (Of all floats with normal results
 * the worst is off by 6.99 ulp, at -13.05; above -13 by 6.86.) */
MATH_TEST(gelu_erf_is_exact_gelu)
{
    double worst = 0;
    for (uint32_t bits = 0x01000000; bits < 0x7f000000; bits += 10007)
        for (int sign = 0; sign < 2; sign++) {
            const float x = float_of(bits | (uint32_t)sign << 31);
            const double d = (double)x, exact = d / 2 * erfc(-d / sqrt(2));
            if (fabs(exact) < 0x1p-125)
                ck_assert_double_eq_tol((double)math_gelu_erf(x), exact, 0x1p-125);
            else
                worst = fmax(worst, error_in_ulps(math_gelu_erf(x), exact));
        }
    ck_assert_double_lt(worst, 7);
    ck_assert(math_gelu_erf(0) == 0 && math_gelu_erf(-INFINITY) == 0);
    ck_assert(math_gelu_erf(INFINITY) == INFINITY && math_gelu_erf(1e30f) == 1e30f);
    ck_assert(isnan(math_gelu_erf(NAN)));
}

/* (The worst of all floats from -88 on is off by 2.33 ulp.) */
MATH_TEST(silu_is_its_formula)
{
    double worst = 0;
    for (uint32_t bits = 0x01000000; bits < 0x7f000000; bits += 10007)
        for (int sign = 0; sign < 2; sign++) {
            const float x = float_of(bits | (uint32_t)sign << 31);
            const double d = (double)x, exact = d / (1 + exp(-d));
            if (x < -EXP_MAX)
                ck_assert_double_eq_tol((double)math_silu(x), exact, 1e-36);
            else
                worst = fmax(worst, error_in_ulps(math_silu(x), exact));
        }
    ck_assert_double_lt(worst, 2.5);
    ck_assert(math_silu(0) == 0 && math_silu(INFINITY) == INFINITY);
    ck_assert(fabsf(math_silu(-INFINITY)) < 1e-35f && isnan(math_silu(NAN)));
}

MATH_TEST(tanh_is_its_formula)
{
    double worst = 0;
    for (uint32_t bits = 0; bits < 0x7f800000; bits += 10007)
        for (int sign = 0; sign < 2; sign++) {
            const float x = float_of(bits | (uint32_t)sign << 31);
            worst = fmax(worst, fabs((double)math_tanh(x) - tanh((double)x)));
        }
    ck_assert_double_lt(worst, 2e-7);
    ck_assert(math_tanh(0) == 0 && isnan(math_tanh(NAN)));
    ck_assert(math_tanh(INFINITY) == 1 && math_tanh(-INFINITY) == -1);
}

/* All 65,536 halves go to float, and back with every table. */
MATH_TEST(f16_round_trip)
{
    static uint16_t back[65536];
    static float wide[65536];
    for (int i = 0; i < 65536; i++)
        wide[i] = f16_widen((uint16_t)i);
    for (const struct kernels *k = NULL; (k = next_kernels(k));) {
        k->to_f16(back, wide, 65536);
        for (int i = 0; i < 65536; i++) {
            const int is_nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff);
            ck_assert_uint_eq(back[i], is_nan ? (unsigned)i | 0x200 : (unsigned)i);
        }
    }
    ck_assert(wide[0x3c00] == 1.0f && wide[0x0001] == 0x1p-24f && wide[0xfbff] == -65504.0f);
}

/* Rounding to halves takes ties to even, overflows to infinity, and gives subnormals. */
MATH_TEST(f16_rounding)
{
    enum { N = 400000 };
    float *x = allocated(N * sizeof *x);
    uint16_t *a = allocated(N * sizeof *a), *b = allocated(N * sizeof *b);
    for (int i = 0; i < N; i++) {
        const uint32_t bits = random_u32();
        memcpy(&x[i], &bits, sizeof bits);
        if (i % 2) /* the range where halves live */
            x[i] = random_float() * ldexpf(1.0f, (int)(random_u32() % 44) - 27);
    }
    const float special[] = {65504.0f, 65519.996f,   65520.0f,       0x1p-25f,      0x1.8p-25f,
                             -0.0f,    0x1.ffcp-15f, 1.00048828125f, 1.00146484375f};
    memcpy(x, special, sizeof special);
    kernels_scalar.to_f16(a, x, N);
    ck_assert(a[0] == 0x7bff && a[1] == 0x7bff && a[2] == 0x7c00 && a[3] == 0 && a[4] == 1);
    ck_assert_uint_eq(a[5], 0x8000);
    ck_assert_uint_eq(a[6], 0x0400); /* halfway between subnormal and normal: even */
    ck_assert(a[7] == 0x3c00 && a[8] == 0x3c02);
    for (const struct kernels *k = NULL; (k = next_vector(k));) {
        k->to_f16(b, x, N);
        for (int i = 0; i < N; i++)
            ck_assert_msg(a[i] == b[i], "%s: %.9g gives %04x, not %04x", k->name, (double)x[i],
                          b[i], a[i]);
    }
}

/* All 65,536 bfloat16 values go to float and back; rounding is to the nearest, and of ties to even.
 */
MATH_TEST(bf16_round_trip)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const int is_nan = (i & 0x7f80) == 0x7f80 && (i & 0x7f);
        ck_assert_uint_eq(bf16_round(bf16_widen((uint16_t)i)), is_nan ? i | 0x40 : i);
    }
    ck_assert_uint_eq(bf16_round(1.0f), 0x3f80);
    ck_assert_uint_eq(bf16_round(0x1.01p0f), 0x3f80);   /* halfway: even */
    ck_assert_uint_eq(bf16_round(0x1.03p0f), 0x3f82);   /* halfway: even, upwards */
    ck_assert_uint_eq(bf16_round(0x1.0101p0f), 0x3f81); /* above halfway */
    ck_assert(bf16_round(3.4e38f) == 0x7f80 && bf16_round(-INFINITY) == 0xff80);
}
