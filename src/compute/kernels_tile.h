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
#define MAX_TOKENS 6

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

/* f of the sums of a feed-forward network. A call, because of the code that it would be in every
 * tile. */
static __attribute__((noinline)) lanes tile_activate(enum epilogue epilogue, lanes s)
{
    switch (epilogue) {
    case EPILOGUE_GELU:
        return lanes_gelu(s);
    case EPILOGUE_GELU_ERF:
        return lanes_gelu_erf(s);
    case EPILOGUE_RELU:
        return lanes_relu(s);
    default:
        return lanes_silu(s);
    }
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
    else if (m->epilogue == EPILOGUE_MUL)
        s = lanes_mul(lanes_load_upto(y, n), s);
    else if (m->epilogue != EPILOGUE_STORE)
        s = tile_activate(m->epilogue, s);
    lanes_store_upto(y, s, n);
}

/*
 * Part of a product: n_panels x n_tokens sums, both constants where tiles are inlined, from `panel`
 * and `token` on over the columns [begin, end).
 *
 * The arithmetic of several tokens fills the processor's window before it has met the next loads,
 * so that the time of both would be added; so tiles ask for lines ahead of those they read.
 */
struct matmul_part {
    int panel, token;
    int begin, end;
    size_t ahead[MAX_PANELS]; /* bytes from each panel's line to the one asked for */
    lanes
        *sums; /* [n_panels, n_tokens] of the columns before `begin`; then of those before `end` */
};

/* How far ahead one token asks, which gains nothing by asking farther. */
#define AHEAD_BYTES 2048

/* Asks for the lines ahead of the panels', of which `line` is the first panel's, `left` bytes
 * before the end. */
ALWAYS_INLINE void tile_prefetch(const struct matmul_part *part, const unsigned char *line,
                                 size_t panel_bytes, size_t left, const int n_panels,
                                 const int n_tokens)
{
    if (n_tokens == 1)
        line +=
            left <= AHEAD_BYTES ? (size_t)(n_panels - 1) * panel_bytes + AHEAD_BYTES : AHEAD_BYTES;
#pragma GCC unroll 4
    for (int p = 0; p < n_panels; p++)
        __builtin_prefetch(line + (size_t)p * panel_bytes + (n_tokens == 1 ? 0 : part->ahead[p]));
}

ALWAYS_INLINE void tile_begin(const struct matmul_part *part, const int n_panels,
                              const int n_tokens, lanes acc[MAX_PANELS][MAX_TOKENS])
{
    if (part->begin == 0) {
#pragma GCC unroll 12
        for (int p = 0; p < n_panels; p++)
#pragma GCC unroll 12
            for (int j = 0; j < n_tokens; j++)
                acc[p][j] = lanes_zero();
    } else {
#pragma GCC unroll 12
        for (int p = 0; p < n_panels; p++)
#pragma GCC unroll 12
            for (int j = 0; j < n_tokens; j++)
                acc[p][j] = part->sums[p * n_tokens + j];
    }
}

ALWAYS_INLINE void tile_end(const struct matmul_part *part, const int n_panels, const int n_tokens,
                            lanes acc[MAX_PANELS][MAX_TOKENS])
{
#pragma GCC unroll 12
    for (int p = 0; p < n_panels; p++)
#pragma GCC unroll 12
        for (int j = 0; j < n_tokens; j++)
            part->sums[p * n_tokens + j] = acc[p][j];
}

/* The epilogue of sums [n_panels, n_tokens]. A call, because it would be most of a tile's code. */
static __attribute__((noinline)) void tile_finish_all(const struct matmul *m, int panel, int t,
                                                      int n_panels, int n_tokens, const lanes *sums)
{
    for (int p = 0; p < n_panels; p++)
        for (int j = 0; j < n_tokens; j++)
            tile_finish(m, panel + p, t + j, *sums++);
}

#endif
