/*
 * grad_vector - the training kernels over lanes, compiled once for each instruction set
 * (kernels_vector.h) and, as their definition, over lanes of plain C (grad_scalar.c).
 */
#include <float.h>

#include "base/mem.h"
#include "compute/grad_kernels.h"
#include "compute/lanes.h"

/* --- matrix products ------------------------------------------------------------------------- */

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

/* n_vecs x n_rows outputs; the constants are constants where it is inlined. */
ALWAYS_INLINE void grad_tile(const struct product *p, struct tile at, const int n_vecs,
                             const int n_rows, const bool columns, const bool partial)
{
    const float *b = p->b + at.column / KERNEL_LANES * p->b_panel;
    const float *a = p->a + at.row * (columns ? 1 : p->a_row);
    float *c = p->c + at.row * p->c_row + at.column;
    const float *start = p->start ? p->start + (c - p->c) : NULL;
    lanes acc[MAX_VECS][MAX_ROWS];
    UNROLLED (j, n_rows)
        UNROLLED (v, n_vecs)
            acc[v][j] = start ? tile_load(start + j * p->c_row + v * KERNEL_LANES, at, partial)
                              : lanes_zero();
    for (int k = 0; k < p->k; k++) {
        lanes bk[MAX_VECS];
        UNROLLED (v, n_vecs)
            bk[v] = tile_load(b + v * p->b_panel, at, partial);
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
            float *out = c + j * p->c_row + v * KERNEL_LANES;
            lanes s = acc[v][j];
            if (p->bias)
                s = lanes_add(s, tile_load(p->bias + at.column + v * KERNEL_LANES, at, partial));
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
        grad_tile(p, at, n_vecs, max_rows, columns, partial);
        at.row += max_rows;
    }
    if (max_rows > 8)
        for (; p->m - at.row >= 8; at.row += 8)
            grad_tile(p, at, n_vecs, 8, columns, partial);
    if (max_rows > 4)
        for (; p->m - at.row >= 4; at.row += 4)
            grad_tile(p, at, n_vecs, 4, columns, partial);
    for (; at.row < p->m; at.row++)
        grad_tile(p, at, n_vecs, 1, columns, partial);
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

/* KERNEL_LANES rows, of which n_rows are real, and at most as many columns n. */
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

/* --- feed-forward ---------------------------------------------------------------------------- */

ALWAYS_INLINE lanes ffn_value(const enum ffn_kind kind, lanes x)
{
    switch (kind) {
    case FFN_GELU:
    case FFN_GEGLU:
        return lanes_gelu(x);
    case FFN_GELU_ERF:
        return lanes_gelu_erf(x);
    case FFN_RELU:
        return lanes_relu(x);
    default:
        return lanes_silu(x);
    }
}

/* GELU(x) = x s with s = 1 / (1 + e^w), w = -2u (see kernels_math.h), so
 * GELU'(x) = s - x s (1 - s) w'. */
ALWAYS_INLINE lanes gelu_slope(lanes x)
{
    const lanes one = lanes_all(1.0f);
    const lanes square = lanes_mul(x, x);
    const lanes w = lanes_mul(x, lanes_fma(square, lanes_all(GELU_CUBIC), lanes_all(GELU_LINEAR)));
    const lanes slope = lanes_fma(square, lanes_all(3 * GELU_CUBIC), lanes_all(GELU_LINEAR));
    const lanes s = lanes_div(one, lanes_add(one, lanes_exp(w)));
    const lanes rest = lanes_mul(lanes_mul(x, s), lanes_sub(one, s));
    return lanes_sub(s, lanes_mul(rest, slope));
}

/* GELU'(x) = Phi(x) + x phi(x), which is d = Phi(-u) - u phi(u) for x = -u, and 1 - d for x = u. */
ALWAYS_INLINE lanes gelu_erf_slope(lanes x)
{
    const lanes u = lanes_gelu_distance(x), one = lanes_all(1.0f);
    const lanes minus_phi_0 = lanes_all(-0.398942280401432678f); /* -1 / sqrt(2 pi) */
    const lanes d = lanes_mul(lanes_fma(u, minus_phi_0, lanes_gelu_ratio(u)), lanes_gelu_bell(u));
    const lanes right = lanes_zero_below(one, x, 0); /* 1 or 0 */
    return lanes_fma(lanes_sub(one, lanes_add(right, right)), d, right);
}

/* 0 at 0. */
ALWAYS_INLINE lanes relu_slope(lanes x)
{
    return lanes_zero_below(lanes_all(1.0f), x, FLT_TRUE_MIN);
}

/* SiLU(x) = x s with s = 1 / (1 + e^-x), so SiLU'(x) = s + x s (1 - s). */
ALWAYS_INLINE lanes silu_slope(lanes x)
{
    const lanes one = lanes_all(1.0f), least = lanes_max(lanes_all(-EXP_MAX), x);
    const lanes s = lanes_div(one, lanes_add(one, lanes_exp(lanes_sub(lanes_zero(), least))));
    return lanes_fma(lanes_mul(least, s), lanes_sub(one, s), s);
}

ALWAYS_INLINE lanes ffn_slope(const enum ffn_kind kind, lanes x)
{
    switch (kind) {
    case FFN_GELU:
    case FFN_GEGLU:
        return gelu_slope(x);
    case FFN_GELU_ERF:
        return gelu_erf_slope(x);
    case FFN_RELU:
        return relu_slope(x);
    default:
        return silu_slope(x);
    }
}

ALWAYS_INLINE void ffn_forward(const enum ffn_kind kind, float *out, const float *up,
                               const float *gate, size_t n)
{
    const float *x = gate ? gate : up;
    assert(n == 0 || (out && up && ffn_kinds[kind].is_gated == (gate != NULL)));
    for (size_t i = 0; i < n; i += KERNEL_LANES) {
        const int width = n - i < KERNEL_LANES ? (int)(n - i) : KERNEL_LANES;
        lanes f = ffn_value(kind, lanes_load_upto(x + i, width));
        if (gate)
            f = lanes_mul(f, lanes_load_upto(up + i, width));
        lanes_store_upto(out + i, f, width);
    }
}

ALWAYS_INLINE void ffn_backward(const enum ffn_kind kind, float *out, float *dup, float *dgate,
                                const float *dy, const float *up, const float *gate, size_t n)
{
    const float *x = gate ? gate : up;
    assert(n == 0 || (out && dup && dy && up && dup != up && out != up && out != dup &&
                      ffn_kinds[kind].is_gated == (gate != NULL)));
    assert(n == 0 || (!gate == !dgate && (!gate || (dgate != up && dgate != dy && dgate != dup))));
    for (size_t i = 0; i < n; i += KERNEL_LANES) {
        const int width = n - i < KERNEL_LANES ? (int)(n - i) : KERNEL_LANES;
        const lanes d = lanes_load_upto(dy + i, width), at = lanes_load_upto(x + i, width);
        const lanes f = ffn_value(kind, at), slope = ffn_slope(kind, at);
        if (gate) {
            const lanes u = lanes_load_upto(up + i, width);
            lanes_store_upto(dgate + i, lanes_mul(lanes_mul(d, u), slope), width);
            lanes_store_upto(dup + i, lanes_mul(d, f), width);
            lanes_store_upto(out + i, lanes_mul(f, u), width);
        } else {
            lanes_store_upto(dup + i, lanes_mul(d, slope), width);
            lanes_store_upto(out + i, f, width);
        }
    }
}

#define FFN_OF(name, kind)                                                                         \
    static void name(float *out, const float *up, const float *gate, size_t n)                     \
    {                                                                                              \
        ffn_forward(kind, out, up, gate, n);                                                       \
    }                                                                                              \
    static void name##_backward(float *out, float *dup, float *dgate, const float *dy,             \
                                const float *up, const float *gate, size_t n)                      \
    {                                                                                              \
        ffn_backward(kind, out, dup, dgate, dy, up, gate, n);                                      \
    }
