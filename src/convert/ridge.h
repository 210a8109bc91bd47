/*
 * ridge - least squares over rows that come window by window, each target with the ridge that
 * does best on the windows held out.
 */
#pragma once

#include "convert/calibrate.h"

/* Sums over the rows, each of features f [m] and of targets t [columns]. */
struct convert_sums {
    double *features;      /* [m, m] sum f^T f */
    double *targets;       /* [m, columns] sum f^T t */
    double *f_sum, *t_sum; /* [m], [columns] */
    double n;              /* rows */
};

struct convert_ridge {
    size_t m, columns;
    struct convert_sums sums[2]; /* of the windows fitted to, and of those held out */
    double *root;                /* [m, m] scratch */
    double *w, *b;               /* [m, columns], [columns] the solution */
    double *error, *trial_error; /* [columns] errors on the windows held out: its own, and
                                    those of a ridge that is tried */
};

/* Memory for at most [widest] features and [d] targets. */
void convert_ridge_take(struct converter *c, struct convert_ridge *r);

/* Begins sums of m features and so many targets; adds a window's rows f [n, m] and t [n, columns],
 * which are weighed in place. */
void convert_ridge_begin(struct convert_ridge *r, size_t m, size_t columns);
void convert_ridge_add(struct converter *c, struct convert_ridge *r, float *f, float *t,
                       const struct convert_window *win);

/* Solves t = f w + b (b is 0 if not centred); w is pulled towards `prior` [m, columns] (NULL: the
 * identity), as much as does best on the windows held out. Destroys the sums. False, with nothing
 * solved, if the features are constant. */
bool convert_ridge_solve(struct converter *c, struct convert_ridge *r, const double *prior,
                         bool centred);
