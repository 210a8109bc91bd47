/*
 * kernel_data - what the suites of the kernels share: numbers, storage and comparisons.
 */
#ifndef TESTS_KERNEL_DATA_H
#define TESTS_KERNEL_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "compute/kernels.h"

/* Begins the random numbers anew: before each test, so that it always draws the same. */
void seed_numbers(void);

uint32_t random_u32(void);
/* A number from -1.5 to 1.5, mostly near 0. */
float random_float(void);

/* The float that has these bits. */
float float_of(uint32_t bits);

/* Arrays of exactly n elements on the heap, so that a sanitizer sees an access behind the end.
 * Freed when the test ends. */
float *random_floats(size_t n);
float *copy_floats(const float *x, size_t n);
/* A copy of x in this storage: F32, F16 or BF16. */
void *as_storage(const float *x, size_t n, enum storage storage);

void assert_same_bits(const float *expected, const float *found, size_t n, const char *what);

/* The table of kernels behind `k`, of those that this machine runs: NULL gives the first, the last
 * gives NULL. next_vector leaves out the scalar definition. The fastest one is the program's
 * choice. */
const struct kernels *next_kernels(const struct kernels *k);
const struct kernels *next_vector(const struct kernels *k);
const struct kernels *fastest_kernels(void);

#endif
