/*
 * grad_kernels - the arithmetic of a training step beyond inference's.
 *
 * The same rules as in kernels.h: each output is one fixed chain of operations, so that every
 * table gives the same bits; callers cut work between outputs, never inside a sum. Here one
 * source in terms of lanes makes all tables; the scalar one is that source over plain C lanes
 * (lanes_scalar.h). Kernels allocate nothing and cannot fail. Any threads may run them at once
 * on outputs that do not overlap.
 */
#ifndef DECODE_COMPUTE_GRAD_KERNELS_H
#define DECODE_COMPUTE_GRAD_KERNELS_H

#include <stddef.h>

#include "compute/kernels.h"

/*
 * A matrix product over strided operands:
 *
 *     C[j][i] = (start ? start[j][i] : 0) + sum_k A[j][k] * B[k][i] + (bias ? bias[i] : 0)
 *
 * for 0 <= j < m, 0 <= i < n, with
 *     A[j][k] at a[j * a_row + k * a_col], where a_row or a_col is 1,
 *     B[k][i] at b[i / KERNEL_LANES * b_panel + k * b_row + i % KERNEL_LANES],
 *     C[j][i] at c[j * c_row + i], start[j][i] at start[j * c_row + i].
 * Strides in floats. The sum is one chain of fused multiply-adds along k, so that
 * cutting k into several calls, the later ones starting from C, gives the same bits. C overlaps
 * nothing else; `start` may be C.
 */
struct product {
    int m, n, k;
    const float *a;
    size_t a_row, a_col;
    const float *b;
    size_t b_row, b_panel;
    float *c;
    size_t c_row;
    const float *bias;  /* [n], or NULL */
    const float *start; /* NULL: zero */
};

/* Columns (queries) of one block of attention. */
#define CAUSAL_WIDTH 32

/*
 * A block of causal attention, transposed: column q stands for the query at position first + q,
 * row t for the key at position t. All [n_keys][CAUSAL_WIDTH].
 *   softmax   scores -> e^(score - max) where t <= first + q, else 0; max, and inverse = 1 / sum
 *   backward  scores -> probabilities p = e^(score - max) * inverse, 0 where t > first + q;
 *             gradient: dp -> scale * p * (dp - sum_t p dp)
 */
struct causal {
    int n_keys, first;
    float *scores, *gradient;
    float *max, *inverse; /* [CAUSAL_WIDTH] */
    float scale;
};

/* One step of AdamW (Loshchilov and Hutter 2019, algorithm 2):
 *     g = scale * gradient
 *     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
 *     w = w - decay * w - rate * m / (sqrt(v) * root + eps)
 * where rate = lr / (1 - beta1^t), root = 1 / sqrt(1 - beta2^t), decay = lr * weight decay. */
struct adamw {
    float scale, beta1, beta2, rate, root, eps, decay;
};

struct grad_kernels {
    const char *name; /* "scalar", "neon", "avx2", "avx512" */

    void (*product)(const struct product *p);

    /* out = GELU(x), the tanh form. */
    void (*gelu)(float *out, const float *x, size_t n);
    /* dx = dy * GELU'(x); dx may be dy. */
    void (*gelu_backward)(float *dx, const float *dy, const float *x, size_t n);

    /* Layer norm of one row, backwards: dx = residual + the gradient of x, given dy of the output;
     * dx may be residual. stats[0] and [1] become mean and 1 / sqrt(variance + eps). */
    void (*norm_backward)(float *dx, const float *residual, const float *dy, const float *x,
                          const float *gain, int n, float eps, float *stats);

    /* Sums over rows, each n floats of rows `stride` apart, in the order of the rows:
     * out[i] = sum_t x[t][i]; and for a norm whose stats are [n_rows][2],
     * gain[i] = sum_t dy[t][i] * (x[t][i] - mean_t) * scale_t. */
    void (*column_sums)(float *out, const float *x, size_t stride, int n_rows, int n);
    void (*gain_sums)(float *gain, const float *dy, const float *x, const float *stats,
                      size_t stride, int n_rows, int n);

    void (*causal_softmax)(const struct causal *c);
    void (*causal_backward)(const struct causal *c);

    /* x[i] = scale * e^x[i] / sum_j e^x[j] over n; returns log sum_j e^x[j]. NaN if some x is, or
     * is +infinity. */
    float (*softmax)(float *x, int n, float scale);

    /* sum_i x[i]^2 */
    float (*squares)(const float *x, size_t n);

    void (*adamw)(const struct adamw *a, float *w, float *m, float *v, const float *gradient,
                  size_t n);
};

/* The table for the instruction set of `k`; what only its integer kernels need makes no
 * difference. */
const struct grad_kernels *grad_kernels_for(const struct kernels *k);

/* The tables themselves; those of another architecture than the target's have no name. */
extern const struct grad_kernels grad_scalar, grad_neon, grad_avx2, grad_avx512;

#endif
