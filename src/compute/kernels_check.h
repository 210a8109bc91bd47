/*
 * kernels_check - the contracts of kernels.h, asserted (private to the kernel objects).
 *
 * Each kernel calls its check first; all are static, for the reason in kernels_math.h. They are not
 * inlined, so that what they tell a compiler does not change how it makes the loops. Kernels that
 * run for every head or row check their pointers only in builds that check at a cost.
 */
#pragma once

#include "base/mem.h"
#include "compute/kernels.h"

#define KERNEL_CHECK static __attribute__((noinline, unused)) void

/* From the first to the last element of n_rows rows of n floats. */
static inline size_t span_bytes(int n_rows, size_t stride, int n)
{
    return ((n_rows - 1) * stride + n) * sizeof(float);
}

static inline bool rows_are_sound(const void *rows, int n_rows, size_t stride, int n)
{
    return is_aligned(rows, sizeof(float)) && n_rows >= 1 && n >= 1 &&
           (n_rows == 1 || stride >= (size_t)n);
}

KERNEL_CHECK matmul_check(const struct matmul *m, int panel_begin, int panel_end)
{
    const struct matrix *w = m->w;
    assert(w->n_out >= 1 && w->n_in >= 1);
    assert((unsigned)w->storage < STORAGE_COUNT && (unsigned)m->epilogue < EPILOGUES);
    assert(0 <= panel_begin && panel_begin <= panel_end && panel_end <= matrix_panels(w->n_out));
    assert(rows_are_sound(m->y, m->n_tokens, m->y_stride, w->n_out));
    if (storage_is_quantised(w->storage)) {
        assert(w->n_in % QUANT_BLOCK == 0 && is_aligned(w->panels, sizeof(uint16_t)));
        assert(is_aligned(m->quants, sizeof(float)));
        return;
    }
    assert(is_aligned(w->panels, w->storage == STORAGE_F32 ? sizeof(float) : sizeof(uint16_t)));
    assert(rows_are_sound(m->x, m->n_tokens, m->x_stride, w->n_in));
    assert_costly(are_disjoint(m->y, span_bytes(m->n_tokens, m->y_stride, w->n_out), m->x,
                               span_bytes(m->n_tokens, m->x_stride, w->n_in)));
}

KERNEL_CHECK quantize_check(const void *rows, const float *x, size_t x_stride, int n_tokens, int n)
{
    assert(n % QUANT_BLOCK == 0 && is_aligned(rows, sizeof(float)));
    assert(rows_are_sound(x, n_tokens, x_stride, n));
    assert_costly(
        are_disjoint(rows, n_tokens * quant_row_bytes(n), x, span_bytes(n_tokens, x_stride, n)));
}

KERNEL_CHECK norm_check(enum norm_kind kind, const float *out, const float *x, const float *gain,
                        int n, float eps)
{
    assert((unsigned)kind < NORM_KINDS && n >= 1 && !(eps < 0));
    assert_costly(out && x);
    assert_costly(out == x || are_disjoint(out, span_bytes(1, 0, n), x, span_bytes(1, 0, n)));
    assert_costly(!gain || are_disjoint(out, span_bytes(1, 0, n), gain, span_bytes(1, 0, n)));
}

KERNEL_CHECK rotate_check(const float *out, const float *x, const float *rotation, int n_rot, int n)
{
    assert(n >= 1 && n_rot >= 0 && n_rot <= n && n_rot % 2 == 0);
    assert_costly(out && x && (rotation || n_rot == 0));
    assert_costly(out == x || are_disjoint(out, span_bytes(1, 0, n), x, span_bytes(1, 0, n)));
    assert_costly(n_rot == 0 ||
                  are_disjoint(out, span_bytes(1, 0, n), rotation, span_bytes(2, n_rot, n_rot)));
}

KERNEL_CHECK hadamard_check(const float *x, int n, int size)
{
    assert(size == 0 || (n >= 1 && size >= 8 && size <= CACHE_MOST_ROTATED &&
                         (size & (size - 1)) == 0 && n % size == 0));
    assert_costly(x);
}

KERNEL_CHECK attend_check(const struct attend *a)
{
    const struct kv_chunk *kv = &a->kv;
    assert(kv->n_positions >= 1 && kv->n_positions <= KERNEL_CHUNK);
    assert(a->n_first >= 1 && a->n_first <= kv->n_positions);
    assert(a->n_hidden >= 0 && a->n_hidden < MIN(a->n_first, KERNEL_LANES));
    assert(kv->key_dim >= 1 && kv->value_dim >= 1);
    assert(a->group >= 1 && a->n_heads >= a->group && a->n_heads % a->group == 0);
    assert((unsigned)kv->type.keys < CACHE_TYPES && (unsigned)kv->type.values < CACHE_TYPES);
    assert_costly(kv->k && kv->v);
    assert_costly(kv->k_scales || !cache_types[kv->type.keys].has_scales);
    assert_costly(kv->v_scales || !cache_types[kv->type.values].has_scales);
    assert(a->n_heads == 1 || a->stride >= (size_t)kv->value_dim);
    assert(!a->bias || a->distance >= a->n_first - 1);
    assert_costly(a->q && a->scores && a->max && a->sum && a->out);
    assert_costly(are_disjoint(a->out, span_bytes(a->n_heads, a->stride, kv->value_dim), a->q,
                               span_bytes(a->n_heads, kv->key_dim, kv->key_dim)));
}

KERNEL_CHECK merge_check(const float *out, const float *partials, const float *max,
                         const float *sum, int n_chunks, size_t stride, int n)
{
    assert(n_chunks >= 1 && n >= 1 && (n_chunks == 1 || stride >= (size_t)n));
    assert_costly(out && partials && max && sum);
    assert_costly(
        are_disjoint(out, span_bytes(1, 0, n), partials, span_bytes(n_chunks, stride, n)));
}
