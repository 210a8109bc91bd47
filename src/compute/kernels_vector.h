/*
 * kernels_vector - the kernels in vector form, included by one object an instruction set
 * (private).
 *
 * The includer defines VECTOR_NAME and VECTOR_TABLE, and the sizes of the register tiles:
 *   TILE_ACC      accumulators (lanes) that fit the registers in attention
 *   TILE_PANELS   weight panels and
 *   TILE_TOKENS   tokens that a prefill tile covers
 *   QUANT_PANELS, QUANT_TOKENS  the same for quantised weights, whose tiles need integer
 *                 accumulators too
 * The order of operations on every output is that of kernels_scalar.c; tiles only choose how
 * many outputs are in flight.
 */
#include "compute/kernels_check.h"
#include "compute/kernels_machine.h"
#include "compute/kernels_quant.h"
#include "compute/kernels_tile.h"

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

/* --- matrix product -------------------------------------------------------------------------- */

/* Panels that one token streams at once: enough chains to cover the latency of an FMA. */
#define STEP_PANELS 4

/*
 * Columns of F16 and BF16 panels to ask for ahead, then those of the next panels: one thread reads
 * up to a quarter, two 5% more from memory. F32, whose panels are longer streams, gains nothing.
 */
#define AHEAD_COLUMNS 32

ALWAYS_INLINE void prefetch_halves(const uint16_t *column, size_t panel_size, int left,
                                   const int n_panels)
{
    const uint16_t *ahead = column + (size_t)AHEAD_COLUMNS * KERNEL_LANES;
    if (left <= AHEAD_COLUMNS)
        ahead += (size_t)(n_panels - 1) * panel_size;
#pragma GCC unroll 12
    for (int p = 0; p < n_panels; p++)
        __builtin_prefetch(ahead + (size_t)p * panel_size);
}

/* Adds column i of the panels times element i of the tokens. */
ALWAYS_INLINE void matmul_column(const struct matmul *m, enum storage storage, size_t base,
                                 const float *x, int i, const int n_panels, const int n_tokens,
                                 lanes acc[MAX_PANELS][MAX_TOKENS])
{
    const size_t panel_size = (size_t)m->w->n_in * KERNEL_LANES;
    lanes w[MAX_PANELS];
#pragma GCC unroll 12
    for (int p = 0; p < n_panels; p++)
        w[p] = load_element(m->w->panels, storage,
                            base + (size_t)p * panel_size + (size_t)i * KERNEL_LANES);
#pragma GCC unroll 12
    for (int j = 0; j < n_tokens; j++) {
        const lanes xj = lanes_all(x[(size_t)j * m->x_stride + (size_t)i]);
#pragma GCC unroll 12
        for (int p = 0; p < n_panels; p++)
            acc[p][j] = lanes_fma(w[p], xj, acc[p][j]);
    }
}

/* n_panels x n_tokens outputs, all constants where it is inlined. */
ALWAYS_INLINE void matmul_tile(const struct matmul *m, enum storage storage, int panel, int t,
                               const int n_panels, const int n_tokens)
{
    const int n_in = m->w->n_in;
    const size_t panel_size = (size_t)n_in * KERNEL_LANES;
    const size_t base = (size_t)panel * panel_size;
    const float *x = m->x + (size_t)t * m->x_stride;
    lanes acc[MAX_PANELS][MAX_TOKENS];
#pragma GCC unroll 12
    for (int p = 0; p < n_panels; p++)
#pragma GCC unroll 12
        for (int j = 0; j < n_tokens; j++)
            acc[p][j] = lanes_zero();
    int i = 0;
    if (n_tokens == 1 && storage != STORAGE_F32) {
        for (; i + 2 <= n_in; i += 2) { /* two columns to a line */
            prefetch_halves((const uint16_t *)m->w->panels + base + (size_t)i * KERNEL_LANES,
                            panel_size, n_in - i, n_panels);
            matmul_column(m, storage, base, x, i, n_panels, 1, acc);
            matmul_column(m, storage, base, x, i + 1, n_panels, 1, acc);
        }
    }
    for (; i < n_in; i++)
        matmul_column(m, storage, base, x, i, n_panels, n_tokens, acc);
#pragma GCC unroll 12
    for (int p = 0; p < n_panels; p++)
#pragma GCC unroll 12
        for (int j = 0; j < n_tokens; j++)
            tile_finish(m, panel + p, t + j, acc[p][j]);
}

