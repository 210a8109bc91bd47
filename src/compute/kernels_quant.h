/*
 * kernels_quant - products with quantised weights, and the activations for them, in vector form
 * (private to the vector kernel objects).
 *
 * Within a block all is integer arithmetic, which is exact in any order; across blocks each
 * output is one chain of fused multiply-adds, as in kernels_scalar.c.
 */
#pragma once

#include "compute/kernels_check.h"
#include "compute/kernels_tile.h"

/* Rows of quantised activations, see quant_row_bytes. */
struct quant_rows {
    const unsigned char *base;
    size_t row_bytes;
    int n;
};

/* The four bytes at a place of row t: elements, or the scale or the sum of a block. */
ALWAYS_INLINE int32_t quant_quad(const struct quant_rows *x, int t, int at)
{
    int32_t quad;
    memcpy(&quad, x->base + t * x->row_bytes + at, sizeof quad);
    return quad;
}

ALWAYS_INLINE float quant_scale(const struct quant_rows *x, int t, int block)
{
    return bits_float((uint32_t)quant_quad(x, t, x->n + 4 * block));
}

ALWAYS_INLINE int32_t quant_sum(const struct quant_rows *x, int t, int block)
{
    return quant_quad(x, t, x->n + 4 * (x->n / QUANT_BLOCK + block));
}

/* Bytes of a block in a panel's row of elements. */
#define Q8_BLOCK_BYTES (QUANT_BLOCK * KERNEL_LANES)
#define Q4_BLOCK_BYTES (QUANT_BLOCK / 2 * KERNEL_LANES)
#define QUAD_BYTES     (4 * KERNEL_LANES)

/* The lines that a block asks for: from `line` on, so far apart. */
struct quant_ahead {
    const unsigned char *line;
    size_t stride;
};

/* How far ahead one token asks; farther gains nothing. */
#define QUANT_AHEAD_BYTES 2048

/* Returns the first panel's line to ask for: `ask`, or for one token a line behind `line`, which is
 * `left` bytes before the panel's end. */
ALWAYS_INLINE const unsigned char *quant_line_ahead(const unsigned char *line,
                                                    const unsigned char *ask, size_t panel_bytes,
                                                    size_t left, const int n_panels,
                                                    const int n_tokens)
{
    if (n_tokens > 1)
        return ask;
    return line + QUANT_AHEAD_BYTES +
           (left <= QUANT_AHEAD_BYTES ? (n_panels - 1) * panel_bytes : 0);
}

/* The integer dot products of one block: sums[panel][token]. Each quad asks for one line, because
 * many at once stop the loads behind them. One token of Q8_0 loses by asking. */
ALWAYS_INLINE void quant_block(const struct quant_rows *x, enum storage storage,
                               const uint8_t *elements, size_t panel_bytes,
                               struct quant_ahead ahead, int block, int t, const int n_panels,
                               const int n_tokens, ints sums[MAX_PANELS][MAX_TOKENS])
{
    UNROLLED (j, n_tokens) {
        const int32_t sum_x = quant_sum(x, t + j, block);
        UNROLLED (p, n_panels)
            sums[p][j] =
                storage == STORAGE_Q8_0 ? ints_start_offset(sum_x) : ints_start_halves(sum_x);
    }
    const int n_quads = storage == STORAGE_Q8_0 ? 8 : 4;
    UNROLLED (v, n_quads) {
        bytes w[MAX_PANELS];
        if (n_tokens > 1 || storage == STORAGE_Q4_0)
            tile_prefetch(ahead.line + v * ahead.stride, panel_bytes, n_panels);
        UNROLLED (p, n_panels)
            w[p] = bytes_load(elements + p * panel_bytes + (size_t)v * QUAD_BYTES);
        UNROLLED (j, n_tokens) {
            const int first = block * QUANT_BLOCK + 4 * v;
            const int32_t quad = quant_quad(x, t + j, first);
            if (storage == STORAGE_Q8_0) {
                UNROLLED (p, n_panels)
                    sums[p][j] = ints_dot_offset(sums[p][j], w[p], quad);
            } else {
                const int32_t upper = quant_quad(x, t + j, first + QUANT_BLOCK / 2);
                UNROLLED (p, n_panels) {
                    sums[p][j] = ints_dot_halves(sums[p][j], bytes_low_halves(w[p]), quad);
                    sums[p][j] = ints_dot_halves(sums[p][j], bytes_high_halves(w[p]), upper);
                }
            }
        }
    }
}

