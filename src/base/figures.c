#include "base/figures.h"

#include <inttypes.h>

#include "base/mem.h"
#include "base/text.h"

/* Returns how many decimals show a number with three digits; none if its whole part has as many. */
static int decimals(double value)
{
    return value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
}

/* Shows a number in the largest of the n units, each `step` of the one before, that leaves it at
 * least 1: three digits, or the whole number. */
static struct figure figure_in_units(double value, double step, const char *const *units, size_t n)
{
    struct figure f;
    size_t unit = 0;
    /* A larger number would be rounded to `step`. */
    while (value >= step - 0.5 && unit + 1 < n) {
        value /= step;
        unit++;
    }
    chars_printf(f.text, "%.*f %s", unit ? decimals(value) : 0, value, units[unit]);
    return f;
}

const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

struct figure figure_bytes(double bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return figure_in_units(bytes, 1024, units, LENGTH(units));
}

struct figure figure_duration(double ns)
{
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    struct figure f;
    if (ns < 99.5e9)
        return figure_in_units(ns, 1000, units, LENGTH(units));
    const double seconds = fmin(ns / 1e9 + 0.5, 1e15); /* within what the integer holds */
    const uint64_t s = seconds;
    if (s < 6000)
        chars_printf(f.text, "%d min %02d s", (int)(s / 60), (int)(s % 60));
    else
        chars_printf(f.text, "%" PRIu64 " h %02d min", s / 3600, (int)(s / 60 % 60));
    return f;
}

struct figure figure_millions(double x)
{
    struct figure f;
    chars_printf(f.text, "%.1f", x / 1e6);
    return f;
}

struct figure figure_rate(double per_second)
{
    struct figure f;
    chars_printf(f.text, "%.*f", decimals(per_second), per_second);
    return f;
}

struct figure figure_grouped(uint64_t x)
{
    struct figure f;
    char digits[24];
    const int n = chars_printf(digits, "%" PRIu64, x);
    char *c = f.text;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            *c++ = ',';
        *c++ = digits[i];
    }
    *c = 0;
    return f;
}

struct figure figure_weight(double x)
{
    struct figure f = {"–"};
    char text[32];
    chars_printf(text, "%.2f", x);
    if (!isnan(x))
        chars_printf(f.text, "%.3s", text + (text[0] == '0'));
    return f;
}

struct figure figure_exact(double x)
{
    struct figure f;
    if (!isfinite(x)) {
        chars_printf(f.text, "%s", isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
        return f;
    }
    for (int digits = 15; digits <= 17; digits++) {
        chars_printf(f.text, "%.*g", digits, x);
        if (strtod(f.text, NULL) == x)
            break;
    }
    return f;
}