ALWAYS_INLINE void product_tile(const struct matmul *m, enum storage storage, int panel, int t,
                                const int n_panels, const int n_tokens)
{
    if (storage_is_quantised(storage))
        quant_tile(m, storage, panel, t, n_panels, n_tokens);
    else
        matmul_tile(m, storage, panel, t, n_panels, n_tokens);
}

/* A few tokens: weights are read once from memory, and several panels stream at once. */
ALWAYS_INLINE void matmul_few(const struct matmul *m, enum storage storage, int begin, int end)
{
    int panel = begin;
    for (; panel + STEP_PANELS <= end; panel += STEP_PANELS)
        for (int t = 0; t < m->n_tokens; t++)
            product_tile(m, storage, panel, t, STEP_PANELS, 1);
    for (; panel < end; panel++)
        for (int t = 0; t < m->n_tokens; t++)
            product_tile(m, storage, panel, t, 1, 1);
}

/* Many tokens: n_panels panels stay in the cache while all tokens pass them. */
ALWAYS_INLINE void matmul_panels(const struct matmul *m, enum storage storage, int panel,
                                 const int n_panels)
{
    const int wide = storage_is_quantised(storage) ? QUANT_TOKENS : TILE_TOKENS;
    int t = 0;
    for (; t + wide <= m->n_tokens; t += wide)
        product_tile(m, storage, panel, t, n_panels, wide);
    if (wide > 4)
        for (; t + 4 <= m->n_tokens; t += 4)
            product_tile(m, storage, panel, t, n_panels, 4);
    for (; t < m->n_tokens; t++)
        product_tile(m, storage, panel, t, n_panels, 1);
}

ALWAYS_INLINE void matmul_storage(const struct matmul *m, enum storage storage, int begin, int end)
{
    if (m->n_tokens < 4) {
        matmul_few(m, storage, begin, end);
        return;
    }
    const int n_panels = storage_is_quantised(storage) ? QUANT_PANELS : TILE_PANELS;
    int panel = begin;
    for (; panel + n_panels <= end; panel += n_panels)
        matmul_panels(m, storage, panel, n_panels);
    for (; panel < end; panel++)
        matmul_panels(m, storage, panel, 1);
}

static void vector_matmul(const struct matmul *m, int panel_begin, int panel_end)
{
    matmul_check(m, panel_begin, panel_end);
    switch (m->w->storage) {
    case STORAGE_F16:
        matmul_storage(m, STORAGE_F16, panel_begin, panel_end);
        break;
    case STORAGE_BF16:
        matmul_storage(m, STORAGE_BF16, panel_begin, panel_end);
        break;
    case STORAGE_Q8_0:
        matmul_storage(m, STORAGE_Q8_0, panel_begin, panel_end);
        break;
    case STORAGE_Q4_0:
        matmul_storage(m, STORAGE_Q4_0, panel_begin, panel_end);
        break;
    default:
        matmul_storage(m, STORAGE_F32, panel_begin, panel_end);
    }
}

/* --- layer norm ------------------------------------------------------------------------------ */

static void vector_layer_norm(float *out, const float *x, const float *gain, const float *bias,
                              int n, float eps)
{
    norm_check(out, x, gain, n, eps);
    const int whole = n / KERNEL_LANES * KERNEL_LANES;
    const int rest = n - whole;
    lanes sum = lanes_zero();
    for (int i = 0; i < whole; i += KERNEL_LANES)
        sum = lanes_add(sum, lanes_load(x + i));
    if (rest)
        sum = lanes_add(sum, lanes_load_n(x + whole, rest));
    const lanes mean = lanes_all(lanes_sum(sum) / (float)n);

    lanes squares = lanes_zero();
    for (int i = 0; i < whole; i += KERNEL_LANES) {
        const lanes d = lanes_sub(lanes_load(x + i), mean);
        squares = lanes_fma(d, d, squares);
    }
    if (rest) {
        const lanes d = lanes_sub(lanes_load_n(x + whole, rest), mean);
        squares = lanes_first(lanes_fma(d, d, squares), squares, rest);
    }
    const lanes scale = lanes_all(1.0f / sqrtf(lanes_sum(squares) / (float)n + eps));

    for (int i = 0; i < whole; i += KERNEL_LANES) {
        const lanes normed = lanes_mul(lanes_sub(lanes_load(x + i), mean), scale);
        const lanes shift = bias ? lanes_load(bias + i) : lanes_zero();
        lanes_store(out + i, lanes_fma(normed, lanes_load(gain + i), shift));
    }
    if (rest) {
        const lanes normed = lanes_mul(lanes_sub(lanes_load_n(x + whole, rest), mean), scale);
        const lanes shift = bias ? lanes_load_n(bias + whole, rest) : lanes_zero();
        lanes_store_n(out + whole, lanes_fma(normed, lanes_load_n(gain + whole, rest), shift),
                      rest);
    }
}

