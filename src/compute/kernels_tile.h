/*
 * kernels_tile - register tiles of a matrix product: their size and the way from memory
 * (private to the vector kernel objects).
 *
 * A tile is n_panels x n_tokens outputs of KERNEL_LANES rows each. Tile functions take both numbers
 * as constants and are inlined where they are used, so that the accumulators become registers.
 * Sizes of tiles are the instruction set's, which has
 *   TILE_ACC      accumulators (lanes) of a tile
 *   TILE_TOKENS   tokens of a product's widest tile, at most MAX_TOKENS
 *   TILE_HEADS    query heads that one pass over keys and values serves (see kernels_attend.h)
 *   QUANT_ACC, QUANT_TOKENS  the first two for quantised weights, whose tiles need integer
 *                 accumulators, too
 */
#pragma once

#include "compute/lanes.h"

/* The sides of the largest tile. */
#define MAX_PANELS 4
#define MAX_TOKENS 6

#if defined(__AVX512F__)
#define TILE_TOKENS  6
#define TILE_ACC     24
#define TILE_HEADS   12
#define QUANT_TOKENS 6
#define QUANT_ACC    12
#elif defined(__AVX2__)
#define TILE_TOKENS  6
#define TILE_ACC     6
#define TILE_HEADS   6
#define QUANT_TOKENS 4
#define QUANT_ACC    4
#else
#define TILE_TOKENS  6
#define TILE_ACC     6
#define TILE_HEADS   4
#define QUANT_TOKENS 2
#define QUANT_ACC    2
#endif

/* An instruction set's attention has an object of its own, so that compilers work on both at once:
 * `attend` of struct kernels. */
void OF_SET(attend)(const struct attend *a);

/* Element i of a row of F32, F16 or BF16 and those that follow it, widened. */
ALWAYS_INLINE lanes load_element(const void *base, enum storage storage, size_t i)
{
    if (storage == STORAGE_F16)
        return lanes_load_f16((const uint16_t *)base + i);
    if (storage == STORAGE_BF16)
        return lanes_load_bf16((const uint16_t *)base + i);
    return lanes_load((const float *)base + i);
}

/*
 * Part of a product: n_panels x n_tokens sums, from `panel` and `token` on, over the columns
 * [begin, end). Tiles ask for lines ahead of those they read: the arithmetic of several tokens
 * fills the processor's window before it meets the next loads, and the times of both would be
 * added.
 */
struct matmul_segment {
    int panel, token;
    int begin, end;
    /* This pass asks for a line for each panel: the first so many bytes ahead, the next so far
     * behind it once 64 of each panel are read. Quantised panels' lie as far apart as they do, the
     * others' so many bytes. */
    size_t ahead, stride, apart;
    lanes *sums; /* [n_panels, n_tokens] over the columns before `begin`, then before `end` */
};

/* Asks for n lines, so far apart. */
ALWAYS_INLINE void tile_prefetch(const unsigned char *line, size_t apart, const int n)
{
    UNROLLED (i, n)
        __builtin_prefetch(line + i * apart);
}

ALWAYS_INLINE void tile_begin(const struct matmul_segment *segment, const int n_panels,
                              const int n_tokens, lanes acc[MAX_PANELS][MAX_TOKENS])
{
    if (segment->begin == 0) {
        UNROLLED (p, n_panels)
            UNROLLED (j, n_tokens)
                acc[p][j] = lanes_zero();
    } else {
        UNROLLED (p, n_panels)
            UNROLLED (j, n_tokens)
                acc[p][j] = segment->sums[p * n_tokens + j];
    }
}

ALWAYS_INLINE void tile_end(const struct matmul_segment *segment, const int n_panels,
                            const int n_tokens, lanes acc[MAX_PANELS][MAX_TOKENS])
{
    UNROLLED (p, n_panels)
        UNROLLED (j, n_tokens)
            segment->sums[p * n_tokens + j] = acc[p][j];
}
