#include "engine/sampler.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Rows are worked on a chunk at a time, and chunks are added in lanes: for the vectoriser. */
enum { CHUNK = 128, LANES = 8 };

enum status logits_check(const float *logits, int n, struct err *e)
{
    int bad = 0; /* without a branch, for the vectoriser */
    for (int i = 0; i < n; i++)
        bad |= !(fabsf(logits[i]) <= FLT_MAX);
    if (!bad)
        return STATUS_OK;
    int i = 0;
    while (isfinite(logits[i]))
        i++;
    return err_set(e, STATUS_FAILED,
                   "the logit of token %d is %f; expected a finite number (info --check finds "
                   "tensors that are not finite)",
                   i, (double)logits[i]);
}

/* The maximum in lanes first, for the vectoriser, then where it is. */
int logits_argmax(const float *logits, int n)
{
    enum { FLOATS = 16 };
    float lanes[FLOATS];
    for (int l = 0; l < FLOATS; l++)
        lanes[l] = logits[0];
    int i = 0;
    for (; i + FLOATS <= n; i += FLOATS)
        for (int l = 0; l < FLOATS; l++)
            lanes[l] = logits[i + l] > lanes[l] ? logits[i + l] : lanes[l];
    float maximum = lanes[0];
    for (int l = 1; l < FLOATS; l++)
        maximum = lanes[l] > maximum ? lanes[l] : maximum;
    for (; i < n; i++)
        maximum = logits[i] > maximum ? logits[i] : maximum;
    int first = 0;
    while (logits[first] < maximum)
        first++;
    return first;
}

#define EXP_ROUND 0x1.8p52 /* adding it leaves round(x) in the low mantissa bits */
#define LOG2E     1.4426950408889634
#define LN2_HIGH  0x1.62e42fefap-1 /* few enough bits that n * LN2_HIGH is exact */
#define LN2_LOW   0x1.cf79abc9e3b3ap-40
#define EXP_ZERO  (-709.1) /* -1023 ln 2, where the exponent field becomes 0 */

/* e^x for EXP_ZERO <= x <= 0. */
static inline double exp_in_range(double x)
{
    const double shifted = x * LOG2E + EXP_ROUND;
    const double n = shifted - EXP_ROUND;
    const double r = (x - n * LN2_HIGH) - n * LN2_LOW;
    /* |r| <= ln(2) / 2, where the Taylor series of degree 13 is exact to double precision. */
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
    return p * scale;
}

void logits_exp(double *x, int n)
{
    for (int begin = 0; begin < n; begin += CHUNK) {
        const int end = n - begin < CHUNK ? n : begin + CHUNK;
        /* In a loop of its own, or the compiler makes it a branch of the other. */
        for (int i = begin; i < end; i++)
            x[i] = x[i] > EXP_ZERO ? x[i] : EXP_ZERO;
        for (int i = begin; i < end; i++)
            x[i] = exp_in_range(x[i]);
    }
}

double logits_minus_log(double u)
{
    uint64_t bits;
    double m;
    memcpy(&bits, &u, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & (((uint64_t)1 << 52) - 1)) | (uint64_t)1023 << 52;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m /= 2;
        exponent++;
    }
    /* log(m) = 2 atanh((m - 1) / (m + 1)): |s| < 0.172, so that ten terms are exact. */
    const double s = (m - 1) / (m + 1), q = s * s;
    double sum = 0;
    for (int i = 21; i >= 3; i -= 2)
        sum = (sum + 1.0 / i) * q;
    const double log_m = 2 * s + 2 * s * sum;
    return -(exponent * LN2_HIGH + (exponent * LN2_LOW + log_m));
}

/* out[i] = logits[i] - offset, and a distance whose exponential is 0 from n up to CHUNK. */
static void load_chunk(const float *logits, int n, double offset, double *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (double)logits[i] - offset;
    for (int i = n; i < CHUNK; i++)
        out[i] = EXP_ZERO;
}

static double add_lanes(const double *lanes)
{
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

enum status logits_log_sum(const float *logits, int n, double *log_sum, struct err *e)
{
    TRY(logits_check(logits, n, e));
    const double max = (double)logits[logits_argmax(logits, n)];
    double lanes[LANES] = {0}, chunk[CHUNK];
    for (int begin = 0; begin < n; begin += CHUNK) {
        load_chunk(logits + begin, n - begin < CHUNK ? n - begin : CHUNK, max, chunk);
        logits_exp(chunk, CHUNK);
        for (int i = 0; i < CHUNK; i += LANES)
            for (int l = 0; l < LANES; l++)
                lanes[l] += chunk[i + l];
    }
    *log_sum = max + log(add_lanes(lanes));
    return STATUS_OK;
}

double logits_divergence(const float *p_logits, double p_log_sum, const float *q_logits,
                         double q_log_sum, int n)
{
    double lanes[LANES] = {0}, p[CHUNK], difference[CHUNK];
    for (int begin = 0; begin < n; begin += CHUNK) {
        const int count = n - begin < CHUNK ? n - begin : CHUNK;
        load_chunk(p_logits + begin, count, p_log_sum, p);
        for (int i = 0; i < count; i++)
            difference[i] = p[i] - ((double)q_logits[begin + i] - q_log_sum);
        for (int i = count; i < CHUNK; i++)
            difference[i] = 0;
        logits_exp(p, CHUNK);
        for (int i = 0; i < CHUNK; i += LANES)
            for (int l = 0; l < LANES; l++)
                lanes[l] += p[i + l] * difference[i + l];
    }
    const double sum = add_lanes(lanes);
    return sum > 0 ? sum : 0; /* rounding may leave a little less than nothing */
}