/* --- attention ------------------------------------------------------------------------------- */

/*
 * Panels of keys and rows of values to ask for ahead. The runs of memory between jumps are short
 * here, too: with a narrow cache MHA gains 5 to 25%, GQA 30%; F32 nothing.
 */
#define AHEAD_PANELS 4
#define AHEAD_ROWS   32

/* The cache lines of n elements from index `first` on. */
ALWAYS_INLINE void prefetch_cache(const void *base, enum storage storage, size_t first, size_t n)
{
    if (storage == STORAGE_F32)
        return;
    const size_t element = storage == STORAGE_F16 ? sizeof(uint16_t) : sizeof(int8_t);
    const unsigned char *from = (const unsigned char *)base + first * element;
#pragma GCC unroll 4
    for (size_t line = 0; line < n * element; line += 64)
        __builtin_prefetch(from + line);
}

/* acc[panel][head] += q.k over the dimensions [begin, end). */
ALWAYS_INLINE void score_dims(const struct attend *a, enum storage storage, int panel,
                              const float *q, size_t begin, size_t end, const int n_panels,
                              const int n_heads, lanes acc[4][4])
{
    const size_t dim = (size_t)a->kv.head_dim;
    for (size_t i = begin; i < end; i++) {
        lanes k[4];
        if (i % 4 == 0) { /* whole lines, in each storage */
#pragma GCC unroll 4
            for (int p = 0; p < n_panels; p++)
                prefetch_cache(a->kv.k, storage,
                               ((size_t)(panel + p + AHEAD_PANELS) * dim + i) * KERNEL_LANES,
                               4 * KERNEL_LANES);
        }
#pragma GCC unroll 4
        for (int p = 0; p < n_panels; p++)
            k[p] = load_element(a->kv.k, storage, ((size_t)(panel + p) * dim + i) * KERNEL_LANES);
#pragma GCC unroll 4
        for (int h = 0; h < n_heads; h++) {
            const lanes qh = lanes_all(q[(size_t)h * dim + i]);
#pragma GCC unroll 4
            for (int p = 0; p < n_panels; p++)
                acc[p][h] = lanes_fma(k[p], qh, acc[p][h]);
        }
    }
}

ALWAYS_INLINE void clear_tile(lanes acc[4][4], const int n, const int m)
{
#pragma GCC unroll 4
    for (int i = 0; i < n; i++)
#pragma GCC unroll 4
        for (int j = 0; j < m; j++)
            acc[i][j] = lanes_zero();
}

/* The same over quantised keys: block by block, then times the block's scales. */
ALWAYS_INLINE void score_quant_dims(const struct attend *a, int panel, const float *q,
                                    const int n_panels, const int n_heads, lanes acc[4][4])
{
    const size_t dim = (size_t)a->kv.head_dim;
    const size_t n_blocks = (size_t)quant_blocks(a->kv.head_dim);
    for (size_t b = 0; b < n_blocks; b++) {
        const size_t begin = b * QUANT_BLOCK;
        const size_t end = begin + QUANT_BLOCK < dim ? begin + QUANT_BLOCK : dim;
        lanes part[4][4];
        clear_tile(part, n_panels, n_heads);
        score_dims(a, STORAGE_Q8_0, panel, q, begin, end, n_panels, n_heads, part);
#pragma GCC unroll 4
        for (int p = 0; p < n_panels; p++) {
            const lanes scale = lanes_load_f16(a->kv.k_scales +
                                               ((size_t)(panel + p) * n_blocks + b) * KERNEL_LANES);
#pragma GCC unroll 4
            for (int h = 0; h < n_heads; h++)
                acc[p][h] = lanes_fma(part[p][h], scale, acc[p][h]);
        }
    }
}

