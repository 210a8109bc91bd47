/*
 * kernels_matmul - the matrix product in vector form (private to the vector kernel objects).
 *
 * Four panels are read at once, where elements are not quantised a group; where the registers hold
 * fewer, the panels of a group are read in tiles, one after the other. Tokens are cut into passes
 * as equal as can be, each as wide as the registers are, so that no number of tokens costs much
 * more than the one before it. With several passes or tiles the columns are cut, too: into segments
 * that stay in the cache until all passes are over them. So each weight comes from memory once, in
 * order.
 */
#pragma once

#include "compute/kernels_check.h"
#include "compute/kernels_quant.h"
#include "compute/kernels_tile.h"

/* Adds a column of the panels, which lie side by side from `w` on, times an element of the tokens:
 * *x is the first token's. */
ALWAYS_INLINE void matmul_column(const unsigned char *w, enum storage storage, const float *x,
                                 size_t x_stride, const int n_panels, const int n_tokens,
                                 lanes acc[MAX_PANELS][MAX_TOKENS])
{
    lanes wp[MAX_PANELS];
    UNROLLED (p, n_panels)
        wp[p] = load_element(w, storage, p * KERNEL_LANES);
    UNROLLED (j, n_tokens) {
        const lanes xj = lanes_all(x[j * x_stride]);
        UNROLLED (p, n_panels)
            acc[p][j] = lanes_fma(wp[p], xj, acc[p][j]);
    }
}

/* How far ahead a single pass over F16 or BF16 asks: a step of a few tokens takes a twentieth less
 * than with 1 KiB. */
#define AHEAD_BYTES 8192

/* A tile of weights that are not quantised. In a whole group, as most are, the columns' distance is
 * a constant: AVX2's tiles gain a tenth. */
ALWAYS_INLINE void matmul_tile(const struct matmul *m, enum storage storage,
                               const struct matmul_segment *segment, const bool whole,
                               const int n_panels, const int n_tokens)
{
    const size_t element = storage == STORAGE_F32 ? sizeof(float) : sizeof(uint16_t);
    const struct panel_place at = matrix_place(m->w->n_out, m->w->n_in, segment->panel);
    const size_t column_bytes = (whole ? PANEL_GROUP * KERNEL_LANES : at.column) * element;
    const size_t stride = m->x_stride;
    const int columns = storage == STORAGE_F32 ? 1 : 2; /* of a panel to a line of the cache */
    const unsigned char *w =
        (const unsigned char *)m->w->panels + at.first * element + segment->begin * column_bytes;
    const unsigned char *ask = w + segment->ahead;
    const float *x = m->x + segment->token * stride + segment->begin;
    lanes acc[MAX_PANELS][MAX_TOKENS];
    tile_begin(segment, n_panels, n_tokens, acc);
    int left = segment->end - segment->begin;
    for (; left >= columns; left -= columns, ask += segment->stride) {
        if (n_tokens > 1)
            tile_prefetch(ask, segment->apart, n_panels);
#pragma GCC unroll 2
        for (int c = 0; c < columns; c++, w += column_bytes, x++)
            matmul_column(w, storage, x, stride, n_panels, n_tokens, acc);
    }
    for (; left > 0; left--, w += column_bytes, x++)
        matmul_column(w, storage, x, stride, n_panels, n_tokens, acc);
    tile_end(segment, n_panels, n_tokens, acc);
}

/* --- results --------------------------------------------------------------------------------- */

/* f of a feed-forward network's sums: each is a long chain, and the loop runs several at once. */
#define ACTIVATION(epilogue, f)                                                                    \
    case epilogue:                                                                                 \
        for (int i = 0; i < n; i++)                                                                \
            sums[i] = f(sums[i]);                                                                  \
        break

static inline void tile_activate(enum epilogue epilogue, lanes *sums, int n)
{
    switch (epilogue) {
        ACTIVATION(EPILOGUE_GELU, lanes_gelu);
        ACTIVATION(EPILOGUE_GELU_ERF, lanes_gelu_erf);
        ACTIVATION(EPILOGUE_RELU, lanes_relu);
        ACTIVATION(EPILOGUE_SILU, lanes_silu);
    default:
        break;
    }
}

/* Bias, epilogue and store of sums [n_panels, n_tokens], rows of `panel` and token t on. A call,
 * because it would be most of a tile's code. */
