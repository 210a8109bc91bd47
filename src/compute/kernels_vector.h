/*
 * kernels_vector - the kernels in vector form. The Makefile compiles this file, kernels_attend.h
 * and grad_vector.h once for each instruction set of the machine.
 *
 * The order of operations on every output is that of kernels_scalar.c; tiles only choose how many
 * outputs are in flight.
 */
#include "base/levels.h"
#include "compute/grad_kernels.h"
#include "compute/kernels_check.h"
#include "compute/kernels_matmul.h"
#include "compute/kernels_tile.h"

/* --- norms ----------------------------------------------------------------------------------- */

static void vector_norm(enum norm_kind kind, float *out, const float *x, const float *gain,
                        const float *bias, int n, float eps)
{
    norm_check(kind, out, x, gain, n, eps);
    float stats[2];
    lanes_norm_stats(kind, x, n, eps, stats);
    const lanes mean = lanes_all(stats[0]), scale = lanes_all(stats[1]);
    for (int i = 0; i < n; i += KERNEL_LANES) {
        const lanes normed = lanes_mul(lanes_sub(lanes_load_upto(x + i, n - i), mean), scale);
        const lanes factor = gain ? lanes_load_upto(gain + i, n - i) : lanes_all(1.0f);
        const lanes shift = bias ? lanes_load_upto(bias + i, n - i) : lanes_zero();
        lanes_store_upto(out + i, lanes_fma(normed, factor, shift), n - i);
    }
}

/* --- rotary positions ------------------------------------------------------------------------ */

static void vector_rotate(float *out, const float *x, const float *rotation, int n_rot, int n,
                          float scale, bool back)
{
    rotate_check(out, x, rotation, n_rot, n);
    const lanes along = lanes_all(scale), across = lanes_all(back ? -scale : scale);
    for (int i = 0; i < n; i += KERNEL_LANES) { /* no pair is in two vectors */
        const lanes a = lanes_load_upto(x + i, n - i);
        const int left = n_rot - i;
        lanes rotated = lanes_mul(along, a);
        if (left > 0) {
            const lanes c = lanes_load_upto(rotation + i, left);
            const lanes s = lanes_load_upto(rotation + n_rot + i, left);
            const lanes other = lanes_mul(lanes_mul(across, lanes_exchange(a, 1)), s);
            const lanes both = lanes_fma(rotated, c, other);
            rotated = left < KERNEL_LANES ? lanes_first(both, rotated, left) : both;
        }
        lanes_store_upto(out + i, rotated, n - i);
    }
}

/* --- Hadamard matrices ----------------------------------------------------------------------- */

/* a + b where the lane's place has no such bit, a - b where it has; b is as far apart. */
ALWAYS_INLINE lanes butterfly(lanes a, int bit, const float *signs)
{
    return lanes_fma(a, lanes_load(signs), lanes_exchange(a, bit));
}