FFN_OF(vector_gelu, FFN_GELU)
FFN_OF(vector_gelu_erf, FFN_GELU_ERF)
FFN_OF(vector_relu, FFN_RELU)
FFN_OF(vector_swiglu, FFN_SWIGLU)
FFN_OF(vector_geglu, FFN_GEGLU)

/* --- norms ----------------------------------------------------------------------------------- */

/* With u = (x - mean) / sd and h = dy gain: dx = (h - mean(h) - u mean(h u)) / sd; with
 * NORM_RMS mean and mean(h) count as 0. */
static void vector_norm_backward(enum norm_kind kind, float *dx, const float *residual,
                                 const float *dy, const float *x, const float *gain, int n,
                                 float eps, float *stats)
{
    assert(n >= 1 && !(eps < 0) && dx && residual && dy && x && stats);
    assert(dx != x && dx != dy);
    lanes_norm_stats(kind, x, n, eps, stats);
    const lanes mean = lanes_all(stats[0]), scale = lanes_all(stats[1]);
    lanes sum = lanes_zero(), product = lanes_zero();
    for (int i = 0; i < n; i += KERNEL_LANES) {
        const int width = n - i;
        const lanes d = lanes_load_upto(dy + i, width);
        const lanes h = gain ? lanes_mul(d, lanes_load_upto(gain + i, width)) : d;
        const lanes u = lanes_mul(lanes_sub(lanes_load_upto(x + i, width), mean), scale);
        sum = lanes_add(sum, h);
        product = lanes_fma(h, u, product); /* h is 0 past the end */
    }
    const lanes mean_h = lanes_all(kind == NORM_LAYER ? lanes_sum(sum) / (float)n : 0.0f);
    const lanes mean_hu = lanes_all(lanes_sum(product) / (float)n);
    for (int i = 0; i < n; i += KERNEL_LANES) {
        const int width = n - i;
        const lanes d = lanes_load_upto(dy + i, width);
        const lanes h = gain ? lanes_mul(d, lanes_load_upto(gain + i, width)) : d;
        const lanes u = lanes_mul(lanes_sub(lanes_load_upto(x + i, width), mean), scale);
        const lanes inner = lanes_sub(lanes_sub(h, mean_h), lanes_mul(u, mean_hu));
        const lanes out = lanes_fma(inner, scale, lanes_load_upto(residual + i, width));
        lanes_store_upto(dx + i, out, width);
    }
}

