#include "show/scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SLACK        1e-9 /* of a step: an end this near to a tick is on it */
#define MIN_SPAN     1e-100
#define MIN_REL_SPAN 1e-12
#define MAX_PLACES   15 /* digits before the point of a number written out */
#define MIN_PLACES   (-5)

/* --- decimal numbers ------------------------------------------------------------------------ */

/* digits * 10^exponent */
struct decimal {
    int64_t digits;
    int exponent;
};

/* Digits before the decimal point; 0 or less for numbers below 1. */
static int places(struct decimal d)
{
    int n = d.exponent;
    for (int64_t rest = d.digits; rest; rest /= 10)
        n++;
    return n;
}

static struct decimal without_trailing_zeros(struct decimal d)
{
    if (d.digits == 0)
        d.exponent = 0;
    while (d.digits && d.digits % 10 == 0) {
        d.digits /= 10;
        d.exponent++;
    }
    return d;
}

/* x * 10^n, with the error of one rounding where 10^|n| is exact. */
static double scaled(double x, int n)
{
    return n < 0 ? x / pow(10, -n) : x * pow(10, n);
}

/* "-1,234.50": as many decimals as the exponent says. At most MAX_PLACES before the point. */
static struct figure written_out(struct decimal d, const char *separator, const char *suffix)
{
    char digits[48];
    const int decimals = d.exponent < 0 ? -d.exponent : 0;
    const uint64_t magnitude = d.digits < 0 ? 0 - (uint64_t)d.digits : (uint64_t)d.digits;
    /* A zero before the point too. */
    int n = snprintf(digits, sizeof digits, "%0*" PRIu64, decimals + 1, magnitude);
    for (int i = 0; i < d.exponent; i++)
        digits[n++] = '0';

    struct figure f;
    size_t len = 0;
    if (d.digits < 0)
        f.text[len++] = '-';
    for (int i = 0; i < n; i++) {
        const int before_point = n - decimals - i;
        if (before_point == 0)
            f.text[len++] = '.';
        else if (i > 0 && before_point > 0 && before_point % 3 == 0 && separator[0])
            f.text[len++] = separator[0];
        f.text[len++] = digits[i];
    }
    snprintf(f.text + len, sizeof f.text - len, "%s", suffix);
    return f;
}

/* "1.5e20" */
static struct figure with_exponent(struct decimal d)
{
    char suffix[16];
    const int exponent = places(d) - 1;
    snprintf(suffix, sizeof suffix, "e%d", exponent);
    d = without_trailing_zeros(d);
    d.exponent -= exponent;
    return written_out(d, "", suffix);
}

static bool is_written_out(int n_places)
{
    return n_places <= MAX_PLACES && n_places >= MIN_PLACES;
}

/* --- ticks ---------------------------------------------------------------------------------- */

void scale_widen(double lo, double *hi)
{
    const double size = fmax(fabs(lo), fabs(*hi));
    if (*hi - lo < MIN_SPAN || *hi - lo < size * MIN_REL_SPAN)
        *hi = size < MIN_SPAN ? lo + 1 : lo + size;
}

struct scale_ticks scale_ticks(double lo, double hi, int max_steps, bool around)
{
    static const int mantissas[] = {1, 2, 5};
    /* One decade finer than could do, so that the first fit is the finest. */
    for (int exponent = (int)floor(log10((hi - lo) / max_steps)) - 1;; exponent++) {
        for (int i = 0; i < 3; i++) {
            const double from = scaled(lo, -exponent) / mantissas[i];
            const double to = scaled(hi, -exponent) / mantissas[i];
            const double first = around ? floor(from + SLACK) : ceil(from - SLACK);
            const double last = around ? ceil(to - SLACK) : floor(to + SLACK);
            if (last - first <= max_steps)
                return (struct scale_ticks){(int64_t)first, (int)(last - first) + 1, mantissas[i],
                                            exponent};
        }
    }
}

static struct decimal tick_decimal(const struct scale_ticks *t, int i)
{
    return (struct decimal){(t->first + i) * t->mantissa, t->exponent};
}

double scale_tick(const struct scale_ticks *t, int i)
{
    const struct decimal d = tick_decimal(t, i);
    return scaled((double)d.digits, d.exponent);
}

struct figure scale_label(const struct scale_ticks *t, int i)
{
    static const char *const suffixes[] = {"M", "G", "T"}; /* from 10^6 */
    const int n_first = places(tick_decimal(t, 0)), n_last = places(tick_decimal(t, t->n - 1));
    const int largest = n_first > n_last ? n_first : n_last;
    struct decimal d = tick_decimal(t, i);
    if (d.digits == 0)
        return (struct figure){"0"};
    if (!is_written_out(largest))
        return with_exponent(d);
    for (int power = 12; power >= 6; power -= 3) {
        if (largest > power) {
            d.exponent -= power;
            return written_out(d, ",", suffixes[power / 3 - 2]);
        }
    }
    return written_out(d, ",", "");
}

/* --- values --------------------------------------------------------------------------------- */

struct figure scale_value(double x)
{
    if (x == floor(x) && fabs(x) < 1e15)
        return written_out((struct decimal){(int64_t)x, 0}, ",", "");
    const int leading = (int)floor(log10(fabs(x))); /* the power of ten of the first digit */
    int exponent = leading - 3;
    if (is_written_out(leading + 1) && exponent > 0)
        exponent = 0;
    const struct decimal d = {llround(scaled(x, -exponent)), exponent};
    return is_written_out(places(d)) ? written_out(d, ",", "") : with_exponent(d);
}

struct figure scale_length(double x)
{
    const struct decimal d = {llround(x * 100), -2};
    return written_out(without_trailing_zeros(d), "", "");
}
