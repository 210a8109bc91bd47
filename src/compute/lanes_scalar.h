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

/* The lanes of a new value `out`, each from the expression, which may use the index `l`. */
#define EACH_LANE(expression)                                                                      \
    lanes out;                                                                                     \
    for (int l = 0; l < KERNEL_LANES; l++)                                                         \
        out.lane[l] = (expression);                                                                \
    return out

static inline lanes lanes_all(float x)
{
    EACH_LANE(x);
}

static inline lanes lanes_zero(void)
{
    return lanes_all(0.0f);
}

static inline lanes lanes_load(const float *p)
{
    EACH_LANE(p[l]);
}

static inline void lanes_store(float *p, lanes a)
{
    memcpy(p, a.lane, sizeof a.lane);
}

static inline lanes lanes_add(lanes a, lanes b)
{
    EACH_LANE(a.lane[l] + b.lane[l]);
}

static inline lanes lanes_sub(lanes a, lanes b)
{
    EACH_LANE(a.lane[l] - b.lane[l]);
}

static inline lanes lanes_mul(lanes a, lanes b)
{
    EACH_LANE(a.lane[l] * b.lane[l]);
}

static inline lanes lanes_div(lanes a, lanes b)
{
    EACH_LANE(a.lane[l] / b.lane[l]);
}

static inline lanes lanes_sqrt(lanes a)
{
    EACH_LANE(sqrtf(a.lane[l]));
}

/* a > b ? a : b, which is b if either is NaN. */
static inline lanes lanes_max(lanes a, lanes b)
{
    EACH_LANE(a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l]);
}

/* a < b ? a : b, which is b if either is NaN. */
static inline lanes lanes_min(lanes a, lanes b)
{
    EACH_LANE(a.lane[l] < b.lane[l] ? a.lane[l] : b.lane[l]);
}

/* a * b + c, rounded once. */
static inline lanes lanes_fma(lanes a, lanes b, lanes c)
{
    EACH_LANE(fmaf(a.lane[l], b.lane[l], c.lane[l]));
}

/* Neighbours change places: lane l ^ 1. */
static inline lanes lanes_swap(lanes a)
{
    EACH_LANE(a.lane[l ^ 1]);
}

/* See math_power_of_two. */
static inline lanes lanes_power_of_two(lanes z)
{
    EACH_LANE(math_power_of_two(z.lane[l]));
}

/* 0 where x < limit, else a. */
static inline lanes lanes_zero_below(lanes a, lanes x, float limit)
{
    EACH_LANE(x.lane[l] < limit ? 0.0f : a.lane[l]);
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

#undef EACH_LANE
