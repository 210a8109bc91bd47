/* Softmax arithmetic against plain long double sums, and exp() against the libm's. */
#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "support.h"

#define N_VOCAB 300

static void random_logits(float *logits, int n, double width, uint64_t stream)
{
    struct rng r;
    rng_seed(&r, 3, stream);
    for (int i = 0; i < n; i++)
        logits[i] = (float)((rng_unit(&r) - 0.5) * width);
}

static double log_sum_of(const float *logits, int n)
{
    double log_sum;
    expect_ok(logits_log_sum(logits, n, &log_sum, &err));
    return log_sum;
}

/* Every length around those of chunks and lanes. */
TEST(log_sum_is_that_of_a_plain_softmax)
{
    float logits[N_VOCAB];
    for (int n = 1; n <= N_VOCAB; n++) {
        random_logits(logits, n, 20, (uint64_t)n);
        long double sum = 0;
        for (int i = 0; i < n; i++)
            sum += expl((long double)logits[i]);
        ck_assert_double_eq_tol(log_sum_of(logits, n), (double)logl(sum), 2e-15);
    }
    ck_assert_double_eq(log_sum_of(logits, 1), (double)logits[0]);
    const float huge[] = {3e38f, 3e38f, -3e38f};
    ck_assert_double_eq_tol(log_sum_of(huge, 3), (double)3e38f + log(2), 1e23);
}

TEST(logits_that_are_not_finite_are_named)
{
    float logits[] = {1, 2, 3};
    double log_sum;
    logits[2] = NAN;
    expect_status(logits_log_sum(logits, 3, &log_sum, &err), STATUS_FAILED, "token 2|nan");
    logits[1] = INFINITY;
    expect_status(logits_log_sum(logits, 3, &log_sum, &err), STATUS_FAILED, "token 1|inf");
    expect_ok(logits_check(logits, 1, &err));
}

TEST(argmax_is_the_first_maximum)
{
    float logits[N_VOCAB];
    for (int n = 1; n < 70; n++)
        for (int at = 0; at < n; at++) {
            for (int i = 0; i < n; i++)
                logits[i] = i < at ? -2.0f : -1.0f;
            ck_assert_int_eq(logits_argmax(logits, n), at);
        }
}

TEST(exp_is_within_two_ulp)
{
    double x[1000];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 1000; i++)
            x[i] = -(double)(round * 1000 + i) * 0.0353;
        logits_exp(x, 1000);
        for (int i = 0; i < 1000; i++) {
            const long double exact = expl(-(long double)((double)(round * 1000 + i) * 0.0353));
            ck_assert_msg(fabsl((long double)x[i] - exact) <= exact * 2 * 0x1p-53L, "%d: %.17g",
                          round * 1000 + i, x[i]);
        }
    }
    double special[] = {0, -0.0, -(double)INFINITY, -1e300, -709.2, -5e-324};
    static const double expected[] = {1, 1, 0, 0, 0, 1};
    logits_exp(special, 6);
    for (int i = 0; i < 6; i++)
        ck_assert_double_eq(special[i], expected[i]);
}

TEST(log_is_within_two_ulp)
{
    struct rng r;
    rng_seed(&r, 3, 3);
    for (int i = 0; i < 100000; i++) {
        double u = 1 - rng_unit(&r);
        u = i % 3 == 0 ? u : i % 3 == 1 ? 1 - u * 0x1p-20 : u * 0x1p-40;
        const double exact = (double)-logl((long double)u);
        const double ulp = nextafter(exact, HUGE_VAL) - exact;
        ck_assert_double_le(fabs(logits_minus_log(u) - exact), 2 * ulp);
    }
    ck_assert_double_eq(logits_minus_log(1), 0);
}

TEST(divergence_is_that_of_its_definition)
{
    float p[N_VOCAB], q[N_VOCAB];
    for (int n = 1; n <= N_VOCAB; n += 7) {
        random_logits(p, n, 12, 100 + (uint64_t)n);
        random_logits(q, n, 12, 500 + (uint64_t)n);
        const double p_log_sum = log_sum_of(p, n), q_log_sum = log_sum_of(q, n);
        long double sum = 0;
        for (int i = 0; i < n; i++) {
            const long double lp = (long double)p[i] - (long double)p_log_sum;
            sum += expl(lp) * (lp - ((long double)q[i] - (long double)q_log_sum));
        }
        ck_assert_double_eq_tol(logits_divergence(p, p_log_sum, q, q_log_sum, n), (double)sum,
                                1e-14);
        ck_assert_double_eq(logits_divergence(p, p_log_sum, p, p_log_sum, n), 0);
        /* Softmax does not see a shift; what rounding makes of it is never negative. */
        for (int i = 0; i < n; i++)
            q[i] = p[i] + 64;
        const double shifted = logits_divergence(p, p_log_sum, q, log_sum_of(q, n), n);
        ck_assert_double_ge(shifted, 0);
        ck_assert_double_le(shifted, 1e-10);
    }
    /* p = (1/2, 1/2), q = (1/4, 3/4): log 2 - log(3) / 2. */
    const float even[] = {0, 0}, odd[] = {0, logf(3)};
    ck_assert_double_eq_tol(
        logits_divergence(even, log_sum_of(even, 2), odd, log_sum_of(odd, 2), 2),
        log(2) - log(3) / 2, 1e-7);
}
