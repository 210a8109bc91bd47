/*
 * products - matrix products and sums in double, on all threads.
 */
#ifndef DECODE_CONVERT_PRODUCTS_H
#define DECODE_CONVERT_PRODUCTS_H

#include "compute/grad_kernels.h"
#include "compute/pool.h"

/* c [m, n] = a [m, k] b [k, n], and = a [m, k] b [n, k]^T through `scratch` [k, n]. */
void convert_multiply(struct pool *pool, double *c, const double *a, const double *b, int m, int k,
                      int n);
void convert_multiply_transposed(struct pool *pool, double *c, const double *a, const double *b,
                                 int m, int k, int n, double *scratch);

/* c [m, columns] += a^T b for a [n, m] and b [n, columns]. */
void convert_add_outer(struct pool *pool, double *c, const double *a, const double *b, int n, int m,
                       int columns);

/* The same for floats, whose n products are added up as floats, which is many times faster. */
struct convert_summing {
    struct pool *pool;
    const struct grad_kernels *grad;
    float *part; /* scratch [m, columns] */
};
void convert_add_outer_floats(const struct convert_summing *s, double *c, const float *a,
                              const float *b, int n, int m, int columns);

/* From sums [m, columns] of a^T b over n rows, and the sums a_sum [m] and b_sum [columns] of these,
 * to covariances; to second moments where a_sum is NULL. */
void convert_finish_sums(double *sums, const double *a_sum, const double *b_sum, double n, int m,
                         int columns);

/* linalg_cholesky with a ridge relative to the mean of the diagonal, which rounding may have made
 * negative where it should be 0: then without. l may be a. */
void convert_root(double *l, const double *a, int n, double ridge);

/* sum [d] += the rows of x [n, d]. */
void convert_add_rows(double *sum, const float *x, int n, size_t d);

/* out [n] = x, and = x - y. */
void convert_widen(double *out, const float *x, size_t n);
void convert_widen_difference(double *out, const float *x, const float *y, size_t n);
void convert_subtract(float *out, const float *x, const float *y, size_t n);

#endif