/* --- sums over rows -------------------------------------------------------------------------- */

/* Vectors of columns summed at once, so that rows are read in long pieces. */
#define SUM_VECS 4

/* gain sums if `stats`, else plain ones. */
ALWAYS_INLINE void row_sums(float *out, const float *dy, const float *x, const float *stats,
                            size_t stride, int n_rows, const int n_vecs, int width)
{
    lanes acc[SUM_VECS];
    UNROLLED (v, n_vecs)
        acc[v] = lanes_zero();
    for (int t = 0; t < n_rows; t++) {
        UNROLLED (v, n_vecs) {
            const size_t at = t * stride + (size_t)v * KERNEL_LANES;
            const lanes d = lanes_load_upto(dy + at, width);
            if (stats) {
                const lanes centred =
                    lanes_sub(lanes_load_upto(x + at, width), lanes_all(stats[2 * t]));
                acc[v] = lanes_fma(d, lanes_mul(centred, lanes_all(stats[2 * t + 1])), acc[v]);
            } else {
                acc[v] = lanes_add(acc[v], d);
            }
        }
    }
    UNROLLED (v, n_vecs)
        lanes_store_upto(out + v * KERNEL_LANES, acc[v], width);
}

ALWAYS_INLINE void all_sums(float *out, const float *dy, const float *x, const float *stats,
                            size_t stride, int n_rows, int n)
{
    assert(n >= 0 && n_rows >= 0 && (n_rows <= 1 || stride >= (size_t)n));
    assert(n == 0 || (out && dy && x && out != dy && out != x));
    int i = 0;
    for (; i + SUM_VECS * KERNEL_LANES <= n; i += SUM_VECS * KERNEL_LANES)
        row_sums(out + i, dy + i, x + i, stats, stride, n_rows, SUM_VECS, KERNEL_LANES);
    for (; i < n; i += KERNEL_LANES)
        row_sums(out + i, dy + i, x + i, stats, stride, n_rows, 1, n - i);
}

