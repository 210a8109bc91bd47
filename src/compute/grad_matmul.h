/*
 * grad_matmul - the matrix products of training and transposition, over lanes: `product` and
 * `transpose` of grad_kernels.h. grad_vector.h includes it, once for each instruction set.
 */
#pragma once

#include "base/mem.h"
#include "compute/grad_kernels.h"
#include "compute/lanes.h"

/* An instruction set's register tiles are TILE_VECS vectors of columns by TILE_ROWS rows or, where
 * a single vector is left, one by NARROW_ROWS. PACKS says whether it pays to copy rows of B that
 * lie far apart. */
#if defined(LANES_SCALAR)
#define TILE_VECS   1
#define TILE_ROWS   1
#define NARROW_ROWS 1
#define PACKS       false
#elif defined(__AVX512F__)
#define TILE_VECS   2
#define TILE_ROWS   12
#define NARROW_ROWS 16
#define PACKS       false
#else
#define TILE_VECS   1
#define TILE_ROWS   6
#define NARROW_ROWS 6
#if defined(__AVX2__)
#define PACKS true
#else
#define PACKS false
#endif
#endif
#define MAX_VECS 2
#define MAX_ROWS 16

/* Where the n_vecs vectors of columns that begin at `column` end: `left` columns are real, which
 * matters only if `partial`. */
struct tile {
    int row, column, left;
};

ALWAYS_INLINE lanes tile_load(const float *p, struct tile at, const bool partial)
{
    return partial ? lanes_load_n(p, at.left) : lanes_load(p);
}

/* A chain of so many terms or more takes longer than the outputs of the next rows, which are asked
 * for meanwhile, take from a far cache. */
#define LONG_CHAIN 64

/* n_vecs x n_rows outputs; the constants are constants where it is inlined. `asks`: the next tile
 * reads other columns of B, which are asked for. */
ALWAYS_INLINE void grad_tile(const struct product *p, struct tile at, const int n_vecs,
                             const int n_rows, const bool columns, const bool partial,
                             const bool asks)
{
    const float *b = p->b + at.column / KERNEL_LANES * p->b_panel;
    const float *a = p->a + at.row * (columns ? 1 : p->a_row);
    float *c = p->c + at.row * p->c_row + at.column;
    const float *start = p->start ? p->start + (c - p->c) : NULL;
    /* Copies: the compiler would read members again after each store. */
    const float *bias = p->bias ? p->bias + at.column : NULL;
    const size_t c_row = p->c_row;
    lanes acc[MAX_VECS][MAX_ROWS];
    UNROLLED (j, n_rows)
        UNROLLED (v, n_vecs)
            acc[v][j] =
                start ? tile_load(start + j * c_row + v * KERNEL_LANES, at, partial) : lanes_zero();
    if (p->k >= LONG_CHAIN)
        UNROLLED (j, n_rows)
            UNROLLED (v, n_vecs)
                __builtin_prefetch(c + (n_rows + j) * c_row + v * KERNEL_LANES, 1);
    for (int k = 0; k < p->k; k++) {
        lanes bk[MAX_VECS];
        UNROLLED (v, n_vecs)
            bk[v] = tile_load(b + v * p->b_panel, at, partial);
        if (asks)
            UNROLLED (v, n_vecs)
                __builtin_prefetch(b + (n_vecs + v) * p->b_panel, 0, 2);
        UNROLLED (j, n_rows) {
            const lanes aj = lanes_all(columns ? a[j] : a[j * p->a_row]);
            UNROLLED (v, n_vecs)
                acc[v][j] = lanes_fma(aj, bk[v], acc[v][j]);
        }
        a += columns ? p->a_col : 1;
        b += p->b_row;
    }
    UNROLLED (j, n_rows)
        UNROLLED (v, n_vecs) {
            float *out = c + j * c_row + v * KERNEL_LANES;
            lanes s = acc[v][j];
            if (bias)
                s = lanes_add(s, tile_load(bias + v * KERNEL_LANES, at, partial));
            if (partial)
                lanes_store_n(out, s, at.left);
            else
                lanes_store(out, s);
        }
}

/* All rows of n_vecs vectors of columns. */
ALWAYS_INLINE void grad_tile_rows(const struct product *p, int column, const int n_vecs,
                                  const int max_rows, const bool columns, const bool partial)
{
    struct tile at = {.column = column, .left = p->n - column};
    /* Sixteen rows are two tiles of eight rather than one of twelve and a small one. */
    while (p->m - at.row >= max_rows && (max_rows != 12 || p->m - at.row != 16)) {
        if (n_vecs > 1 && p->m - at.row < 2 * max_rows)
            grad_tile(p, at, n_vecs, max_rows, columns, partial, true);
        else
            grad_tile(p, at, n_vecs, max_rows, columns, partial, false);
        at.row += max_rows;
    }
    if (max_rows > 8)
        for (; p->m - at.row >= 8; at.row += 8)
            grad_tile(p, at, n_vecs, 8, columns, partial, false);
    if (max_rows > 4)
        for (; p->m - at.row >= 4; at.row += 4)
            grad_tile(p, at, n_vecs, 4, columns, partial, false);
    for (; at.row < p->m; at.row++)
        grad_tile(p, at, n_vecs, 1, columns, partial, false);
}

ALWAYS_INLINE void grad_product_form(const struct product *p, const bool columns)
{
    int i = 0;
    if (TILE_VECS > 1)
        for (; i + TILE_VECS * KERNEL_LANES <= p->n; i += TILE_VECS * KERNEL_LANES)
            grad_tile_rows(p, i, TILE_VECS, TILE_ROWS, columns, false);
    for (; i + KERNEL_LANES <= p->n; i += KERNEL_LANES)
        grad_tile_rows(p, i, 1, NARROW_ROWS, columns, false);
    if (i < p->n)
        grad_tile_rows(p, i, 1, NARROW_ROWS, columns, true);
}

