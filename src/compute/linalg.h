/*
 * linalg - the linear algebra of the converter, in double.
 *
 * Matrices are row-major. Every element of a result is one fixed chain of operations, so that
 * callers may cut work between rows; nothing is fused, so all processors compute the same bits.
 *
 * Nothing here allocates or fails on its arguments. Sizes are at least 1 (of products,
 * transposition and dot products at least 0), pointers not NULL, and outputs do not overlap inputs,
 * unless it says that they may. Numbers may be anything. Any threads may run these at once on
 * different outputs.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * c[i][j] += sum_t a[i * a_row + t * a_inner] * b[t][j] for the rows first <= i < end, added in
 * the order of t.
 */
struct linalg_product {
    double *c;       /* [end, columns]; rows before `first` stay as they are */
    size_t c_stride; /* elements from row to row; at least `columns` */
    const double *a; /* [end, inner] as its strides say */
    size_t a_row, a_inner;
    const double *b; /* [inner, columns] */
    size_t b_stride; /* at least `columns` */
    size_t inner, columns;
};
void linalg_add_product(const struct linalg_product *p, size_t first, size_t end);

/* Products of matrices whose rows follow one another without a gap: c [.., n] += a [.., k] b [k,
 * n], and c [m, n] += a [k, m]^T b [k, n]. */
static inline struct linalg_product linalg_product(double *c, const double *a, const double *b,
                                                   size_t k, size_t n)
{
    return (struct linalg_product){c, n, a, k, 1, b, n, k, n};
}

static inline struct linalg_product
linalg_product_turned(double *c, const double *a, const double *b, size_t m, size_t k, size_t n)
{
    return (struct linalg_product){c, n, a, 1, m, b, n, k, n};
}

/* Computes c [m, n] = a [m, k] b [k, n]. */
void linalg_multiply(double *c, const double *a, const double *b, size_t m, size_t k, size_t n);

/* Transposes a [m, n] to t [n, m]. */
void linalg_transpose(double *t, const double *a, size_t m, size_t n);

/* Sets a [n, n] to the identity. */
void linalg_identity(double *a, size_t n);

/* Copies [m, n] from one matrix to another; their rows are a stride apart. */
void linalg_copy(double *to, size_t to_stride, const double *from, size_t from_stride, size_t m,
                 size_t n);

/* Returns sum_i a[i] b[i] over n >= 0 elements, in interleaved partial sums. */
double linalg_dot(const double *a, const double *b, size_t n);

/* Adds a x to y [n]. */
void linalg_add_scaled(double *restrict y, double a, const double *restrict x, size_t n);

/* Returns sum_i a[i][i] of a [n, n]. */
double linalg_trace(const double *a, size_t n);

/*
 * Computes the lower triangular l [n, n] with l l^T = a + ridge I, ridge >= 0 (asserted), for a
 * symmetric positive semidefinite a [n, n]; l may be a, whose upper triangle alone is read. Where
 * the matrix is singular, to rounding, a column of l is zero. Returns the rank. Source:
 * right-looking outer-product Cholesky (Golub and Van Loan, Matrix Computations, section 4.2).
 */
int linalg_cholesky(double *l, const double *a, size_t n, double ridge);

/*
 * Replace b [n, m] by the solution x [n, m] of l x = b, or l^T x = b, for a lower triangular
 * l [n, n]; what is above its diagonal is not read. A zero column of l, as
 * linalg_cholesky leaves for a singular matrix, makes a zero row of x.
 */
void linalg_solve_lower(const double *l, size_t n, double *b, size_t m);
void linalg_solve_lower_transposed(const double *l, size_t n, double *b, size_t m);

/*
 * Computes the orthogonal q [n, n] that is nearest to m; of a singular m it is one of the nearest.
 * It is U V^T of m's singular value decomposition, for which trace(q^T m) is largest (the
 * orthogonal Procrustes problem), found by one-sided Jacobi rotations; scratch [2 * n * n].
 */
void linalg_nearest_orthogonal(double *q, const double *m, size_t n, double *scratch);

/* Returns the doubles of scratch that linalg_eigen needs, with eigenvectors or without. */
size_t linalg_eigen_scratch(size_t n, bool vectors);

/*
 * Computes the n eigenvalues of a symmetric a [n, n], which is destroyed, the largest first, and
 * the eigenvectors of the first n_vectors <= n of them as rows of `vectors` [n_vectors, n] (NULL if
 * n_vectors is 0), of length 1, the component of largest magnitude positive. False if the iteration
 * does not converge, as with numbers that are not finite. Uses Householder tridiagonalization and
 * implicitly shifted QL (Golub and Van Loan, sections 8.3.1 and 8.3.3): errors are relative to the
 * largest eigenvalue; 4 n^3 multiply-adds with vectors, n^3 without.
 */
bool linalg_eigen(double *a, size_t n, double *values, double *vectors, size_t n_vectors,
                  double *scratch);
