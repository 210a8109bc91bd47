/*
 * kernels_machine - loops that do nothing but load the machine, to measure it, in vector form
 * (private to the vector kernel objects).
 */
#pragma once

#include "compute/kernels_quant.h"

/* Chains that run at once: as many as the registers hold, 6 or all 12. Either covers the latency.
 */
#define CHAINS_AT_ONCE MIN(TILE_ACC, KERNEL_CHAINS)
_Static_assert(KERNEL_CHAINS % CHAINS_AT_ONCE == 0 && CHAINS_AT_ONCE % 3 == 0, "whole tiles");

static inline float vector_read(const float *x, size_t n)
{
    lanes acc[8];
    for (int a = 0; a < 8; a++)
        acc[a] = lanes_zero();
    size_t i = 0;
    for (; i + 8 * KERNEL_LANES <= n; i += 8 * KERNEL_LANES)
        UNROLLED (a, 8)
            acc[a] = lanes_add(acc[a], lanes_load(x + i + (size_t)a * KERNEL_LANES));
    float rest = 0;
    for (; i < n; i++)
        rest += x[i];
    for (int a = 1; a < 8; a++)
        acc[0] = lanes_add(acc[0], acc[a]);
    return lanes_sum(acc[0]) + rest;
}

/* Lanes differ, or a compiler would multiply one half for both. */
static inline float vector_fma(long rounds)
{
    float start[KERNEL_LANES];
    for (int l = 0; l < KERNEL_LANES; l++)
        start[l] = (float)l;
    lanes total = lanes_zero();
    const lanes half = lanes_all(0.5f), one = lanes_all(1.0f);
    for (int first = 0; first < KERNEL_CHAINS; first += CHAINS_AT_ONCE) {
        lanes acc[CHAINS_AT_ONCE];
        for (int a = 0; a < CHAINS_AT_ONCE; a++)
            acc[a] = lanes_add(lanes_load(start), lanes_all((float)(first + a)));
        for (long r = 0; r < rounds; r++)
            UNROLLED (a, CHAINS_AT_ONCE)
                acc[a] = lanes_fma(acc[a], half, one);
        for (int a = 0; a < CHAINS_AT_ONCE; a++)
            total = lanes_add(total, acc[a]);
    }
    return lanes_sum(total);
}

/*
 * A tile of 3 panels, with weights from memory that are others in every round: were a product the
 * same twice, a compiler would keep it. The dot product is that of Q4_0, of which no table has a
 * cheaper one.
 */
static inline float vector_dot(long rounds)
{
    uint8_t weights[12 * QUAD_BYTES];
    int32_t quads[CHAINS_AT_ONCE / 3];
    for (int i = 0; i < 12 * QUAD_BYTES; i++)
        weights[i] = (uint8_t)(i % 15);
    for (int j = 0; j < CHAINS_AT_ONCE / 3; j++)
        quads[j] = 0x01020304 + j;
    lanes total = lanes_zero();
    for (int first = 0; first < KERNEL_CHAINS; first += CHAINS_AT_ONCE) {
        ints acc[CHAINS_AT_ONCE];
        for (int a = 0; a < CHAINS_AT_ONCE; a++)
            acc[a] = ints_all(first + a);
#pragma GCC unroll 2 /* copies of registers between rounds cost gcc's loop a sixth */
        for (long r = 0; r < rounds; r++) {
            bytes w[3];
            UNROLLED (p, 3)
                w[p] = bytes_load(weights + (r % 4 * 3 + p) * QUAD_BYTES);
            UNROLLED (a, CHAINS_AT_ONCE)
                acc[a] = ints_dot_halves(acc[a], w[a % 3], quads[a / 3]);
        }
        for (int a = 0; a < CHAINS_AT_ONCE; a++)
            total = lanes_add(total, ints_to_lanes(acc[a]));
    }
    return lanes_sum(total);
}
