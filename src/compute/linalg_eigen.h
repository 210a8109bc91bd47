/*
 * linalg_eigen - eigenvalues and eigenvectors of symmetric matrices, under the contract of
 * linalg.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

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
