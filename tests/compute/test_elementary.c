/* Compares exponentials, logarithms, powers, sines and cosines with the C library's in long double,
 * and a hash of their bits, which must be the same with every compiler. */
#include <float.h>
#include <math.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "compute/elementary.h"
#include "support.h"

TEST(exp_is_within_two_ulp)
{
    static double x[20000];
    for (int i = 0; i < LENGTH(x); i++)
        x[i] = -0.0353 * i;
    elementary_exp(x, LENGTH(x));
    for (int i = 0; i < LENGTH(x); i++) {
        const long double exact = expl((long double)(-0.0353 * i));
        ck_assert_msg(fabsl((long double)x[i] - exact) <= exact * 2 * 0x1p-53L, "%d: %.17g", i,
                      x[i]);
    }
    double special[] = {0, -0.0, -(double)INFINITY, -1e300, -709.2, -5e-324};
    static const double expected[] = {1, 1, 0, 0, 0, 1};
    elementary_exp(special, 6);
    for (int i = 0; i < 6; i++)
        ck_assert_double_eq(special[i], expected[i]);
}

/* The arguments go from 1 up, and from 1 down to below the least normal number; and 0. */
TEST(log_is_within_its_bound)
{
    for (float a = 1; a > FLT_MIN / 2; a *= 0.9993f) {
        const float x[] = {a, 1 / a, 0};
        double logs[3];
        elementary_log(x, 3, logs);
        for (int i = 0; i < 3; i++)
            ck_assert_double_eq_tol(logs[i], log((double)fmaxf(x[i], FLT_MIN)), 2e-11);
    }
}

static void check_angle(double angle)
{
    const long double exact = (long double)angle;
    double sine, cosine;
    elementary_sine(angle, &sine, &cosine);
    ck_assert_msg(fabsl((long double)sine - sinl(exact)) < 1e-15L, "sin(%a) is %a", angle, sine);
    ck_assert_msg(fabsl((long double)cosine - cosl(exact)) < 1e-15L, "cos(%a) is %a", angle,
                  cosine);
}

/* The angles have all magnitudes. Some are near whole quarter turns, where the reduced angle has
 * only digits that pi / 2 has beyond the first double; some are where rounding to whole quarters
 * may go either way; others are those of positions. */
TEST(sines)
{
    const double half_pi = 1.57079632679489662;
    struct rng r;
    rng_seed(&r, 1, 0);
    for (int i = 0; i < (SANITIZED ? 20000 : 100000); i++)
        check_angle(ldexp(rng_unit(&r) - 0.5, i % 80 - 38)); /* up to 2^40 */
    check_angle(ELEMENTARY_ANGLE_MAX);
    check_angle(-ELEMENTARY_ANGLE_MAX);
    check_angle(DBL_MIN);
    for (double n = 1; n < 0x1p39; n = floor(n * 1.1) + 1) {
        check_angle(n * half_pi);
        check_angle(nextafter(n * half_pi, 0));
        check_angle((n + 0.5) * half_pi);
        check_angle(-(n - 0.5) * half_pi);
    }
    for (int position = 0; position < 2000000; position += SANITIZED ? 9970 : 997)
        for (int i = 0; i < 32; i++)
            check_angle(position * elementary_power(10000, -i / 32.0));
}

TEST(sines_at_the_limits)
{
    static const double none[] = {0x1.0000000000001p40, -1e300, (double)INFINITY, -(double)INFINITY,
                                  (double)NAN};
    double sine, cosine;
    for (int i = 0; i < 5; i++) {
        elementary_sine(none[i], &sine, &cosine);
        ck_assert(isnan(sine) && isnan(cosine));
    }
    elementary_sine(0, &sine, &cosine);
    ck_assert(sine == 0 && cosine == 1);
}

static void check_power(double base, double exponent)
{
    const long double x = (long double)base, y = (long double)exponent, exact = powl(x, y);
    const double found = elementary_power(base, exponent);
    const long double log = fabsl(y * logl(x));
    ck_assert_msg(fabsl((long double)found - exact) <= 4e-16L * (1 + log) * exact, "%g^%g is %.17g",
                  base, exponent, found);
}

TEST(powers)
{
    struct rng r;
    rng_seed(&r, 2, 0);
    for (double base = 2; base <= 1e7; base *= SANITIZED ? 13.7 : 3.7)
        for (int n = 2; n <= 256; n += 2)
            for (int i = 0; i <= n; i += 2)
                check_power(base, -(double)i / n);
    for (int i = 0; i < 100000; i++) /* above and below 1, results of 2^-1000 to 2^1000 */
        check_power(ldexp(0.5 + rng_unit(&r), i % 1000 - 500), 4 * rng_unit(&r) - 2);
    for (int i = 0; i < 64; i++)
        ck_assert(elementary_power(ldexp(1, i), -1) == ldexp(1, -i) &&
                  elementary_power(3.7 * i + 1, 0) == 1);
}

TEST(powers_at_the_limits)
{
    ck_assert(isinf(elementary_power(2, 1024)) && isinf(elementary_power(10, 1e300)));
    ck_assert(elementary_power(2, -1100) == 0 && elementary_power(10, -1e300) == 0);
    ck_assert(elementary_power(2, -1074) == 0x1p-1074 &&
              elementary_power(0x1p-1074, 1) == 0x1p-1074);
    ck_assert(isnan(elementary_power(0, 1)) && isnan(elementary_power(-1, 1)) &&
              isnan(elementary_power((double)NAN, 1)));
    ck_assert(isnan(elementary_power((double)INFINITY, -1)) &&
              isnan(elementary_power(2, (double)INFINITY)));
    ck_assert(isnan(elementary_power(2, (double)NAN)));
}

static void add_bits(uint64_t *sum, double x)
{
    *sum = hash_bytes(*sum, &x, sizeof x);
}

TEST(the_same_bits)
{
    uint64_t sum = HASH_START;
    for (int i = 0; i < 128; i++) {
        const double frequency = elementary_power(500000 - 3000 * i, -i / 128.0);
        add_bits(&sum, frequency);
        for (int position = 0; position < 5000000; position += 10007) {
            double sine, cosine;
            elementary_sine(position * frequency, &sine, &cosine);
            add_bits(&sum, sine);
            add_bits(&sum, cosine);
        }
    }
    ck_assert_msg(sum == 0x265a88d7daaaa89du, "the sum is %016llx", (unsigned long long)sum);
}