static void vector_hadamard(float *x, int n, int size)
{
    static const float signs[][KERNEL_LANES] = {
        {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
        {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
        {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
        {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};
    hadamard_check(x, n, size);
    if (size == 0)
        return;
    const lanes scale = lanes_all(1 / sqrtf((float)size));
    for (int i = 0; i < n; i += KERNEL_LANES) {
        lanes a = butterfly(lanes_load_upto(x + i, n - i), 1, signs[0]);
        a = lanes_mul(butterfly(a, 2, signs[1]), scale);
        a = butterfly(a, 4, signs[2]);
        if (size > 8)
            a = butterfly(a, 8, signs[3]);
        lanes_store_upto(x + i, a, n - i);
    }
    for (int half = KERNEL_LANES; half < size; half *= 2)
        for (int first = 0; first < n; first += 2 * half)
            for (int i = first; i < first + half; i += KERNEL_LANES) {
                const lanes a = lanes_load(x + i), b = lanes_load(x + i + half);
                lanes_store(x + i, lanes_add(a, b));
                lanes_store(x + i + half, lanes_sub(a, b));
            }
}

/* --- joining chunks -------------------------------------------------------------------------- */

/* A chunk's weight, an exponential, is found once for the usual 64 dimensions. */
#define MERGE_VECTORS 4

/* n_vecs vectors of a merged head from element i on, of n; the last may be shorter. */
ALWAYS_INLINE void merge_vectors(float *out, const float *partials, const float *max, float largest,
                                 float total, int n_chunks, size_t stride, int i, int n,
                                 const int n_vecs)
{
    lanes acc[MERGE_VECTORS];
    UNROLLED (j, n_vecs)
        acc[j] = lanes_zero();
    for (int c = 0; c < n_chunks; c++, partials += stride) {
        const lanes weight = lanes_all(math_weight(max[c * stride] - largest));
        UNROLLED (j, n_vecs) {
            const int at = i + j * KERNEL_LANES;
            acc[j] = lanes_fma(weight, lanes_load_upto(partials + at, n - at), acc[j]);
        }
    }
    UNROLLED (j, n_vecs) {
        const int at = i + j * KERNEL_LANES;
        lanes_store_upto(out + at, lanes_div(acc[j], lanes_all(total)), n - at);
    }
}

static void vector_merge(float *out, const float *partials, const float *max, const float *sum,
                         int n_chunks, size_t stride, int n)
{
    merge_check(out, partials, max, sum, n_chunks, stride, n);
    float largest = max[0];
    for (int c = 1; c < n_chunks; c++)
        largest = MAX(largest, max[c * stride]);
    float total = 0;
    for (int c = 0; c < n_chunks; c++)
        total = fmaf(math_weight(max[c * stride] - largest), sum[c * stride], total);
    int i = 0;
    for (; i + MERGE_VECTORS * KERNEL_LANES <= n; i += MERGE_VECTORS * KERNEL_LANES)
        merge_vectors(out, partials, max, largest, total, n_chunks, stride, i, n, MERGE_VECTORS);
    for (; i < n; i += KERNEL_LANES)
        merge_vectors(out, partials, max, largest, total, n_chunks, stride, i, n, 1);
}

static void vector_to_f16(uint16_t *out, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + KERNEL_LANES <= n; i += KERNEL_LANES)
        lanes_store_f16(out + i, lanes_load(x + i));
    for (; i < n; i++)
        out[i] = f16_round(x[i]);
}

/* --- loops that load the machine, to measure it ----------------------------------------------- */

/* Chains that run at once: as many as the registers hold, 6 or all 12. Either covers the latency.
 */
#define CHAINS_AT_ONCE MIN(TILE_ACC, KERNEL_CHAINS)
_Static_assert(KERNEL_CHAINS % CHAINS_AT_ONCE == 0 && CHAINS_AT_ONCE % 3 == 0, "whole tiles");

static float vector_read(const float *x, size_t n)
{
    lanes acc[8];
    for (int a = 0; a < 8; a++)
        acc[a] = lanes_zero();
    size_t i = 0;
    for (; i + 8 * KERNEL_LANES <= n; i += 8 * KERNEL_LANES)
        UNROLLED (a, 8)
            acc[a] = lanes_add(acc[a], lanes_load(x + i + (size_t)a * KERNEL_LANES));
    float rest = 0;
    for (; i < n; i++)
        rest += x[i];
    for (int a = 1; a < 8; a++)
        acc[0] = lanes_add(acc[0], acc[a]);
    return lanes_sum(acc[0]) + rest;
}

/* Lanes differ, or a compiler would multiply one half for both. */
static float vector_fma(long rounds)
{
    float start[KERNEL_LANES];
    for (int l = 0; l < KERNEL_LANES; l++)
        start[l] = (float)l;
    lanes total = lanes_zero();
    const lanes half = lanes_all(0.5f), one = lanes_all(1.0f);
    for (int first = 0; first < KERNEL_CHAINS; first += CHAINS_AT_ONCE) {
        lanes acc[CHAINS_AT_ONCE];
        for (int a = 0; a < CHAINS_AT_ONCE; a++)
            acc[a] = lanes_add(lanes_load(start), lanes_all((float)(first + a)));
        for (long r = 0; r < rounds; r++)
            UNROLLED (a, CHAINS_AT_ONCE)
                acc[a] = lanes_fma(acc[a], half, one);
        for (int a = 0; a < CHAINS_AT_ONCE; a++)
            total = lanes_add(total, acc[a]);
    }
    return lanes_sum(total);
}

/* A tile of 3 panels. Its weights come from memory and change from round to round, because a
 * compiler would keep a product that is the same twice. The dot product is Q4_0's: no table has a
 * cheaper one.
 */
static float vector_dot(long rounds)
{
    uint8_t weights[12 * QUAD_BYTES];
    int32_t quads[CHAINS_AT_ONCE / 3];
    for (int i = 0; i < 12 * QUAD_BYTES; i++)
        weights[i] = (uint8_t)(i % 15);
    for (int j = 0; j < CHAINS_AT_ONCE / 3; j++)
        quads[j] = 0x01020304 + j;
    lanes total = lanes_zero();
    for (int first = 0; first < KERNEL_CHAINS; first += CHAINS_AT_ONCE) {
        ints acc[CHAINS_AT_ONCE];
        for (int a = 0; a < CHAINS_AT_ONCE; a++)
            acc[a] = ints_all(first + a);
#pragma GCC unroll 2 /* copies of registers between rounds cost gcc's loop a sixth */
        for (long r = 0; r < rounds; r++) {
            bytes w[3];
            UNROLLED (p, 3)
                w[p] = bytes_load(weights + (r % 4 * 3 + p) * QUAD_BYTES);
            UNROLLED (a, CHAINS_AT_ONCE)
                acc[a] = ints_dot_halves(acc[a], w[a % 3], quads[a / 3]);
        }
        for (int a = 0; a < CHAINS_AT_ONCE; a++)
            total = lanes_add(total, ints_to_lanes(acc[a]));
    }
    return lanes_sum(total);
}

MATMUL_OF(static, matmul_f32, STORAGE_F32)
MATMUL_OF(static, matmul_f16, STORAGE_F16)
MATMUL_OF(static, matmul_bf16, STORAGE_BF16)
MATMUL_OF(static, matmul_q8_0, STORAGE_Q8_0)
MATMUL_OF(static, matmul_q4_0, STORAGE_Q4_0)

static void vector_matmul(const struct matmul *m, int panel_begin, int panel_end)
{
    static void (*const by_storage[STORAGE_COUNT])(const struct matmul *, int, int) = {
        [STORAGE_F32] = matmul_f32,   [STORAGE_F16] = matmul_f16,   [STORAGE_BF16] = matmul_bf16,
        [STORAGE_Q8_0] = matmul_q8_0, [STORAGE_Q4_0] = matmul_q4_0,
    };
    matmul_check(m, panel_begin, panel_end);
    by_storage[m->w->storage](m, panel_begin, panel_end);
}

/* --- the table ------------------------------------------------------------------------------- */

const struct kernels OF_SET(kernels) = {
    .name = SET_NAME,
    .grad = &OF_SET(grad),
    .matmul = vector_matmul,
    .quantize = vector_quantize,
    .norm = vector_norm,
    .rotate = vector_rotate,
    .hadamard = vector_hadamard,
    .levels = block_levels,
    .attend = OF_SET(attend),
    .merge = vector_merge,
    .to_f16 = vector_to_f16,
    .read = vector_read,
    .fma = vector_fma,
    .dot = vector_dot,
};