static void vector_row_sums(float *out, const float *dy, const float *x, const float *stats,
                            size_t stride, int n_rows, int n)
{
    if (stats)
        all_sums(out, dy, x, stats, stride, n_rows, n);
    else
        all_sums(out, dy, dy, NULL, stride, n_rows, n);
}

/* --- attention ------------------------------------------------------------------------------- */

#define CAUSAL_VECS (CAUSAL_WIDTH / KERNEL_LANES)

/* The first of a row's queries that may see key t, in lanes of vector v: those below it may not. */
ALWAYS_INLINE int hidden_lanes(const struct causal *c, int t, int v)
{
    const int hidden = t - c->first - v * KERNEL_LANES;
    return hidden < 0 ? 0 : hidden > KERNEL_LANES ? KERNEL_LANES : hidden;
}

/* x, or `other` in the lanes of vector v whose queries do not see key t. */
ALWAYS_INLINE lanes seen_lanes(const struct causal *c, int t, int v, lanes x, lanes other)
{
    if (t > c->first)
        x = lanes_first(other, x, hidden_lanes(c, t, v));
    if (c->window && t <= c->first + CAUSAL_WIDTH - c->window) /* queries from t + window on */
        x = lanes_first(x, other, hidden_lanes(c, t + c->window, v));
    return x;
}

/* The scores of key t by the queries of vector v, with the head's bias. */
ALWAYS_INLINE lanes causal_scores(const struct causal *c, int t, int v)
{
    const lanes scores = lanes_load(c->scores + (size_t)t * CAUSAL_WIDTH + v * KERNEL_LANES);
    if (!c->bias)
        return scores;
    const lanes queries =
        lanes_add(lanes_all((float)(c->first + v * KERNEL_LANES)), lanes_places());
    return lanes_biased(c->bias, lanes_sub(queries, lanes_all((float)t)), scores);
}

static void vector_causal_softmax(const struct causal *c)
{
    assert(c->n_keys >= 0 && c->first >= 0 && c->scores && c->max && c->inverse);
    lanes max[CAUSAL_VECS], sum[CAUSAL_VECS];
    for (int v = 0; v < CAUSAL_VECS; v++) {
        max[v] = lanes_all(-INFINITY);
        sum[v] = lanes_zero();
    }
    for (int t = 0; t < c->n_keys; t++)
        for (int v = 0; v < CAUSAL_VECS; v++) {
            float *at = c->scores + (size_t)t * CAUSAL_WIDTH + v * KERNEL_LANES;
            const lanes s = seen_lanes(c, t, v, causal_scores(c, t, v), lanes_all(-INFINITY));
            lanes_store(at, s);
            max[v] = lanes_max(s, max[v]);
        }
    for (int t = 0; t < c->n_keys; t++)
        for (int v = 0; v < CAUSAL_VECS; v++) {
            float *at = c->scores + (size_t)t * CAUSAL_WIDTH + (size_t)v * KERNEL_LANES;
            const lanes e = lanes_exp(lanes_sub(lanes_load(at), max[v]));
            lanes_store(at, e);
            sum[v] = lanes_add(sum[v], e);
        }
    for (int v = 0; v < CAUSAL_VECS; v++) {
        lanes_store(c->max + v * KERNEL_LANES, max[v]);
        lanes_store(c->inverse + v * KERNEL_LANES, lanes_div(lanes_all(1.0f), sum[v]));
    }
}

