/*
 * grad_kernels - the arithmetic of a training step beyond inference's.
 *
 * The same rules as in kernels.h: each output is one fixed chain of operations, so that every
 * table gives the same bits; callers cut work between outputs, never inside a sum. Here one
 * source in terms of lanes makes all tables; the scalar one is that source over plain C lanes
 * (lanes_scalar.h).
 *
 * So are the contracts, asserted at the entry of every kernel, but that sizes and counts may be 0:
 * then nothing is done (a sum is 0), and pointers are not looked at. softmax and the norms need at
 * least one element. Any threads may run kernels at once on outputs that do not overlap.
 */
#pragma once

#include "compute/kernels.h"

/* --- matrix products ------------------------------------------------------------------------- */

/*
 * A matrix product over strided operands:
 *
 *     C[j][i] = (start ? start[j][i] : 0) + sum_k A[j][k] * B[k][i] + (bias ? bias[i] : 0)
 *
 * for 0 <= j < m, 0 <= i < n, with
 *     A[j][k] at a[j * a_row + k * a_col], where a_row or a_col is 1,
 *     B[k][i] at b[i / KERNEL_LANES * b_panel + k * b_row + i % KERNEL_LANES],
 *     C[j][i] at c[j * c_row + i], start[j][i] at start[j * c_row + i].
 * Strides in floats; c_row >= n. The sum is one chain of fused multiply-adds along k, so that
 * cutting k into several calls, the later ones starting from C, gives the same bits. C overlaps
 * nothing else; `start` may be C.
 */
struct product {
    int m, n, k;
    const float *a; /* [m, k] as its strides say */
    size_t a_row, a_col;
    const float *b; /* [k, n] as its strides say; b_panel is not looked at if n <= KERNEL_LANES */
    size_t b_row, b_panel;
    float *c; /* [m, n], rows c_row apart */
    size_t c_row;
    const float *bias;  /* [n], or NULL: none */
    const float *start; /* [m, n], rows c_row apart; NULL: zero */
};

/* --- attention ------------------------------------------------------------------------------- */

/* Columns (queries) of one block of attention. */
#define CAUSAL_WIDTH 32

/*
 * A block of causal attention, transposed: column q stands for the query at position first + q,
 * row t for the key at position t: the keys from 0 on that any of the queries may see.
 *   softmax   scores -> e^(score - max) where t <= first + q, else 0; max, and inverse = 1 / sum
 *   backward  scores -> probabilities p = e^(score - max) * inverse, 0 where t > first + q;
 *             gradient: dp -> scale * p * (dp - sum_t p dp)
 */
struct causal {
    int window;                     /* 0, or key t counts as unseen where t <= first + q - window */
    int n_keys, first;              /* first >= 0; n_keys > first for columns that mean something */
    float *scores, *gradient;       /* [n_keys, CAUSAL_WIDTH]; gradient only backward */
    float *max, *inverse;           /* [CAUSAL_WIDTH], written by softmax, read by backward */
    float scale;                    /* of scores; only backward */
    const struct attend_bias *bias; /* of this head, added to the scores; NULL: none */
};

/*
 * Additive scores of a head, and their gradients (Bahdanau et al. 2015, appendix A.1.2):
 *   scores    scores[t][q] = sum_i weight[i] tanh(h), h = queries[i][q] + keys[t][i]
 *   backward  with g = gradient[t][q], that of the scores, and d = g weight[i] (1 - tanh(h)^2):
 *             dqueries[i][q] = sum_t d, dkeys[t][i] += sum_q d, dweight[i] = sum_tq g tanh(h)
 * Columns are as above; those of `queries` that mean nothing are anything finite.
 */
struct additive {
    int n_keys, dim;
    const float *weight;               /* [dim] */
    const float *keys, *queries;       /* [n_keys, dim] rows `stride` apart, [dim, CAUSAL_WIDTH] */
    size_t stride;                     /* of keys and dkeys, floats */
    float *scores;                     /* [n_keys, CAUSAL_WIDTH] */
    const float *gradient;             /* the same; from here on only backward */
    float *dkeys, *dqueries, *dweight; /* as keys, queries and weight */
};

