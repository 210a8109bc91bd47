/*
 * lanes_scalar - lanes in plain C: what each operation means, lane by lane (included by
 * lanes.h where LANES_SCALAR is defined).
 */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    float lane[KERNEL_LANES];
} lanes;

/* A function that makes a new value lane by lane: its parameters, and the expression for lane l. */
#define LANES_OF(name, parameters, expression)                                                     \
    static inline lanes name parameters                                                            \
    {                                                                                              \
        lanes out;                                                                                 \
        for (int l = 0; l < KERNEL_LANES; l++)                                                     \
            out.lane[l] = (expression);                                                            \
        return out;                                                                                \
    }

LANES_OF(lanes_all, (float x), x)
LANES_OF(lanes_load, (const float *p), p[l])
LANES_OF(lanes_add, (lanes a, lanes b), a.lane[l] + b.lane[l])
LANES_OF(lanes_sub, (lanes a, lanes b), a.lane[l] - b.lane[l])
LANES_OF(lanes_mul, (lanes a, lanes b), a.lane[l] * b.lane[l])
LANES_OF(lanes_div, (lanes a, lanes b), a.lane[l] / b.lane[l])
LANES_OF(lanes_sqrt, (lanes a), sqrtf(a.lane[l]))

/* The larger and the smaller of two; either is b if one of them is NaN. */
LANES_OF(lanes_max, (lanes a, lanes b), a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l])
LANES_OF(lanes_min, (lanes a, lanes b), a.lane[l] < b.lane[l] ? a.lane[l] : b.lane[l])

/* a * b + c, rounded once. */
LANES_OF(lanes_fma, (lanes a, lanes b, lanes c), fmaf(a.lane[l], b.lane[l], c.lane[l]))

LANES_OF(lanes_power_of_two, (lanes z), math_power_of_two(z.lane[l]))

/* 0 where x < limit, else a. */
LANES_OF(lanes_zero_below, (lanes a, lanes x, float limit), x.lane[l] < limit ? 0.0f : a.lane[l])

static inline void lanes_store(float *p, lanes a)
{
    memcpy(p, a.lane, sizeof a.lane);
}

/* The tree of the scalar definition: 8 + 8, 4 + 4, 2 + 2, 1 + 1. */
static inline float lanes_sum(lanes a)
{
    for (int width = KERNEL_LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            a.lane[l] += a.lane[l + width];
    return a.lane[0];
}

static inline float lanes_largest(lanes a)
{
    for (int width = KERNEL_LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            a.lane[l] = a.lane[l] > a.lane[l + width] ? a.lane[l] : a.lane[l + width];
    return a.lane[0];
}