static void vector_causal_backward(const struct causal *c)
{
    assert(c->n_keys >= 0 && c->first >= 0 && c->scores && c->max && c->inverse);
    assert(c->gradient && c->gradient != c->scores);
    const lanes scale = lanes_all(c->scale);
    for (int v = 0; v < CAUSAL_VECS; v++) {
        const lanes max = lanes_load(c->max + v * KERNEL_LANES);
        const lanes inverse = lanes_load(c->inverse + v * KERNEL_LANES);
        lanes dot = lanes_zero();
        for (int t = 0; t < c->n_keys; t++) {
            const size_t at = (size_t)t * CAUSAL_WIDTH + (size_t)v * KERNEL_LANES;
            const lanes e = lanes_exp(lanes_sub(causal_scores(c, t, v), max));
            const lanes p = seen_lanes(c, t, v, lanes_mul(e, inverse), lanes_zero());
            lanes_store(c->scores + at, p);
            dot = lanes_fma(p, lanes_load(c->gradient + at), dot);
        }
        for (int t = 0; t < c->n_keys; t++) {
            const size_t at = (size_t)t * CAUSAL_WIDTH + (size_t)v * KERNEL_LANES;
            const lanes excess = lanes_sub(lanes_load(c->gradient + at), dot);
            const lanes p = lanes_mul(lanes_load(c->scores + at), scale);
            lanes_store(c->gradient + at, lanes_mul(p, excess));
        }
    }
}

static void vector_additive_scores(const struct additive *a)
{
    assert(a->n_keys >= 0 && a->dim >= 0 && a->scores && a->scores != a->queries);
    for (int t = 0; t < a->n_keys; t++) {
        const float *key = a->keys + t * a->stride;
        for (int v = 0; v < CAUSAL_WIDTH; v += KERNEL_LANES) {
            lanes sum = lanes_zero();
            for (int i = 0; i < a->dim; i++) {
                const lanes q = lanes_load(a->queries + (size_t)i * CAUSAL_WIDTH + v);
                const lanes h = lanes_tanh(lanes_add(lanes_all(key[i]), q));
                sum = lanes_fma(lanes_all(a->weight[i]), h, sum);
            }
            lanes_store(a->scores + (size_t)t * CAUSAL_WIDTH + v, sum);
        }
    }
}

static void vector_additive_backward(const struct additive *a)
{
    assert(a->n_keys >= 0 && a->dim >= 0 && a->dkeys && a->dqueries && a->dweight);
    assert(a->dkeys != a->keys && a->dqueries != a->queries && a->dweight != a->weight);
    const lanes one = lanes_all(1.0f);
    for (int i = 0; i < a->dim; i++) {
        const lanes weight = lanes_all(a->weight[i]);
        lanes dq[CAUSAL_VECS], dw = lanes_zero();
        for (int v = 0; v < CAUSAL_VECS; v++)
            dq[v] = lanes_zero();
        for (int t = 0; t < a->n_keys; t++) {
            const lanes key = lanes_all(a->keys[t * a->stride + i]);
            lanes dk = lanes_zero();
            for (int v = 0; v < CAUSAL_VECS; v++) {
                const size_t at = (size_t)v * KERNEL_LANES;
                const lanes q = lanes_load(a->queries + (size_t)i * CAUSAL_WIDTH + at);
                const lanes g = lanes_load(a->gradient + (size_t)t * CAUSAL_WIDTH + at);
                const lanes h = lanes_tanh(lanes_add(key, q));
                const lanes slope = lanes_sub(one, lanes_mul(h, h));
                const lanes d = lanes_mul(lanes_mul(g, weight), slope);
                dw = lanes_fma(g, h, dw);
                dk = lanes_add(dk, d);
                dq[v] = lanes_add(dq[v], d);
            }
            a->dkeys[t * a->stride + i] += lanes_sum(dk);
        }
        for (int v = 0; v < CAUSAL_VECS; v++)
            lanes_store(a->dqueries + (size_t)i * CAUSAL_WIDTH + (size_t)v * KERNEL_LANES, dq[v]);
        a->dweight[i] = lanes_sum(dw);
    }
}

/* --- loss and optimizer ---------------------------------------------------------------------- */

