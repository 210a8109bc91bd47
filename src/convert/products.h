/*
 * products - matrix products and sums in double, on all threads.
 */
#pragma once

#include "convert/state.h"

/* So many rows of a product: added to p.c, or written to it. */
void convert_add_product(const struct converter *c, struct linalg_product p, size_t rows);
void convert_multiply(const struct converter *c, struct linalg_product p, size_t rows);

/* Rows a [n, a_columns] and b [n, b_columns] of floats, close together. */
struct convert_rows {
    const float *a, *b;
    size_t n, a_columns, b_columns;
};

/* sum [a_columns, b_columns] += a^T b, added up as floats in c->scratch.float_product first, which
 * is many times faster. */
void convert_add_gram(const struct converter *c, double *sum, struct convert_rows r);

/* From sums [m, columns] of a^T b over n rows, and the rows' sums a_sum [m] and b_sum [columns], to
 * covariances; where a_sum is NULL, to second moments. */
void convert_sums_to_moments(double *sums, const double *a_sum, const double *b_sum, double n,
                             size_t m, size_t columns);

/* sum [d] += the rows of x [n, d]. */
void convert_add_rows(double *sum, const float *x, size_t n, size_t d);
