/*
 * elementary - exponentials, logarithms, powers, sines and cosines in double precision.
 *
 * Each is one fixed chain of additions, multiplications and divisions, so that results have the
 * same bits whatever the compiler, the instruction set and the C library. (The kernels' own, of
 * floats, are in kernels_math.h.)
 */
#pragma once

/* x[i] = e^x[i] for n numbers <= 0 (-INFINITY too), within 2 ulp; 0 below the normal numbers,
 * and exactly 1 for 0. */
void elementary_exp(double *x, int n);

/* out[i] = log x[i] of n finite numbers >= 0, within 2e-11; of the least normal number for 0 and
 * what is below. */
void elementary_log(const float *x, int n, double *out);

/* base^exponent, off by at most 4e-16 (1 + |exponent log base|) of it; 0 or infinity where that is
 * out of a double's range. NaN unless base > 0 and both are finite. */
double elementary_power(double base, double exponent);

/* The largest magnitude of an angle for which elementary_sine is exact enough. */
#define ELEMENTARY_ANGLE_MAX 0x1p40

/* Sine and cosine of an angle in radians, each to 1e-15. Both NaN if |angle| is more than
 * ELEMENTARY_ANGLE_MAX, or angle is NaN. */
void elementary_sine(double angle, double *sine, double *cosine);
