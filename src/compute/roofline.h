/*
 * roofline - how fast this machine reads memory and multiplies, measured.
 */
#pragma once

#include "compute/kernels.h"
#include "compute/pool.h"

/* The most that some threads of a machine do in a second. */
struct roofline {
    double bytes_per_s;     /* read from where so many bytes lie */
    double fma_flops_per_s; /* on floating-point numbers */
    double dot_flops_per_s; /* on bytes, in the integer dot products of quantised weights */
};

/* Floats of memory are whole lines of so many: a page. */
#define ROOFLINE_LINE 1024

/* Writes n floats, so that the memory is there to be read. Each of the pool's threads (NULL: one)
 * writes a part. */
void roofline_fill(struct pool *pool, float *data, size_t n);

/* Each of the following measures, for `seconds` at most but three samples at least, until three
 * samples agree. */

/* The best rate in bytes a second at which the pool's threads together read n floats over and over,
 * each its own part. */
double roofline_read(const struct kernels *k, struct pool *pool, float *data, size_t n,
                     double seconds);

/* The best rates of operations a second (two a multiply-add) in registers. */
double roofline_fma(const struct kernels *k, struct pool *pool, double seconds);
double roofline_dot(const struct kernels *k, struct pool *pool, double seconds);
