/*
 * The definition of every kernel, in plain C: what it computes and in which order. Slow where the
 * target has no fused multiply-add of its own, because fmaf is then a call.
 */
#include "base/levels.h"
#include "compute/grad_kernels.h"
#include "compute/kernels_check.h"
#include "compute/kernels_math.h"

/* Folds interleaved partial sums in a fixed tree: 8 + 8, 4 + 4, 2 + 2, 1 + 1. */
static float fold_lanes(float *lanes)
{
    for (int width = KERNEL_LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    return lanes[0];
}

/* The products of a panel's rows with x, side by side: one's next step does not wait for its last.
 */
static void float_dots(const struct matrix *w, int panel, const float *x, float *s)
{
    const struct panel_place at = matrix_place(w->n_out, w->n_in, panel);
    for (int l = 0; l < KERNEL_LANES; l++)
        s[l] = 0;
    for (int i = 0; i < w->n_in; i++)
        for (int l = 0; l < KERNEL_LANES; l++)
            s[l] = fmaf(math_load(w->panels, w->storage, at.first + i * at.column + l), x[i], s[l]);
}

/* The same of n rows from `first` on, whose blocks are products of integers. */
static void quant_dots(const struct matrix *w, int first, int n, const unsigned char *x, float *s)
{
    const unsigned char *panel = math_panel(w, first);
    const int n_blocks = w->n_in / QUANT_BLOCK;
    const int8_t *q = (const int8_t *)x;
    const float *x_scales = (const float *)(const void *)(x + w->n_in);
    for (int row = first; row < first + n; row++, s++) {
        *s = 0;
        for (int block = 0; block < n_blocks; block++) {
            int32_t sum = 0;
            for (int i = block * QUANT_BLOCK; i < (block + 1) * QUANT_BLOCK; i++)
                sum += math_quant(w, panel, row, i) * q[i];
            *s = fmaf((float)sum, math_quant_scale(panel, row, block) * x_scales[block], *s);
        }
    }
}

/* y = epilogue(s) */
static void store_output(float *y, float s, enum epilogue epilogue)
{
    *y = epilogue == EPILOGUE_ADD        ? *y + s
         : epilogue == EPILOGUE_MUL      ? *y * s
         : epilogue == EPILOGUE_GELU     ? math_gelu(s)
         : epilogue == EPILOGUE_GELU_ERF ? math_gelu_erf(s)
         : epilogue == EPILOGUE_RELU     ? math_relu(s)
         : epilogue == EPILOGUE_SILU     ? math_silu(s)
                                         : s;
}

static void scalar_matmul(const struct matmul *m, int panel_begin, int panel_end)
{
    matmul_check(m, panel_begin, panel_end);
    const struct matrix *w = m->w;
    for (int t = 0; t < m->n_tokens; t++)
        for (int panel = panel_begin; panel < panel_end; panel++) {
            const int first = panel * KERNEL_LANES, n = MIN(w->n_out - first, KERNEL_LANES);
            float s[KERNEL_LANES];
            if (storage_is_quantised(w->storage))
                quant_dots(w, first, n,
                           (const unsigned char *)m->quants + t * quant_row_bytes(w->n_in), s);
            else
                float_dots(w, panel, m->x + t * m->x_stride, s);
            for (int l = 0; l < n; l++) {
                if (w->bias)
                    s[l] += w->bias[first + l];
                store_output(&m->y[t * m->y_stride + first + l], s[l], m->epilogue);
            }
        }
}

static void scalar_quantize(void *rows, const float *x, size_t x_stride, int n_tokens, int n)
{
    quantize_check(rows, x, x_stride, n_tokens, n);
    const int n_blocks = n / QUANT_BLOCK;
    for (int t = 0; t < n_tokens; t++, x += x_stride) {
        unsigned char *row = (unsigned char *)rows + t * quant_row_bytes(n);
        float *scales = (float *)(void *)(row + n);
        int32_t *sums = (int32_t *)(void *)(scales + n_blocks);
        for (int block = 0; block < n_blocks; block++)
            math_quantize((int8_t *)row + block * QUANT_BLOCK, &scales[block], &sums[block],
                          x + block * QUANT_BLOCK);
    }
}

static void scalar_norm(enum norm_kind kind, float *out, const float *x, const float *gain,
                        const float *bias, int n, float eps)
{
    norm_check(kind, out, x, gain, n, eps);
    float sums[KERNEL_LANES] = {0}, squares[KERNEL_LANES] = {0};
    for (int i = 0; i < n; i++)
        sums[i % KERNEL_LANES] += x[i];
    const float mean = kind == NORM_LAYER ? fold_lanes(sums) / (float)n : 0;
    for (int i = 0; i < n; i++) {
        const float d = x[i] - mean;
        squares[i % KERNEL_LANES] = fmaf(d, d, squares[i % KERNEL_LANES]);
    }
    const float scale = 1.0f / sqrtf(fold_lanes(squares) / (float)n + eps);
    for (int i = 0; i < n; i++)
        out[i] = fmaf((x[i] - mean) * scale, gain ? gain[i] : 1.0f, bias ? bias[i] : 0.0f);
}

static void scalar_rotate(float *out, const float *x, const float *rotation, int n_rot, int n,
                          float scale, bool back)
{
    rotate_check(out, x, rotation, n_rot, n);
    const float across = back ? -scale : scale;
    for (int i = 0; i < n_rot; i += 2) {
        const float even = x[i], odd = x[i + 1];
        const float *c = rotation + i, *s = rotation + n_rot + i;
        out[i] = fmaf(scale * even, c[0], across * odd * s[0]);
        out[i + 1] = fmaf(scale * odd, c[1], across * even * s[1]);
    }
    for (int i = n_rot; i < n; i++)
        out[i] = scale * x[i];
}

/* Butterflies of neighbours at a distance of 1 and 2, then at all others, each for four at once. */
static void rotate_run(float *x, int size)
{
    const float scale = 1 / sqrtf((float)size);
    for (int i = 0; i < size; i += 4) {
        const float a = x[i] + x[i + 1], b = x[i] - x[i + 1];
        const float c = x[i + 2] + x[i + 3], d = x[i + 2] - x[i + 3];
        x[i] = (a + c) * scale;
        x[i + 1] = (b + d) * scale;
        x[i + 2] = (a - c) * scale;
        x[i + 3] = (b - d) * scale;
    }
    for (int half = 4; half < size; half *= 2)
        for (int first = 0; first < size; first += 2 * half)
            for (int i = first; i < first + half; i++) {
                const float a = x[i], b = x[i + half];
                x[i] = a + b;
                x[i + half] = a - b;
            }
}

static void scalar_hadamard(float *x, int n, int size)
{
    hadamard_check(x, n, size);
    for (int i = 0; size > 0 && i < n; i += size)
        rotate_run(x + i, size);
}

/* q.k of one position of the chunk, or w.tanh(q + k) where w is not NULL. */
static float chunk_score(const struct kv_chunk *kv, const float *q, const float *w, int t)
{
    const int dim = kv->key_dim;
    const bool quantised = cache_types[kv->type.keys].has_scales;
    float s = 0, scale = 1;
    if (w) {
        for (int i = 0; i < dim; i++) {
            const float k = math_chunk_key(kv, t, i, &scale);
            s = fmaf(w[i], math_tanh((quantised ? k * scale : k) + q[i]), s);
        }
        return s;
    }
    for (int begin = 0; begin < dim; begin += quantised ? QUANT_BLOCK : dim) {
        const int end = quantised ? MIN(begin + QUANT_BLOCK, dim) : dim;
        float part = 0;
        for (int i = begin; i < end; i++)
            part = fmaf(math_chunk_key(kv, t, i, &scale), q[i], part);
        s = quantised ? fmaf(part, scale, s) : part;
    }
    return s;
}

/* A head's exponentials; sets its max and sum. */
static const float *weigh_chunk(const struct attend *a, int h)
{
    const struct kv_chunk *kv = &a->kv;
    const int n = attend_positions(a, h), of_token = h % a->group;
    const float *q = a->q + h * kv->key_dim;
    const float *w = a->additive ? a->additive + of_token * kv->key_dim : NULL;
    float *p = a->scores + h * KERNEL_CHUNK;
    float max = -INFINITY;
    for (int t = 0; t < a->n_hidden; t++)
        p[t] = 0;
    for (int t = a->n_hidden; t < n; t++) {
        p[t] = chunk_score(kv, q, w, t);
        if (a->bias)
            p[t] = math_biased(&a->bias[of_token], (float)(a->distance + h / a->group - t), p[t]);
        max = MAX(max, p[t]);
    }
    float lanes[KERNEL_LANES] = {0};
    for (int t = a->n_hidden; t < n; t++) {
        p[t] = math_weight(p[t] - max);
        lanes[t % KERNEL_LANES] += p[t];
    }
    a->max[h * a->stride] = max;
    a->sum[h * a->stride] = fold_lanes(lanes);
    return p;
}

static void scalar_attend(const struct attend *a)
{
    attend_check(a);
    const struct kv_chunk *kv = &a->kv;
    for (int h = 0; h < a->n_heads; h++) {
        const float *p = weigh_chunk(a, h);
        for (int i = 0; i < kv->value_dim; i++) {
            float o = 0, scale;
            for (int t = a->n_hidden; t < attend_positions(a, h); t++) {
                const float v = math_chunk_value(kv, t, i, &scale);
                o = fmaf(p[t] * scale, v, o);
            }
            a->out[h * a->stride + i] = o;
        }
    }
}

static void scalar_merge(float *out, const float *partials, const float *max, const float *sum,
                         int n_chunks, size_t stride, int n)
{
    merge_check(out, partials, max, sum, n_chunks, stride, n);
    float largest = max[0];
    for (int c = 1; c < n_chunks; c++)
        largest = MAX(largest, max[c * stride]);
    float total = 0;
    for (int i = 0; i < n; i++)
        out[i] = 0;
    for (int c = 0; c < n_chunks; c++) {
        const float weight = math_weight(max[c * stride] - largest);
        total = fmaf(weight, sum[c * stride], total);
        for (int i = 0; i < n; i++)
            out[i] = fmaf(weight, partials[c * stride + i], out[i]);
    }
    for (int i = 0; i < n; i++)
        out[i] /= total;
}

static void scalar_to_f16(uint16_t *out, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = f16_round(x[i]);
}

static float scalar_read(const float *x, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

#define N_CHAIN_LANES (KERNEL_CHAINS * KERNEL_LANES)

/* All chains are asked for, or a compiler would leave some out. */
static float scalar_fma(long rounds)
{
    float acc[N_CHAIN_LANES] = {0}, total = 0;
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < N_CHAIN_LANES; i++)
            acc[i] = fmaf(acc[i], 0.5f, 1.0f);
    for (int i = 0; i < N_CHAIN_LANES; i++)
        total += acc[i];
    return total;
}

/* Unsigned, because long sums wrap. */
static float scalar_dot(long rounds)
{
    uint32_t acc[N_CHAIN_LANES] = {0};
    float total = 0;
    for (long r = 0; r < rounds; r++)
        for (uint32_t i = 0; i < N_CHAIN_LANES; i++)
            for (uint32_t j = 0; j < 4; j++)
                acc[i] += ((uint32_t)r + j) % 16 * (i + j);
    for (int i = 0; i < N_CHAIN_LANES; i++)
        total += (float)acc[i];
    return total;
}

const struct kernels kernels_scalar = {
    .name = "scalar",
    .grad = &grad_scalar,
    .matmul = scalar_matmul,
    .quantize = scalar_quantize,
    .norm = scalar_norm,
    .rotate = scalar_rotate,
    .hadamard = scalar_hadamard,
    .levels = block_levels,
    .attend = scalar_attend,
    .merge = scalar_merge,
    .to_f16 = scalar_to_f16,
    .read = scalar_read,
    .fma = scalar_fma,
    .dot = scalar_dot,
};