/* A tile of quantised weights. */
ALWAYS_INLINE void quant_tile(const struct matmul *m, enum storage storage,
                              const struct matmul_segment *segment, const int n_panels,
                              const int n_tokens)
{
    const int n_in = m->w->n_in;
    const size_t panel_bytes = matrix_panel_bytes(n_in, storage);
    const size_t block_bytes = storage == STORAGE_Q8_0 ? Q8_BLOCK_BYTES : Q4_BLOCK_BYTES;
    const unsigned char *base = (const unsigned char *)m->w->panels + segment->panel * panel_bytes;
    const uint8_t *elements = base + matrix_scales_bytes(n_in);
    const struct quant_rows x = {m->quants, quant_row_bytes(n_in), n_in};
    const int t = segment->token, end = segment->end / QUANT_BLOCK;
    lanes acc[MAX_PANELS][MAX_TOKENS];
    const unsigned char *ask =
        elements + (size_t)(segment->begin / QUANT_BLOCK) * block_bytes + segment->ahead;
    tile_begin(segment, n_panels, n_tokens, acc);
    for (int block = segment->begin / QUANT_BLOCK; block < end; block++) {
        const uint8_t *elements_of = elements + block * block_bytes;
        const struct quant_ahead ahead = {quant_line_ahead(elements_of, ask, panel_bytes,
                                                           (end - block) * block_bytes, n_panels,
                                                           n_tokens),
                                          n_tokens > 1 ? segment->stride : QUAD_BYTES};
        ints sums[MAX_PANELS][MAX_TOKENS];
        quant_block(&x, storage, elements_of, panel_bytes, ahead, block, t, n_panels, n_tokens,
                    sums);
        ask += block_bytes / QUAD_BYTES * segment->stride;
        UNROLLED (p, n_panels) {
            const lanes scales =
                lanes_load_f16((const uint16_t *)(const void *)(base + p * panel_bytes) +
                               (size_t)block * KERNEL_LANES);
            UNROLLED (j, n_tokens) {
                const lanes scale = lanes_mul(scales, lanes_all(quant_scale(&x, t + j, block)));
                const ints sum = storage == STORAGE_Q8_0 ? sums[p][j] : ints_end_halves(sums[p][j]);
                acc[p][j] = lanes_fma(ints_to_lanes(sum), scale, acc[p][j]);
            }
        }
    }
    tile_end(segment, n_panels, n_tokens, acc);
}

static inline void vector_quantize(void *rows, const float *x, size_t x_stride, int n_tokens, int n)
{
    quantize_check(rows, x, x_stride, n_tokens, n);
    const int n_blocks = n / QUANT_BLOCK;
    for (int t = 0; t < n_tokens; t++, x += x_stride) {
        unsigned char *row = (unsigned char *)rows + t * quant_row_bytes(n);
        int8_t *q = (int8_t *)row;
        float *scales = (float *)(void *)(row + n);
        int32_t *sums = (int32_t *)(void *)(scales + n_blocks);
        for (int block = 0; block < n_blocks; block++, q += QUANT_BLOCK) {
            const lanes a = lanes_load(x + block * QUANT_BLOCK);
            const lanes b = lanes_load(x + block * QUANT_BLOCK + KERNEL_LANES);
            const float max = bits_float(lanes_largest_bits(a, b));
            if (!(max >= QUANT_LEAST && max < INFINITY)) {
                scales[block] = max < QUANT_LEAST ? 0.0f : NAN;
                sums[block] = 0;
                memset(q, 0, QUANT_BLOCK);
                continue;
            }
            scales[block] = max / 127.0f;
            const lanes inverse = lanes_all(127.0f / max);
            const ints low = lanes_round(lanes_mul(a, inverse));
            const ints high = lanes_round(lanes_mul(b, inverse));
            ints_store_i8(q, low);
            ints_store_i8(q + KERNEL_LANES, high);
            sums[block] = ints_sum(low, high);
        }
    }
}