/* Scores of n_panels * KERNEL_LANES positions for n_heads heads. */
ALWAYS_INLINE void score_tile(const struct attend *a, enum storage storage, int panel, int head,
                              const int n_panels, const int n_heads)
{
    const size_t dim = (size_t)a->kv.head_dim;
    const float *q = a->q + (size_t)head * dim;
    lanes acc[4][4];
    clear_tile(acc, n_panels, n_heads);
    if (storage == STORAGE_Q8_0)
        score_quant_dims(a, panel, q, n_panels, n_heads, acc);
    else
        score_dims(a, storage, panel, q, 0, dim, n_panels, n_heads, acc);
#pragma GCC unroll 4
    for (int h = 0; h < n_heads; h++)
#pragma GCC unroll 4
        for (int p = 0; p < n_panels; p++)
            lanes_store(a->scores + (size_t)(head + h) * KERNEL_CHUNK +
                            (size_t)(panel + p) * KERNEL_LANES,
                        acc[p][h]);
}

/* All heads against n_panels panels (1 or 4), which stay in the nearest cache meanwhile. */
ALWAYS_INLINE void score_panels(const struct attend *a, enum storage storage, int panel,
                                const int n_panels)
{
    int h = 0;
    for (; h + 4 <= a->n_heads; h += 4)
        for (int p = 0; p < n_panels; p++)
            score_tile(a, storage, panel + p, h, 1, 4);
    for (; h < a->n_heads; h++)
        score_tile(a, storage, panel, h, n_panels, 1);
}

/* Turns one head's scores into exp(score - max); sets max and the sum. */
static void softmax_chunk(float *scores, int n, float *max_out, float *sum_out)
{
    const int n_panels = (n + KERNEL_LANES - 1) / KERNEL_LANES;
    for (int t = n; t < n_panels * KERNEL_LANES; t++)
        scores[t] = -INFINITY;
    lanes max = lanes_all(-INFINITY);
    for (int p = 0; p < n_panels; p++)
        max = lanes_max(max, lanes_load(scores + p * KERNEL_LANES));
    *max_out = lanes_largest(max);
    max = lanes_all(*max_out);
    lanes sum = lanes_zero();
    for (int p = 0; p < n_panels; p++) {
        const lanes e = lanes_exp(lanes_sub(lanes_load(scores + p * KERNEL_LANES), max));
        lanes_store(scores + p * KERNEL_LANES, e);
        sum = lanes_add(sum, e);
    }
    *sum_out = lanes_sum(sum);
}