static __attribute__((noinline)) void tile_finish(const struct matmul *m, int panel, int t,
                                                  int n_panels, int n_tokens, lanes *sums)
{
    const struct matrix *w = m->w;
    if (w->bias) {
        for (int p = 0; p < n_panels; p++) {
            const int row = (panel + p) * KERNEL_LANES;
            const lanes bias = lanes_load_upto(w->bias + row, w->n_out - row);
            for (int j = 0; j < n_tokens; j++)
                sums[p * n_tokens + j] = lanes_add(sums[p * n_tokens + j], bias);
        }
    }
    tile_activate(m->epilogue, sums, n_panels * n_tokens);
    for (int p = 0; p < n_panels; p++) {
        const int row = (panel + p) * KERNEL_LANES, n = w->n_out - row;
        float *y = m->y + t * m->y_stride + row;
        for (int j = 0; j < n_tokens; j++, y += m->y_stride, sums++) {
            if (m->epilogue == EPILOGUE_ADD)
                *sums = lanes_add(lanes_load_upto(y, n), *sums);
            else if (m->epilogue == EPILOGUE_MUL)
                *sums = lanes_mul(lanes_load_upto(y, n), *sums);
            lanes_store_upto(y, *sums, n);
        }
    }
}

/* --- passes ---------------------------------------------------------------------------------- */

/* Tokens whose sums wait between the segments of the columns: as many as a session takes at once,
 * so that each weight comes from memory once for all of them. */
#define WAITING_TOKENS 128
/* The bytes of a segment of the columns: with the next segment and the tokens it stays in a core's
 * second cache. */
#define SEGMENT_BYTES 131072
/* Up to so many tokens wait for memory where several tiles or tokens read a group one after the
 * other: the first should not read far before the others follow, and those find all in the first
 * cache. More tokens would lose a twentieth by stopping so often. */
#define FEW_TOKENS        12
#define FEW_SEGMENT_BYTES 8192

/* Some tokens against n_tiles tiles of panels, whose columns lie side by side if there are several.
 */
struct matmul_block {
    const struct matmul *m;
    int panel, n_tiles, token, n_tokens;
    int n_passes, n_segments;
    lanes *sums; /* [n_tiles, n_tokens, the panels of a tile] */
};

/* The tile of n_tokens, which is not constant, of at most `most`, which is. */
#define TILE_CASE(n)                                                                               \
    case n:                                                                                        \
        if ((n) > most)                                                                            \
            __builtin_unreachable();                                                               \
        if (storage_is_quantised(storage))                                                         \
            quant_tile(m, storage, segment, n_panels, n);                                          \
        else                                                                                       \
            matmul_tile(m, storage, segment, whole, n_panels, n);                                  \
        break

ALWAYS_INLINE void product_tile(const struct matmul *m, enum storage storage,
                                const struct matmul_segment *segment, int n_tokens,
                                const bool whole, const int n_panels, const int most)
{
    switch (n_tokens) {
        TILE_CASE(1);
        TILE_CASE(2);
        TILE_CASE(3);
        TILE_CASE(4);
        TILE_CASE(5);
        TILE_CASE(6);
    default:
        __builtin_unreachable();
    }
}

/* The first column of segment i: a multiple of what any storage has in one piece. */
ALWAYS_INLINE int segment_begin(const struct matmul_block *p, int i)
{
    const int n_in = p->m->w->n_in;
    return i == p->n_segments
               ? n_in
               : (int)((int64_t)n_in * i / p->n_segments) / QUANT_BLOCK * QUANT_BLOCK;
}

/* Pass by pass over segment i of the columns, tile by tile. Each asks for its share of the next
 * segment, evenly, so that memory is busy all the time that the arithmetic takes. A single pass
 * reads one stream, which the processor finds by itself where it is F32. */
ALWAYS_INLINE void product_segment(const struct matmul_block *p, enum storage storage, int i,
                                   const bool whole, const int n_panels, const int most)
{
    const struct matrix *w = p->m->w;
    const bool quantised = storage_is_quantised(storage);
    const int begin = segment_begin(p, i), end = segment_begin(p, i + 1);
    const size_t n_all = (size_t)p->n_tiles * p->n_passes;
    const size_t block_bytes =
        storage_block_bytes(storage) *
        (quantised ? KERNEL_LANES : matrix_place(w->n_out, w->n_in, p->panel).column);
    const size_t length = (end - begin) / QUANT_BLOCK * block_bytes;
    size_t next = length; /* bytes to the next segment, which may be of the next panels */
    if (quantised && i + 1 == p->n_segments)
        next = n_panels * matrix_panel_bytes(w->n_in, storage) - begin / QUANT_BLOCK * block_bytes;
    struct matmul_segment segment = {.panel = p->panel,
                                     .begin = begin,
                                     .end = end,
                                     .stride = (64 + (size_t)p->n_passes - 1) / p->n_passes,
                                     .apart = length / (n_all * n_panels),
                                     .sums = p->sums};
    if (!quantised && n_all == 1) {
        next = storage == STORAGE_F32 ? 0 : AHEAD_BYTES;
        segment.stride = storage == STORAGE_F32 ? 0 : n_panels * 64;
        segment.apart = storage == STORAGE_F32 ? 0 : 64;
    }
    for (size_t k = 0; k < n_all; segment.panel += n_panels)
        for (int pass = 0, t = 0; pass < p->n_passes; pass++, k++) {
            const int n = (p->n_tokens - t) / (p->n_passes - pass);
            segment.token = p->token + t;
            segment.ahead = next + length * k / n_all;
            product_tile(p->m, storage, &segment, n, whole, n_panels, most);
            if (i + 1 == p->n_segments)
                tile_finish(p->m, segment.panel, segment.token, n_panels, n, segment.sums);
            segment.sums += n * n_panels;
            t += n;
        }
}

