/*
 * kernels_tile - register tiles of a matrix product: their size and the way from memory
 * (private to the vector kernel objects).
 *
 * A tile is n_panels x n_tokens outputs of KERNEL_LANES rows each. Tile functions take both numbers
 * as constants and are inlined where they are used, so that the accumulators become registers.
 * Sizes of tiles are the instruction set's, which has
 *   TILE_ACC      accumulators (lanes) of a tile
 *   TILE_TOKENS   tokens of a product's widest tile, at most MAX_TOKENS
 *   HALVES_ALONE  tokens up to which a single pass over F16 or BF16 does not ask for lines
 *   TILE_HEADS    query heads that one pass over keys and values serves (see kernels_attend.h)
 *   QUANT_ACC, QUANT_TOKENS  the first two for quantised weights, whose tiles need integer
 *                 accumulators, too
 */
#pragma once

#include "compute/lanes.h"

/* The sides of the largest tile. */
#define MAX_PANELS 4
#define MAX_TOKENS 12

#if defined(__AVX512F__)
#define TILE_TOKENS  12
#define TILE_ACC     24
#define HALVES_ALONE 0
#define TILE_HEADS   12
#define QUANT_TOKENS 6
#define QUANT_ACC    12
#elif defined(__AVX2__)
#define TILE_TOKENS  6
#define TILE_ACC     6
#define HALVES_ALONE 1 /* a step takes a tenth less */
#define TILE_HEADS   6
#define QUANT_TOKENS 4
#define QUANT_ACC    4
#else
#define TILE_TOKENS  6
#define TILE_ACC     6
#define HALVES_ALONE 0
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
    /* Bytes from a panel's first line of the segment to the first line that this pass asks for, and
     * from there to the next, while 64 are read. */
    size_t ahead, stride;
    lanes *sums; /* [n_panels, n_tokens] over the columns before `begin`, then before `end` */
};

/* How far ahead one token asks; farther gains nothing. */
#define AHEAD_BYTES 2048

/* Returns the first panel's line to ask for: `ask`, or for one token a line behind `line`, which is
 * `left` bytes before the panel's end. */
ALWAYS_INLINE const unsigned char *tile_ahead(const unsigned char *line, const unsigned char *ask,
                                              size_t panel_bytes, size_t left, const int n_panels,
                                              const int n_tokens)
{
    if (n_tokens > 1)
        return ask;
    return line + AHEAD_BYTES + (left <= AHEAD_BYTES ? (n_panels - 1) * panel_bytes : 0);
}

/* Asks for the same line of each panel. */
ALWAYS_INLINE void tile_prefetch(const unsigned char *line, size_t panel_bytes, const int n_panels)
{
    UNROLLED (p, n_panels)
        __builtin_prefetch(line + p * panel_bytes);
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
