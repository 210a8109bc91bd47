/*
 * lbfgs - the minimum of a smooth function of many variables, from its values and gradients.
 */
#ifndef DECODE_COMPUTE_LBFGS_H
#define DECODE_COMPUTE_LBFGS_H

#include <stdbool.h>
#include <stddef.h>

struct lbfgs {
    size_t n;        /* variables, at least 1 (asserted) */
    int memory;      /* steps whose curvature is remembered, at least 1 (asserted) */
    int evaluations; /* at most */
    /* The value and gradient [n] at x [n]. False: end. */
    bool (*evaluate)(void *arg, const double *x, double *value, double *gradient);
    void *arg;
};

/* Doubles of scratch. */
size_t lbfgs_scratch(size_t n, int memory);

/*
 * Replaces x [n] by the best point found, and returns its value; NaN if evaluate ended before the
 * first. The function is not negative and may be 0 at its minimum: the first step is half of the
 * one that would reach 0 on a bowl. Limited-memory BFGS (Liu and Nocedal 1989; Nocedal and Wright,
 * Numerical Optimization, algorithm 7.4), steps cut back by quadratic interpolation until they
 * lower the value enough (Armijo). One fixed chain of operations.
 */
double lbfgs_minimise(const struct lbfgs *p, double *x, double *scratch);

#endif
