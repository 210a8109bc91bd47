#include "show/figures.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct figure figure_bytes(double bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct figure f;
    size_t unit = 0;
    /* 1023.5 and above would be shown as 1024. */
    while (bytes >= 1023.5 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
    snprintf(f.text, sizeof f.text, "%.*f %s", decimals, bytes, units[unit]);
    return f;
}

struct figure figure_duration(uint64_t ns)
{
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    struct figure f;
    double value = (double)ns;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        unit++;
    }
    const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(f.text, sizeof f.text, "%.*f %s", decimals, value, units[unit]);
    return f;
}

struct figure figure_rate(double per_second)
{
    struct figure f;
    const int decimals = per_second >= 99.95 ? 0 : per_second >= 9.995 ? 1 : 2;
    snprintf(f.text, sizeof f.text, "%.*f", decimals, per_second);
    return f;
}

struct figure figure_grouped(uint64_t x)
{
    struct figure f;
    char digits[24];
    const int n = snprintf(digits, sizeof digits, "%" PRIu64, x);
    char *c = f.text;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            *c++ = ',';
        *c++ = digits[i];
    }
    *c = 0;
    return f;
}

struct figure figure_exact(double x)
{
    struct figure f;
    if (!isfinite(x)) {
        snprintf(f.text, sizeof f.text, "%s", isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
        return f;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(f.text, sizeof f.text, "%.*g", digits, x);
        if (strtod(f.text, NULL) == x)
            break;
    }
    return f;
}