/* out for n_vecs * KERNEL_LANES dimensions of n_heads heads: one pass over the V rows. */
ALWAYS_INLINE void value_tile(const struct attend *a, enum storage storage, int head, int first,
                              const int n_heads, const int n_vecs)
{
    const size_t dim = (size_t)a->kv.head_dim;
    const size_t v_stride = (size_t)kernel_padded(a->kv.head_dim);
    const float *p = a->scores + (size_t)head * KERNEL_CHUNK;
    const size_t n_blocks = (size_t)quant_blocks(a->kv.head_dim);
    lanes acc[4][4];
    clear_tile(acc, n_heads, n_vecs);
    for (int t = 0; t < a->kv.n_positions; t++) {
        lanes v[4];
        prefetch_cache(a->kv.v, storage, (size_t)(t + AHEAD_ROWS) * v_stride + (size_t)first,
                       (size_t)n_vecs * KERNEL_LANES);
#pragma GCC unroll 4
        for (int j = 0; j < n_vecs; j++) {
            const int i = first + j * KERNEL_LANES;
            v[j] = load_element(a->kv.v, storage, (size_t)t * v_stride + (size_t)i);
            if (storage == STORAGE_Q8_0)
                v[j] = lanes_mul(
                    v[j], lanes_all_f16(
                              a->kv.v_scales[(size_t)t * n_blocks + (size_t)(i / QUANT_BLOCK)]));
        }
#pragma GCC unroll 4
        for (int h = 0; h < n_heads; h++) {
            const lanes ph = lanes_all(p[(size_t)h * KERNEL_CHUNK + (size_t)t]);
#pragma GCC unroll 4
            for (int j = 0; j < n_vecs; j++)
                acc[h][j] = lanes_fma(ph, v[j], acc[h][j]);
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < n_heads; h++) {
        float *out = a->out + (size_t)(head + h) * dim + first;
#pragma GCC unroll 4
        for (int j = 0; j < n_vecs; j++) {
            const int left = (int)dim - first - j * KERNEL_LANES;
            lanes_store_upto(out + j * KERNEL_LANES, acc[h][j], left);
        }
    }
}

/* All dimensions of n_heads heads; n_vecs at a time, the tail one by one. */
ALWAYS_INLINE void value_heads(const struct attend *a, enum storage storage, int head,
                               const int n_heads, const int n_vecs)
{
    const int dim = a->kv.head_dim;
    int i = 0;
    for (; i + n_vecs * KERNEL_LANES <= dim; i += n_vecs * KERNEL_LANES)
        value_tile(a, storage, head, i, n_heads, n_vecs);
    for (; i < dim; i += KERNEL_LANES)
        value_tile(a, storage, head, i, n_heads, 1);
}

ALWAYS_INLINE void attend_storage(const struct attend *a, enum storage storage)
{
    const int n_panels = (a->kv.n_positions + KERNEL_LANES - 1) / KERNEL_LANES;
    int panel = 0;
    for (; panel + 4 <= n_panels; panel += 4)
        score_panels(a, storage, panel, 4);
    for (; panel < n_panels; panel++)
        score_panels(a, storage, panel, 1);

    for (int h = 0; h < a->n_heads; h++)
        softmax_chunk(a->scores + (size_t)h * KERNEL_CHUNK, a->kv.n_positions, &a->max[h],
                      &a->sum[h]);

    int h = 0;
    for (; h + 4 <= a->n_heads; h += 4)
        value_heads(a, storage, h, 4, TILE_ACC / 4);
    for (; h + 2 <= a->n_heads; h += 2)
        value_heads(a, storage, h, 2, TILE_ACC / 4);
    for (; h < a->n_heads; h++)
        value_heads(a, storage, h, 1, 4);
}

static void vector_attend(const struct attend *a)
{
    attend_check(a);
    if (a->kv.storage == STORAGE_Q8_0)
        attend_storage(a, STORAGE_Q8_0);
    else if (a->kv.storage == STORAGE_F16)
        attend_storage(a, STORAGE_F16);
    else
        attend_storage(a, STORAGE_F32);
}

static void vector_merge(float *out, const float *parts, const float *max, const float *sum,
                         int n_chunks, size_t stride, int n)
{
    merge_check(out, parts, max, sum, n_chunks, stride, n);
    float largest = max[0];
    for (int c = 1; c < n_chunks; c++)
        largest = largest > max[(size_t)c * stride] ? largest : max[(size_t)c * stride];
    float total = 0;
    for (int c = 0; c < n_chunks; c++)
        total = fmaf(math_exp(max[(size_t)c * stride] - largest), sum[(size_t)c * stride], total);
    for (int i = 0; i < n; i += KERNEL_LANES) {
        lanes acc = lanes_zero();
        for (int c = 0; c < n_chunks; c++) {
            const lanes weight = lanes_all(math_exp(max[(size_t)c * stride] - largest));
            acc = lanes_fma(weight, lanes_load_upto(parts + (size_t)c * stride + i, n - i), acc);
        }
        lanes_store_upto(out + i, lanes_div(acc, lanes_all(total)), n - i);
    }
}

/* --- conversion ------------------------------------------------------------------------------ */

static void vector_to_f16(uint16_t *out, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + KERNEL_LANES <= n; i += KERNEL_LANES)
        lanes_store_f16(out + i, lanes_load(x + i));
    for (; i < n; i++)
        out[i] = f16_round(x[i]);
}

static void vector_from_f16(float *out, const uint16_t *x, size_t n)
{
    size_t i = 0;
    for (; i + KERNEL_LANES <= n; i += KERNEL_LANES)
        lanes_store(out + i, lanes_load_f16(x + i));
    for (; i < n; i++)
        out[i] = f16_widen(x[i]);
}

const struct kernels VECTOR_TABLE = {
    .name = VECTOR_NAME,
    .matmul = vector_matmul,
    .quantize = vector_quantize,
    .norm = {[NORM_LAYER] = vector_layer_norm},
    .attend = vector_attend,
    .merge = vector_merge,
    .to_f16 = vector_to_f16,
    .from_f16 = vector_from_f16,
    .read = vector_read,
    .fma = vector_fma,
    .dot = vector_dot,
};
