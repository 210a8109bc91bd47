/*
 * angles - powers, sines and cosines for tables of positions, in double precision.
 *
 * Each is one fixed chain of additions, multiplications and divisions, so that tables have the same
 * bits whatever the compiler, the instruction set and the C library.
 */
#pragma once

/* base^exponent, off by at most 4e-16 (1 + |exponent log base|) of it; 0 or infinity where that is
 * out of a double's range. NaN unless base > 0 and both are finite. */
double angles_power(double base, double exponent);

/* Of magnitudes up to this angles_sine knows what they are. */
#define ANGLES_MOST 0x1p40

/* Sine and cosine of an angle in radians, each to 1e-15. Both NaN if |angle| > ANGLES_MOST, or
 * angle is NaN. */
void angles_sine(double angle, double *sine, double *cosine);
