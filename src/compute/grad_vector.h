/*
 * grad_vector - the training kernels over lanes, compiled once for each instruction set
 * (kernels_vector.h) and, as their definition, over lanes of plain C (grad_scalar.c).
 */
#include <float.h>

#include "compute/grad_kernels.h"
#include "compute/grad_matmul.h"
#include "compute/lanes.h"

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

ALWAYS_INLINE void ffn_backward(const enum ffn_kind kind, float *dy, float *up, float *gate,
                                size_t n)
{
    const float *x = gate ? gate : up;
    assert(n == 0 || (dy && up && dy != up && dy != gate && up != gate &&
                      ffn_kinds[kind].is_gated == (gate != NULL)));
    for (size_t i = 0; i < n; i += KERNEL_LANES) {
        const int width = n - i < KERNEL_LANES ? (int)(n - i) : KERNEL_LANES;
        const lanes d = lanes_load_upto(dy + i, width), at = lanes_load_upto(x + i, width);
        const lanes f = ffn_value(kind, at), slope = ffn_slope(kind, at);
        if (gate) {
            const lanes u = lanes_load_upto(up + i, width);
            lanes_store_upto(gate + i, lanes_mul(lanes_mul(d, u), slope), width);
            lanes_store_upto(dy + i, lanes_mul(d, f), width);
            lanes_store_upto(up + i, lanes_mul(f, u), width);
        } else {
            lanes_store_upto(dy + i, lanes_mul(d, slope), width);
            lanes_store_upto(up + i, f, width);
        }
    }
}

#define FFN_OF(name, kind)                                                                         \
    static void name(float *out, const float *up, const float *gate, size_t n)                     \
    {                                                                                              \
        ffn_forward(kind, out, up, gate, n);                                                       \
    }                                                                                              \
    static void name##_backward(float *dy, float *up, float *gate, size_t n)                       \
    {                                                                                              \
        ffn_backward(kind, dy, up, gate, n);                                                       \
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
        acc[v] = lanes_load_upto(out + v * KERNEL_LANES, width);
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

static void vector_add(float *out, const float *a, const float *b, size_t n)
{
    assert(n == 0 || (out && a && b));
    for (size_t i = 0; i < n; i += KERNEL_LANES) {
        const int width = n - i < KERNEL_LANES ? (int)(n - i) : KERNEL_LANES;
        const lanes s = lanes_add(lanes_load_upto(a + i, width), lanes_load_upto(b + i, width));
        lanes_store_upto(out + i, s, width);
    }
}

static void vector_publish(float *out, const float *x, size_t n)
{
    assert(n == 0 || (out && x && out != x));
    for (size_t i = 0; i < n; i += KERNEL_LANES) {
        const int width = n - i < KERNEL_LANES ? (int)(n - i) : KERNEL_LANES;
        lanes_stream_upto(out + i, lanes_load_upto(x + i, width), width);
    }
    lanes_stream_end();
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
        lanes_stream_upto(w + i, lanes_fma(rate, lanes_div(mi, below), decayed), width);
    }
    lanes_stream_end();
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
    .add = vector_add,
    .publish = vector_publish,
    .adamw = vector_adamw,
};
