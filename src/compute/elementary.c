#include "compute/elementary.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"

#define LN_2 0x1.62e42fefa39efp-1

#define EXP_ROUND 0x1.8p52 /* adding it leaves round(x) in the low mantissa bits */
#define LOG2E     1.4426950408889634
#define LN2_HIGH  0x1.62e42fefap-1 /* few enough bits that n * LN2_HIGH is exact */
#define LN2_LOW   0x1.cf79abc9e3b3ap-40
#define EXP_ZERO  (-709.1) /* -1023 ln 2, where the exponent field becomes 0 */

void elementary_exp(double *x, int n)
{
    enum { BLOCK = 128 };
    for (int begin = 0; begin < n; begin += BLOCK) {
        const int end = n - begin < BLOCK ? n : begin + BLOCK;
        /* In a loop of its own, or the compiler makes it a branch of the other. */
        for (int i = begin; i < end; i++)
            x[i] = MAX(x[i], EXP_ZERO);
        for (int i = begin; i < end; i++) {
            const double shifted = x[i] * LOG2E + EXP_ROUND;
            const double e = shifted - EXP_ROUND;
            const double r = (x[i] - e * LN2_HIGH) - e * LN2_LOW;
            /* |r| <= ln(2) / 2, where the Taylor series of degree 13 is exact to double precision.
             */
            const double q = r * r;
            double odd = 1.0 / 6227020800;
            odd = odd * q + 1.0 / 39916800;
            odd = odd * q + 1.0 / 362880;
            odd = odd * q + 1.0 / 5040;
            odd = odd * q + 1.0 / 120;
            odd = odd * q + 1.0 / 6;
            double even = 1.0 / 479001600;
            even = even * q + 1.0 / 3628800;
            even = even * q + 1.0 / 40320;
            even = even * q + 1.0 / 720;
            even = even * q + 1.0 / 24;
            even = even * q + 0.5;
            const double p = ((odd * r + even) * q + r) + 1;
            uint64_t bits;
            memcpy(&bits, &shifted, sizeof bits);
            bits = (bits << 52) + ((uint64_t)1023 << 52);
            double scale;
            memcpy(&scale, &bits, sizeof scale);
            x[i] = p * scale;
        }
    }
}

/* x >= 0 and finite. */
static double log_of(float x)
{
    const uint32_t root_half = 0x3f3504f3u; /* of 1/2 */
    const uint32_t bits = float_bits(MAX(x, FLT_MIN));
    const int32_t exponent = (int32_t)(bits - root_half) >> 23;
    const float m = bits_float(bits - ((uint32_t)exponent << 23));
    /* x = m 2^exponent, and log m = 2 (z + z^3 / 3 + z^5 / 5 + ...) with |z| < 0.172. */
    const double z = ((double)m - 1) / ((double)m + 1), w = z * z;
    const double series =
        1 + w * (1.0 / 3 + w * (1.0 / 5 + w * (1.0 / 7 + w * (1.0 / 9 + w * (1.0 / 11)))));
    return exponent * LN_2 + 2 * z * series;
}

void elementary_log(const float *x, int n, double *out)
{
    for (int i = 0; i < n; i++)
        out[i] = log_of(x[i]);
}

/* log x, x finite and above 0, in units of log 2: *whole and what is given. With x = 2^whole m it
 * is log m = 2 (z + z^3 / 3 + z^5 / 5 + ...), z = (m - 1) / (m + 1), |z| < 0.172. */
static double log_2(double x, int *whole)
{
    double m = frexp(x, whole);
    if (m < 0x1.6a09e667f3bcdp-1) { /* sqrt(1/2) */
        m *= 2;
        --*whole;
    }
    const double z = (m - 1) / (m + 1), square = z * z;
    double s = 0;
    for (int k = 23; k >= 1; k -= 2)
        s = s * square + 1.0 / k;
    return 2 * z * s / LN_2;
}

double elementary_power(double base, double exponent)
{
    if (!(base > 0) || isinf(base) || !isfinite(exponent))
        return (double)NAN;
    int whole;
    const double part = log_2(base, &whole);
    const double log = exponent * whole + exponent * part;
    if (!(fabs(log) < 2000))
        return log > 0 ? (double)INFINITY : 0;
    const double n = floor(log + 0.5), x = (log - n) * LN_2;
    double s = 1;
    for (int k = 15; k >= 1; k--) /* the exponential series, |x| < 0.35 */
        s = 1 + s * x / k;
    return ldexp(s, (int)n);
}

/* The Taylor series of sin x / x and cos x in x^2; |x| <= pi / 4 leaves less than 1e-19. */
#define N_TERMS 9
static const double sine_terms[N_TERMS] = {1.0 / 355687428096000,
                                           -1.0 / 1307674368000,
                                           1.0 / 6227020800,
                                           -1.0 / 39916800,
                                           1.0 / 362880,
                                           -1.0 / 5040,
                                           1.0 / 120,
                                           -1.0 / 6,
                                           1};
static const double cosine_terms[N_TERMS] = {1.0 / 20922789888000,
                                             -1.0 / 87178291200,
                                             1.0 / 479001600,
                                             -1.0 / 3628800,
                                             1.0 / 40320,
                                             -1.0 / 720,
                                             1.0 / 24,
                                             -1.0 / 2,
                                             1};

static double series(const double *terms, double square)
{
    double s = terms[0];
    for (int i = 1; i < N_TERMS; i++)
        s = s * square + terms[i];
    return s;
}

/* Quarter turns are taken off the angle first. pi / 2 is two doubles, and fma tells what the
 * product with the first one loses. */
void elementary_sine(double angle, double *sine, double *cosine)
{
    if (!(fabs(angle) <= ELEMENTARY_ANGLE_MAX)) {
        *sine = *cosine = (double)NAN;
        return;
    }
    const double half_pi = 0x1.921fb54442d18p0, half_pi_rest = 0x1.1a62633145c07p-54;
    const double quarters = floor(angle * 0x1.45f306dc9c883p-1 + 0.5); /* 2 / pi */
    const double first = quarters * half_pi, error = fma(quarters, half_pi, -first);
    const double x = (angle - first) - (error + quarters * half_pi_rest);
    const double s = x * series(sine_terms, x * x), c = series(cosine_terms, x * x);
    const bool swapped = (int64_t)quarters & 1;
    const double a = swapped ? c : s, b = swapped ? s : c;
    *sine = (int64_t)quarters & 2 ? -a : a;
    *cosine = ((int64_t)quarters + 1) & 2 ? -b : b;
}
