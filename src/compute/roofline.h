/*
 * roofline - how fast this machine reads memory and multiplies, measured.
 */
#pragma once

#include "base/status.h"
#include "compute/kernels.h"
#include "compute/pool.h"

/* The most that some threads of a machine do in a second. */
struct roofline {
    double bytes_per_s;     /* read from where so many bytes lie */
    double fma_flops_per_s; /* on floating-point numbers */
    double dot_flops_per_s; /* on bytes, in the integer dot products of quantised weights */
};

/* Measures for about `seconds` the best rate at which the pool's threads together read a buffer of
 * `bytes` over and over, each its own part. STATUS_NO_MEMORY if the buffer cannot be had. */
enum status roofline_read(const struct kernels *k, struct pool *pool, size_t bytes, double seconds,
                          double *bytes_per_s, struct err *e);

/* Measure the best rates of operations per second (two a multiply-add) in registers. */
double roofline_fma(const struct kernels *k, struct pool *pool, double seconds);
double roofline_dot(const struct kernels *k, struct pool *pool, double seconds);
