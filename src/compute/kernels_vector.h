/*
 * kernels_vector - the kernels in vector form, included by one object an instruction set
 * (private).
 *
 * The includer defines VECTOR_NAME and VECTOR_TABLE, and the sizes of the register tiles:
 *   TILE_ACC      accumulators (lanes) of attention, and
 *   TILE_HEADS    query heads that one pass over keys and values serves (see kernels_attend.h)
 *   TILE_PANELS   weight panels and
 *   TILE_TOKENS   tokens that a prefill tile covers
 *   QUANT_PANELS, QUANT_TOKENS  the same for quantised weights, whose tiles need integer
 *                 accumulators too
 * The order of operations on every output is that of kernels_scalar.c; tiles only choose how
 * many outputs are in flight.
 */
#include "compute/kernels_attend.h"
#include "compute/kernels_check.h"
#include "compute/kernels_quant.h"
#include "compute/kernels_tile.h"

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

/* --- joining chunks -------------------------------------------------------------------------- */

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

/* --- the machine ----------------------------------------------------------------------------- */

static float vector_read(const float *x, size_t n)
{
    lanes acc[8];
    for (int a = 0; a < 8; a++)
        acc[a] = lanes_zero();
    size_t i = 0;
    for (; i + 8 * KERNEL_LANES <= n; i += 8 * KERNEL_LANES)
#pragma GCC unroll 8
        for (int a = 0; a < 8; a++)
            acc[a] = lanes_add(acc[a], lanes_load(x + i + (size_t)a * KERNEL_LANES));
    float rest = 0;
    for (; i < n; i++)
        rest += x[i];
    for (int a = 1; a < 8; a++)
        acc[0] = lanes_add(acc[0], acc[a]);
    return lanes_sum(acc[0]) + rest;
}

static float vector_fma(long rounds)
{
    lanes acc[KERNEL_FMA_CHAINS];
    for (int a = 0; a < KERNEL_FMA_CHAINS; a++)
        acc[a] = lanes_all((float)a);
    const lanes half = lanes_all(0.5f), one = lanes_all(1.0f);
    for (long r = 0; r < rounds; r++)
#pragma GCC unroll 12
        for (int a = 0; a < KERNEL_FMA_CHAINS; a++)
            acc[a] = lanes_fma(acc[a], half, one);
    for (int a = 1; a < KERNEL_FMA_CHAINS; a++)
        acc[0] = lanes_add(acc[0], acc[a]);
    return lanes_sum(acc[0]);
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
};
