/*
 * products - matrix products and sums in double, on all threads.
 */
#pragma once

#include "convert/private.h"

/* So many rows of a product: added to p.c; written to p.c; or written with a p.b [columns, inner]
 * that is transposed first, to c->scratch.square2. */
void convert_add_product(const struct converter *c, struct linalg_product p, size_t rows);
void convert_multiply(const struct converter *c, struct linalg_product p, size_t rows);
void convert_multiply_transposed(const struct converter *c, struct linalg_product p, size_t rows);

/* sum [m, n] += a [k, m]^T b [k, n] of floats, added up as floats in p.c first, which is many times
 * faster; and a thread's share of its rows, so far apart. */
void convert_add_gram(const struct converter *c, double *sum, struct product p);
void convert_add_transposed(const struct converter *c, double *sum, size_t stride, struct product p,
                            int thread);

/* out [m, n] = a [m, k] b [k, n] of floats, rows close together. */
static inline struct product convert_product(float *out, const float *a, const float *b, size_t m,
                                             size_t k, size_t n)
{
    return (struct product){.m = m,
                            .n = n,
                            .k = k,
                            .a = a,
                            .a_row = k,
                            .a_col = 1,
                            .b = b,
                            .b_row = n,
                            .b_panel = KERNEL_LANES,
                            .c = out,
                            .c_row = n};
}

/* out [m, n] = a [k, m]^T b [k, n] likewise. */
static inline struct product convert_product_transposed(float *out, const float *a, const float *b,
                                                        size_t m, size_t k, size_t n)
{
    struct product p = convert_product(out, a, b, m, k, n);
    p.a_row = 1;
    p.a_col = m;
    return p;
}

/* m [dim, dim] += scale * a b^T for some rows [dim, n] of each, as dot products. */
struct convert_dots {
    size_t dim, n, stride; /* from row to row */
};
void convert_add_dots(double *m, const double *a, const double *b, struct convert_dots r,
                      double scale);

/* From sums [m, columns] of a^T b over n rows, and the rows' sums a_sum [m] and b_sum [columns], to
 * covariances; where a_sum is NULL, to second moments. */
void convert_sums_to_moments(double *sums, const double *a_sum, const double *b_sum, double n,
                             size_t m, size_t columns);

/* linalg_cholesky with a ridge relative to the mean of the diagonal, if that is not negative (by
 * rounding). l may be a. */
void convert_cholesky(double *l, const double *a, size_t n, double ridge);

/* sum [d] += the rows of x [n, d]. */
void convert_add_rows(double *sum, const float *x, size_t n, size_t d);

/* out [n] = x - y. */
void convert_subtract(float *out, const float *x, const float *y, size_t n);
