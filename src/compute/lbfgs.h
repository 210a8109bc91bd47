/*
 * lbfgs - the minimum of a smooth function of many variables, from its values and gradients.
 *
 * Nothing here allocates or fails on its arguments; one call uses one thread, and calls are
 * independent.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* What is minimised, and how long. */
struct lbfgs {
    size_t n;        /* variables, at least 1 (asserted) */
    size_t memory;   /* steps whose curvature is remembered, at least 1 (asserted) */
    int evaluations; /* the most calls of `evaluate` */
    double enough;   /* ends when a step lowers the value by less than this share of it */
    /* Sets the value and gradient [n] at x [n]. False ends the search. */
    bool (*evaluate)(void *arg, const double *x, double *value, double *gradient);
    void *arg;
};

/* The doubles of scratch that lbfgs_minimise needs. */
size_t lbfgs_scratch(size_t n, size_t memory);

/*
 * Replaces x [n] by the best point found, and returns its value; NaN if evaluate ended before the
 * first. The function is not negative and may be 0 at its minimum: the first step is half of the
 * one that would reach 0 on a bowl. Limited-memory BFGS (Liu and Nocedal 1989; Nocedal and Wright,
 * Numerical Optimization, algorithm 7.4), steps cut back by quadratic interpolation until they
 * lower the value enough (Armijo). One fixed chain of operations.
 */
double lbfgs_minimise(const struct lbfgs *p, double *x, double *scratch);
