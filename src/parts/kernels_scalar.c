/*
 * The definition of every kernel, in plain C: what it computes and in which order. Slow where the
 * target has no fused multiply-add of its own, because fmaf is then a call.
 */
#include <assert.h>

#include "parts/kernels.h"
#include "parts/kernels_math.h"

/* Folds interleaved partial sums in a fixed tree: 8 + 8, 4 + 4, 2 + 2, 1 + 1. */
static float fold(float *lanes)
{
    for (int width = KERNEL_LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    return lanes[0];
}

static void scalar_matmul(const struct matmul *m, int panel_begin, int panel_end)
{
    const struct matrix *w = m->w;
    int row_end = panel_end * KERNEL_LANES;
    if (row_end > w->n_out)
        row_end = w->n_out;
    for (int t = 0; t < m->n_tokens; t++) {
        const float *x = m->x + (size_t)t * m->x_stride;
        float *y = m->y + (size_t)t * m->y_stride;
        for (int r = panel_begin * KERNEL_LANES; r < row_end; r++) {
            const size_t panel = (size_t)(r / KERNEL_LANES) * (size_t)w->n_in;
            float s = 0;
            for (int i = 0; i < w->n_in; i++)
                s = fmaf(math_load(w->panels, w->storage,
                                   (panel + (size_t)i) * KERNEL_LANES + r % KERNEL_LANES),
                         x[i], s);
            if (w->bias)
                s += w->bias[r];
            switch (m->epilogue) {
            case EPILOGUE_STORE:
                y[r] = s;
                break;
            case EPILOGUE_ADD:
                y[r] += s;
                break;
            case EPILOGUE_GELU:
                y[r] = math_gelu(s);
                break;
            }
        }
    }
}

static void scalar_layer_norm(float *out, const float *x, const float *gain, const float *bias,
                              int n, float eps)
{
    float lanes[KERNEL_LANES] = {0};
    for (int i = 0; i < n; i++)
        lanes[i % KERNEL_LANES] += x[i];
    const float mean = fold(lanes) / (float)n;

    float squares[KERNEL_LANES] = {0};
    for (int i = 0; i < n; i++) {
        const float d = x[i] - mean;
        squares[i % KERNEL_LANES] = fmaf(d, d, squares[i % KERNEL_LANES]);
    }
    const float scale = 1.0f / sqrtf(fold(squares) / (float)n + eps);

    for (int i = 0; i < n; i++)
        out[i] = fmaf((x[i] - mean) * scale, gain[i], bias ? bias[i] : 0.0f);
}

static void scalar_attend(const struct attend *a)
{
    const struct kv_chunk *kv = &a->kv;
    const int dim = kv->head_dim;
    const size_t v_stride = (size_t)kernel_padded(dim);
    assert(kv->n_positions >= 1 && kv->n_positions <= KERNEL_CHUNK);
    for (int h = 0; h < a->n_heads; h++) {
        const float *q = a->q + (size_t)h * (size_t)dim;
        float *p = a->scores + (size_t)h * KERNEL_CHUNK;
        float max = -INFINITY;
        for (int t = 0; t < kv->n_positions; t++) {
            const size_t panel = (size_t)(t / KERNEL_LANES) * (size_t)dim;
            float s = 0;
            for (int i = 0; i < dim; i++)
                s = fmaf(math_load(kv->k, kv->storage,
                                   (panel + (size_t)i) * KERNEL_LANES + t % KERNEL_LANES),
                         q[i], s);
            p[t] = s;
            max = max > s ? max : s;
        }
        float lanes[KERNEL_LANES] = {0};
        for (int t = 0; t < kv->n_positions; t++) {
            p[t] = math_exp(p[t] - max);
            lanes[t % KERNEL_LANES] += p[t];
        }
        a->max[h] = max;
        a->sum[h] = fold(lanes);
        for (int i = 0; i < dim; i++) {
            float o = 0;
            for (int t = 0; t < kv->n_positions; t++)
                o = fmaf(p[t], math_load(kv->v, kv->storage, (size_t)t * v_stride + (size_t)i), o);
            a->out[(size_t)h * (size_t)dim + (size_t)i] = o;
        }
    }
}

static void scalar_merge(float *out, const float *parts, const float *max, const float *sum,
                         int n_chunks, size_t stride, int n)
{
    float largest = max[0];
    for (int c = 1; c < n_chunks; c++)
        largest = largest > max[(size_t)c * stride] ? largest : max[(size_t)c * stride];
    float total = 0;
    for (int i = 0; i < n; i++)
        out[i] = 0;
    for (int c = 0; c < n_chunks; c++) {
        const float weight = math_exp(max[(size_t)c * stride] - largest);
        total = fmaf(weight, sum[(size_t)c * stride], total);
        for (int i = 0; i < n; i++)
            out[i] = fmaf(weight, parts[(size_t)c * stride + (size_t)i], out[i]);
    }
    for (int i = 0; i < n; i++)
        out[i] /= total;
}

static void scalar_to_f16(uint16_t *out, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = math_to_f16(x[i]);
}

static void scalar_from_f16(float *out, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = math_from_f16(x[i]);
}

static float scalar_read(const float *x, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static float scalar_fma(long rounds)
{
    float acc[KERNEL_FMA_CHAINS * KERNEL_LANES] = {0};
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < KERNEL_FMA_CHAINS * KERNEL_LANES; i++)
            acc[i] = fmaf(acc[i], 0.5f, 1.0f);
    return fold(acc);
}

const struct kernels kernels_scalar = {
    .name = "scalar",
    .matmul = scalar_matmul,
    .layer_norm = scalar_layer_norm,
    .attend = scalar_attend,
    .merge = scalar_merge,
    .to_f16 = scalar_to_f16,
    .from_f16 = scalar_from_f16,
    .read = scalar_read,
    .fma = scalar_fma,
};