/* Rows of B at once whose columns of one tile are copied side by side, and the least rows of C for
 * which that pays. */
#define PACK_ROWS  128
#define PACK_LEAST 24

/* B's rows lie a whole matrix's width apart, as activations' do: each would be another line of few
 * sets of the cache, for every tile of rows again. */
ALWAYS_INLINE void grad_product_packed(const struct product *p, const bool columns)
{
    enum { WIDTH = TILE_VECS * KERNEL_LANES };
    float packed[PACK_ROWS * WIDTH];
    for (int i = 0; i < p->n; i += WIDTH)
        for (int k = 0; k < p->k; k += PACK_ROWS) {
            struct product part = *p;
            part.n = MIN(p->n - i, WIDTH);
            part.k = MIN(p->k - k, PACK_ROWS);
            part.a += k * p->a_col;
            part.b = packed;
            part.b_row = WIDTH;
            part.c += i;
            part.start = k > 0 ? part.c : p->start ? p->start + i : NULL;
            part.bias = p->bias && k + part.k == p->k ? p->bias + i : NULL;
            for (int row = 0; row < part.k; row++)
                memcpy(packed + row * WIDTH, p->b + (k + row) * p->b_row + i,
                       part.n * sizeof *packed);
            grad_product_form(&part, columns);
        }
}

ALWAYS_INLINE void grad_product_any(const struct product *p, const bool columns)
{
    if (PACKS && p->b_panel == KERNEL_LANES && p->b_row > TILE_VECS * KERNEL_LANES &&
        p->m >= PACK_LEAST && p->k > 0)
        grad_product_packed(p, columns);
    else
        grad_product_form(p, columns);
}

static void grad_product_near(const struct product *p)
{
    if (p->a_col == 1)
        grad_product_any(p, false);
    else
        grad_product_any(p, true);
}

/* Rows of A that lie so many floats apart, as those of a real vocabulary's logits do, are each
 * another page, and share few sets of the caches. So many rows and terms of A are copied at once.
 */
#define FAR_APART  4096
#define PART_ROWS  96
#define PART_TERMS 384

static void grad_product_apart(const struct product *p)
{
    const bool columns = p->a_col != 1;
    float a[PART_ROWS * PART_TERMS];
    const size_t apart = columns ? PART_ROWS : PART_TERMS;
    for (int k = 0; k < p->k; k += PART_TERMS)
        for (int row = 0; row < p->m; row += PART_ROWS) {
            struct product part = *p;
            part.m = MIN(p->m - row, PART_ROWS);
            part.k = MIN(p->k - k, PART_TERMS);
            part.a = a;
            part.a_row = columns ? 1 : apart;
            part.a_col = columns ? apart : 1;
            part.b += k * p->b_row;
            part.c += row * p->c_row;
            part.start = k > 0 ? part.c : p->start ? p->start + row * p->c_row : NULL;
            part.bias = k + part.k == p->k ? p->bias : NULL;
            const float *from = p->a + row * p->a_row + k * p->a_col;
            const int n_rows = columns ? part.k : part.m, n = columns ? part.m : part.k;
            for (int i = 0; i < n_rows; i++)
                memcpy(a + i * apart, from + i * MAX(p->a_row, p->a_col), n * sizeof *a);
            grad_product_near(&part);
        }
}

static void vector_product(const struct product *p)
{
    assert(p->m >= 0 && p->n >= 0 && p->k >= 0 && (p->a_row == 1 || p->a_col == 1));
    assert(p->m <= 1 || p->c_row >= (size_t)p->n);
    assert(p->m == 0 || p->n == 0 || (p->c && p->c != p->a && p->c != p->b));
    assert(p->m == 0 || p->n == 0 || p->k == 0 || (p->a && p->b));
    if (MAX(p->a_row, p->a_col) >= FAR_APART && p->m > 1 && p->k > 1)
        grad_product_apart(p);
    else
        grad_product_near(p);
}

/* Transposes a block: KERNEL_LANES rows, the first n_rows read and the others zeros, and n columns,
 * which are no more. */
static void transpose_block(float *out, int width, const float *x, size_t stride, int n_rows, int n,
                            float scale)
{
#ifdef LANES_MASKED
    lanes rows[KERNEL_LANES];
    UNROLLED (r, KERNEL_LANES)
        rows[r] = r < n_rows ? lanes_mul(lanes_all(scale), lanes_load_upto(x + r * stride, n))
                             : lanes_zero();
    lanes_transpose(rows);
    UNROLLED (i, KERNEL_LANES)
        if (i < n)
            lanes_store(out + i * width, rows[i]);
#else
    for (int i = 0; i < n; i++) {
        for (int r = 0; r < n_rows; r++)
            out[i * width + r] = scale * x[r * stride + i];
        for (int r = n_rows; r < KERNEL_LANES; r++)
            out[i * width + r] = 0;
    }
#endif
}

static void vector_transpose(float *out, int width, const float *x, size_t stride, int n_rows,
                             int n, float scale)
{
    assert(n_rows >= 0 && n_rows <= width && width % KERNEL_LANES == 0);
    assert(n == 0 || (out && (n_rows == 0 || (x && x != out))));
    for (int r = 0; r < width; r += KERNEL_LANES)
        for (int i = 0; i < n; i += KERNEL_LANES)
            transpose_block(out + (size_t)i * width + r, width, x + r * stride + i, stride,
                            MAX(MIN(n_rows - r, KERNEL_LANES), 0), MIN(n - i, KERNEL_LANES), scale);
}
