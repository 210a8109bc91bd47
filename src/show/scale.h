/*
 * scale - round ticks for an axis, and short figures in any locale.
 *
 * Everything is a pure function of its arguments.
 */
#ifndef DECODE_SHOW_SCALE_H
#define DECODE_SHOW_SCALE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/figures.h"

/* Tick i is at (first + i) * mantissa * 10^exponent, so that its label is exact. */
struct scale_ticks {
    int64_t first;
    int n;
    int mantissa; /* 1, 2 or 5 */
    int exponent;
};

/*
 * The finest ticks with at most `max_steps` (>= 1) steps: those inside [lo, hi], or enough to
 * enclose it (`around`). Both ends are finite, at most 1e100 in magnitude, and hi - lo is positive
 * and no less than 1e-12 of either end and than 1e-100 (scale_widen sees to that).
 */
struct scale_ticks scale_ticks(double lo, double hi, int max_steps, bool around);

/* Moves *hi up until ticks can tell it from *lo. */
void scale_widen(double lo, double *hi);

double scale_tick(const struct scale_ticks *t, int i);

/*
 * "25,000", "0.50", "1.5M", "2e20": the decimals, and the M, G or T of a million and more
 * are the same for all ticks of an axis, but zero is "0".
 */
struct figure scale_label(const struct scale_ticks *t, int i);

/* A finite value: an integer as it is, others to four digits or the integer: "1,024", "31.20",
 * "2.5e-9". */
struct figure scale_value(double x);

/* A length in pixels to a hundredth, without trailing zeros. |x| < 1e15. */
struct figure scale_length(double x);

#endif