/* All tokens against the panels from `panel` on, n_panels at a time in passes of at most `most`
 * tokens; gives the first panel left over. */
ALWAYS_INLINE int product_panels(const struct matmul *m, enum storage storage, int panel, int end,
                                 lanes *sums, const bool whole, const int n_panels, const int most)
{
    const bool quantised = storage_is_quantised(storage);
    const int n_tiles = quantised ? 1 : (end - panel) / n_panels;
    const bool in_turn = !quantised && (n_tiles > 1 || most == 1);
    const int step = n_tiles * n_panels;
    const size_t step_bytes = step * matrix_panel_bytes(m->w->n_in, storage);
    for (; panel + n_panels <= end; panel += step) {
        for (int t = 0; t < m->n_tokens; t += WAITING_TOKENS) {
            struct matmul_block p = {.m = m,
                                     .panel = panel,
                                     .n_tiles = n_tiles,
                                     .token = t,
                                     .n_segments = 1 + (int)(step_bytes / SEGMENT_BYTES),
                                     .sums = sums};
            p.n_tokens = MIN(m->n_tokens - t, WAITING_TOKENS);
            p.n_passes = (p.n_tokens + most - 1) / most;
            if (in_turn && p.n_tokens <= FEW_TOKENS)
                p.n_segments = MAX(1, (int)(step_bytes / FEW_SEGMENT_BYTES));
            for (int i = 0; i < p.n_segments; i++)
                product_segment(&p, storage, i, whole, n_panels, most);
        }
    }
    return panel;
}

/* One token: there is nothing to cut, and nothing to ask for. From memory a stream that is asked
 * for is no faster than one that the processor finds, from the caches F32 is a sixth slower. */
ALWAYS_INLINE int token_panels(const struct matmul *m, enum storage storage, int panel, int end,
                               const int n_panels)
{
    for (; panel + n_panels <= end; panel += n_panels) {
        lanes sums[MAX_PANELS];
        const struct matmul_segment segment = {.panel = panel, .end = m->w->n_in, .sums = sums};
        product_tile(m, storage, &segment, 1, n_panels == PANEL_GROUP, n_panels, 1);
        tile_finish(m, panel, 0, n_panels, 1, sums);
    }
    return panel;
}

/* Takes as many panels at once as leave the registers room for the widest pass. The more panels,
 * the more chains of sums are in flight and the fewer times the tokens are read. Where two panels
 * would do for all tokens, a group serves one token after the other: as one stream it comes from
 * memory up to a sixth faster. */
ALWAYS_INLINE void matmul_storage(const struct matmul *m, enum storage storage, int panel, int end)
{
    lanes waiting[WAITING_TOKENS * MAX_PANELS];
    const int most = storage_is_quantised(storage) ? QUANT_TOKENS : TILE_TOKENS;
    const int sums = storage_is_quantised(storage) ? QUANT_ACC : TILE_ACC;
    const int n_passes = (m->n_tokens + most - 1) / most;
    const int widest = (m->n_tokens + n_passes - 1) / n_passes;
    const bool quantised = storage_is_quantised(storage);
    do {
        const int stop = quantised ? end : MIN(end, panel - panel % PANEL_GROUP + PANEL_GROUP);
        const bool whole = quantised || stop - panel == PANEL_GROUP;
        if (m->n_tokens == 1) {
            panel = token_panels(m, storage, panel, stop, 4);
            panel = token_panels(m, storage, panel, stop, 2);
            panel = token_panels(m, storage, panel, stop, 1);
            continue;
        }
        if (whole && (4 * most <= sums || 4 * widest <= sums))
            panel = product_panels(m, storage, panel, stop, waiting, true, 4, sums / 4);
        else if (quantised && 2 * widest <= sums)
            panel = product_panels(m, storage, panel, stop, waiting, true, 2, sums / 2);
        else if (whole && !quantised && 2 * widest <= sums)
            panel = product_panels(m, storage, panel, stop, waiting, true, 4, 1);
        else if (whole && !quantised)
            panel = product_panels(m, storage, panel, stop, waiting, true, 1, most);
        panel = product_panels(m, storage, panel, stop, waiting, false, 1, most);
    } while (!quantised && panel < end);
}

/* A function for each storage: together they would have a frame that no thread's stack has room for
 * where nothing is optimised. */
#define MATMUL_OF(linkage, name, storage)                                                          \
    linkage __attribute__((noinline)) void name(const struct matmul *m, int begin, int end)        \
    {                                                                                              \
        matmul_storage(m, storage, begin, end);                                                    \
    }
