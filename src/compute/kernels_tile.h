/*
 * kernels_tile - register tiles of a matrix product: their size, the way from memory and, with the
 * epilogue, to it (private to the vector kernel objects).
 *
 * A tile is n_panels x n_tokens outputs of KERNEL_LANES rows each. Tile functions take both numbers
 * as constants and are inlined where they are used, so that the accumulators become registers.
 */
#ifndef DECODE_COMPUTE_KERNELS_TILE_H
#define DECODE_COMPUTE_KERNELS_TILE_H

#include "compute/lanes.h"

/* Of the largest tile. */
#define MAX_PANELS 4
#define MAX_TOKENS 12

/* Of Q8_0 the bare integers, as a cache stores them. */
ALWAYS_INLINE lanes load_element(const void *base, enum storage storage, size_t i)
{
    if (storage == STORAGE_Q8_0)
        return lanes_load_i8((const int8_t *)base + i);
    if (storage == STORAGE_F16)
        return lanes_load_f16((const uint16_t *)base + i);
    if (storage == STORAGE_BF16)
        return lanes_load_bf16((const uint16_t *)base + i);
    return lanes_load((const float *)base + i);
}

/* Bias, epilogue and store of one vector of outputs: rows of `panel`, token t. */
ALWAYS_INLINE void tile_finish(const struct matmul *m, int panel, int t, lanes s)
{
    const struct matrix *w = m->w;
    const int row = panel * KERNEL_LANES;
    const int n = w->n_out - row;
    float *y = m->y + (size_t)t * m->y_stride + row;
    if (w->bias)
        s = lanes_add(s, lanes_load_upto(w->bias + row, n));
    if (m->epilogue == EPILOGUE_ADD)
        s = lanes_add(lanes_load_upto(y, n), s);
    else if (m->epilogue == EPILOGUE_GELU)
        s = lanes_gelu(s);
    lanes_store_upto(y, s, n);
}

#endif
