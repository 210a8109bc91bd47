/*
 * products - matrix products and sums in double, on all threads.
 */
#pragma once

#include "convert/state.h"

/* So many rows of a product: added to p.c; written to p.c; or written with a p.b [columns, inner]
 * that is transposed first, to c->scratch.square2. */
void convert_add_product(const struct converter *c, struct linalg_product p, size_t rows);
void convert_multiply(const struct converter *c, struct linalg_product p, size_t rows);
void convert_multiply_transposed(const struct converter *c, struct linalg_product p, size_t rows);

/* Rows a [n, a_columns] and b [n, b_columns] of floats, close together. */
struct convert_rows {
    const float *a, *b;
    size_t n, a_columns, b_columns;
};

/* sum [a_columns, b_columns] += a^T b, added up as floats in c->scratch.float_product first, which
 * is many times faster. */
void convert_add_gram(const struct converter *c, double *sum, struct convert_rows r);

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
