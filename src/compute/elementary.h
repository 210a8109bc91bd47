/*
 * elementary - exponentials, logarithms, powers, sines and cosines in double precision.
 *
 * Each is one fixed chain of operations that round correctly everywhere, so that results have the
 * same bits whatever the compiler, the instruction set and the C library. (kernels_math.h has the
 * functions of floats.)
 */
#pragma once

/* Sets x[i] to e^x[i] for n numbers <= 0 (-INFINITY too), within 2 ulp; to 0 where that is below
 * the normal numbers, and to exactly 1 for 0. */
void elementary_exp(double *x, int n);

/* Sets out[i] to log x[i] for n finite numbers >= 0, within 2e-11. What is below the least normal
 * number counts as that. */
void elementary_log(const float *x, int n, double *out);

/* Returns base^exponent with a relative error of at most 4e-16 (1 + |exponent log base|); 0 or
 * infinity where it is out of a double's range. NaN unless base > 0 and both are finite. */
double elementary_power(double base, double exponent);

/* The largest magnitude of an angle for which elementary_sine is exact enough. */
#define ELEMENTARY_ANGLE_MAX 0x1p40

/* Computes sine and cosine of an angle in radians, each to 1e-15. Both are NaN if |angle| is more
 * than ELEMENTARY_ANGLE_MAX, or angle is NaN. */
void elementary_sine(double angle, double *sine, double *cosine);