static float vector_softmax(float *x, int n, float scale)
{
    assert(n >= 1 && x);
    const lanes least = lanes_all(-INFINITY);
    lanes max = least;
    for (int i = 0; i < n; i += KERNEL_LANES) {
        const int width = MIN(n - i, KERNEL_LANES);
        max = lanes_max(lanes_first(lanes_load_upto(x + i, width), least, width), max);
    }
    const float largest = lanes_largest(max);
    const lanes shift = lanes_all(largest);
    lanes sum = lanes_zero();
    for (int i = 0; i < n; i += KERNEL_LANES) {
        const int width = MIN(n - i, KERNEL_LANES);
        const lanes e = lanes_exp(lanes_sub(lanes_load_upto(x + i, width), shift));
        lanes_store_upto(x + i, e, width);
        sum = lanes_add(sum, lanes_first(e, lanes_zero(), width));
    }
    const float total = lanes_sum(sum);
    const lanes factor = lanes_all(scale / total);
    for (int i = 0; i < n; i += KERNEL_LANES)
        lanes_store_upto(x + i, lanes_mul(lanes_load_upto(x + i, n - i), factor), n - i);
    return largest + logf(total);
}

static float vector_squares(const float *x, size_t n)
{
    assert(n == 0 || x);
    lanes sum = lanes_zero();
    size_t i = 0;
    for (; i + KERNEL_LANES <= n; i += KERNEL_LANES) {
        const lanes a = lanes_load(x + i);
        sum = lanes_fma(a, a, sum);
    }
    if (i < n) {
        const lanes a = lanes_load_n(x + i, (int)(n - i));
        sum = lanes_fma(a, a, sum);
    }
    return lanes_sum(sum);
}

static void vector_adamw(const struct adamw *o, float *w, float *m, float *v, const float *gradient,
                         size_t n)
{
    assert(n == 0 || (w && m && v && gradient && w != m && w != v && m != v && w != gradient));
    assert(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1);
    const lanes beta1 = lanes_all(o->beta1), beta2 = lanes_all(o->beta2);
    const lanes rest1 = lanes_all(1 - o->beta1), rest2 = lanes_all(1 - o->beta2);
    const lanes rate = lanes_all(-o->rate), decay = lanes_all(-o->decay);
    for (size_t i = 0; i < n; i += KERNEL_LANES) {
        const int width = n - i < KERNEL_LANES ? (int)(n - i) : KERNEL_LANES;
        const lanes g = lanes_mul(lanes_load_upto(gradient + i, width), lanes_all(o->scale));
        const lanes mi = lanes_fma(rest1, g, lanes_mul(beta1, lanes_load_upto(m + i, width)));
        const lanes vi =
            lanes_fma(lanes_mul(rest2, g), g, lanes_mul(beta2, lanes_load_upto(v + i, width)));
        const lanes below = lanes_fma(lanes_sqrt(vi), lanes_all(o->root), lanes_all(o->eps));
        const lanes old = lanes_load_upto(w + i, width);
        const lanes decayed = lanes_fma(old, decay, old);
        lanes_store_upto(m + i, mi, width);
        lanes_store_upto(v + i, vi, width);
        lanes_store_upto(w + i, lanes_fma(rate, lanes_div(mi, below), decayed), width);
    }
}

const struct grad_kernels OF_SET(grad) = {
    .name = SET_NAME,
    .product = vector_product,
    .transpose = vector_transpose,
    .ffn = {[FFN_GELU] = vector_gelu,
            [FFN_GELU_ERF] = vector_gelu_erf,
            [FFN_RELU] = vector_relu,
            [FFN_SWIGLU] = vector_swiglu,
            [FFN_GEGLU] = vector_geglu},
    .ffn_backward = {[FFN_GELU] = vector_gelu_backward,
                     [FFN_GELU_ERF] = vector_gelu_erf_backward,
                     [FFN_RELU] = vector_relu_backward,
                     [FFN_SWIGLU] = vector_swiglu_backward,
                     [FFN_GEGLU] = vector_geglu_backward},
    .norm_backward = vector_norm_backward,
    .row_sums = vector_row_sums,
    .causal_softmax = vector_causal_softmax,
    .causal_backward = vector_causal_backward,
    .additive_scores = vector_additive_scores,
    .additive_backward = vector_additive_backward,
    .softmax = vector_softmax,
    .squares = vector_squares,
    .adamw = vector_adamw,
};
