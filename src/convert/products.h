/*
 * products - matrix products in double, on all threads.
 */
#ifndef DECODE_CONVERT_PRODUCTS_H
#define DECODE_CONVERT_PRODUCTS_H

#include "compute/pool.h"

/* c [m, n] = a [m, k] b [k, n], and = a [m, k] b [n, k]^T through `scratch` [k, n]. */
void convert_multiply(struct pool *pool, double *c, const double *a, const double *b, int m, int k,
                      int n);
void convert_multiply_transposed(struct pool *pool, double *c, const double *a, const double *b,
                                 int m, int k, int n, double *scratch);

/* c [m, columns] += a^T b for a [n, m] and b [n, columns]. */
void convert_add_outer(struct pool *pool, double *c, const double *a, const double *b, int n, int m,
                       int columns);

#endif
