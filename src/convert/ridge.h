/*
 * ridge - linear least squares over rows that come window by window.
 */
#ifndef DECODE_CONVERT_RIDGE_H
#define DECODE_CONVERT_RIDGE_H

#include <stdbool.h>

#include "convert/products.h"

struct convert_ridge {
    int m, columns;        /* of a row's features f, and of its targets t */
    double *features;      /* [m, m] sum f^T f */
    double *targets;       /* [m, columns] sum f^T t */
    double *f_sum, *t_sum; /* [m], [columns] */
    double n;              /* rows */
};

/* Begins with no rows; there is memory for these sizes. */
void convert_ridge_begin(struct convert_ridge *r, int m, int columns);

/* Rows f [n, m] and t [n, columns]; s->part is [m, the larger of m and columns]. */
void convert_ridge_add(struct convert_ridge *r, const struct convert_summing *s, const float *f,
                       const float *t, int n);

/*
 * The solution of t = f w + b, with w [m, columns] in targets and b in t_sum: least squares that
 * pull w towards `prior` [m, columns] (NULL: the identity) as REFIT_RIDGE times the mean square of
 * the features would; not centred: b = 0. False if the features are constant; then nothing is
 * solved. Destroys the sums.
 */
bool convert_ridge_solve(struct convert_ridge *r, const double *prior, bool centred);

#endif