/* --- optimizer ------------------------------------------------------------------------------- */

/* One step of AdamW (Loshchilov and Hutter 2019, algorithm 2):
 *     g = scale * gradient
 *     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
 *     w = w - decay * w - rate * m / (sqrt(v) * root + eps)
 * where rate = lr / (1 - beta1^t), root = 1 / sqrt(1 - beta2^t), decay = lr * weight decay. */
struct adamw {
    float scale, beta1, beta2, rate, root, eps, decay;
};

/* --- the table ------------------------------------------------------------------------------- */

struct grad_kernels {
    const char *name; /* "scalar", "neon", "avx2", "avx512" */

    void (*product)(const struct product *p);

    /* out [n, width], rows `width` apart, = scale * x^T of x [n_rows, n], rows `stride` apart; its
     * columns past n_rows are zero. width is a multiple of KERNEL_LANES and at least n_rows. */
    void (*transpose)(float *out, int width, const float *x, size_t stride, int n_rows, int n,
                      float scale);

    /* By ffn_kind, n elements: out = f(up), or f(gate) * up; gate is NULL unless the kind is gated
     * (ffn_kinds). */
    void (*ffn[FFN_KINDS])(float *out, const float *up, const float *gate, size_t n);
    /* The backward pass of ffn, by ffn_kind, n elements in place: dy, the gradient of out, becomes
     * that of up, gate (NULL unless the kind is gated) its own gradient, and up becomes out. */
    void (*ffn_backward[FFN_KINDS])(float *dy, float *up, float *gate, size_t n);

    /* The norm of one row x [n], backwards: dx [n] = residual [n] + the gradient of
     * x, given that of the output, dy [n]; gain NULL: ones; dx may be residual. stats[0] and [1]
     * become what the norm took off (the mean; 0 for NORM_RMS) and multiplied by (1 / sqrt(variance
     * + eps), with the mean of squares for the variance for NORM_RMS). */
    void (*norm_backward)(enum norm_kind kind, float *dx, const float *residual, const float *dy,
                          const float *x, const float *gain, int n, float eps, float *stats);

    /* Adds n_rows rows of n floats, `stride` apart, one after the other: out[i] += dy[t][i]; or, of
     * a norm of any kind whose stats are [n_rows, 2], the gradient of its gain:
     * out[i] += dy[t][i] * (x[t][i] - stats[t][0]) * stats[t][1]. x is looked at only if stats is
     * not NULL. Rows cut into several calls give the same bits. */
    void (*row_sums)(float *out, const float *dy, const float *x, const float *stats, size_t stride,
                     int n_rows, int n);

    void (*causal_softmax)(const struct causal *c);
    void (*causal_backward)(const struct causal *c);

    void (*additive_scores)(const struct additive *a);
    void (*additive_backward)(const struct additive *a);

    /* x[i] = scale * e^x[i] / sum_j e^x[j] over n; returns log sum_j e^x[j]. NaN if some x is, or
     * is +infinity. */
    float (*softmax)(float *x, int n, float scale);

    /* sum_i x[i]^2 */
    float (*squares)(const float *x, size_t n);

    /* out [n] = a + b, both [n]; out may be one of them. */
    void (*add)(float *out, const float *a, const float *b, size_t n);

    /* out [n] = x [n], past the caches, for another thread to read once the two have met. They do
     * not overlap. */
    void (*publish)(float *out, const float *x, size_t n);

    /* One step of n weights w with their moments m and v [n], all updated in place. The weights
     * leave the caches, because all threads are to read them. */
    void (*adamw)(const struct adamw *a, float *w, float *m, float *v, const float *gradient,
                  size_t n);
};

/* The tables of the target's architecture. */
extern const struct grad_kernels grad_scalar;
#if defined(__x86_64__) || defined(__i386__)
extern const struct grad_kernels grad_avx2, grad_avx512;
#elif defined(__aarch64__)
extern const struct grad_kernels grad_neon;
#endif
