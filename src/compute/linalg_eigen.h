/*
 * linalg_eigen - eigenvalues and eigenvectors of symmetric matrices, under the contract of
 * linalg.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Doubles of scratch that linalg_eigen needs, with eigenvectors or without. */
size_t linalg_eigen_scratch(size_t n, bool vectors);

/*
 * Eigenvalues of a symmetric a [n, n], which is destroyed: all n of them to `values`, the largest
 * first, and the eigenvectors of the first n_vectors <= n as rows of `vectors` [n_vectors, n] (NULL
 * if n_vectors is 0), of length 1, the component of largest magnitude positive. False if the
 * iteration does not converge, as with numbers that are not finite. Householder tridiagonalization
 * and implicitly shifted QL (Golub and Van Loan, sections 8.3.1 and 8.3.3): of errors relative to
 * the largest eigenvalue, about n^3 * 4 multiply-adds with vectors, n^3 without.
 */
bool linalg_eigen(double *a, size_t n, double *values, double *vectors, size_t n_vectors,
                  double *scratch);
