/*
 * kernel_data - what the suites of the kernels share: numbers, storage and comparisons.
 */
#ifndef TESTS_KERNEL_DATA_H
#define TESTS_KERNEL_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/kernels.h"

/* A fixture: every test starts with the same random numbers. */
void seed_numbers(void);

uint32_t random_u32(void);
/* From -1.5 to 1.5, mostly near 0. */
float random_float(void);

/* The float that has these bits. */
float float_of(uint32_t bits);

/* Arrays on the heap of exactly n elements, so that a sanitizer sees one too many, until the test
 * ends (support.h). */
float *random_floats(size_t n);
float *copy_floats(const float *x, size_t n);
/* x stored as F32, F16 or BF16. */
void *as_storage(const float *x, size_t n, enum storage storage);

void assert_same_bits(const float *expected, const float *found, size_t n, const char *what);

/* The tables that run here, one after the other from NULL to NULL: all of them, and those that are
 * not the definition. And the one that is chosen. */
const struct kernels *next_kernels(const struct kernels *k);
const struct kernels *next_vector(const struct kernels *k);
const struct kernels *fastest_kernels(void);

#endif
