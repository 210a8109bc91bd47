/* The training kernels one by one: every table's bits against those of the definition, for all
 * lengths around those of vectors, and what the definition makes of numbers at the limits. (That
 * its gradients are right: train/test_backprop.c, by differences in double and by PyTorch's.) */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compute/grad_kernels.h"
#include "kernel_data.h"
#include "support.h"

#define MOST 8192

static float numbers[4][MOST];

static void fill(uint64_t seed)
{
    struct rng r;
    rng_seed(&r, seed, 0);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < MOST; j++)
            numbers[i][j] = (float)(2 * rng_unit(&r) - 1);
}

/* The definition and the table of this turn: the tests run with each that this machine has. */
static const struct grad_kernels *tables[2];

static int n_tables(void)
{
    int n = 0;
    for (const struct kernels *k = NULL; (k = next_kernels(k));)
        n++;
    return n;
}

static void choose(int i, uint64_t seed)
{
    const struct kernels *k = next_kernels(NULL);
    while (i-- > 0)
        k = next_kernels(k);
    tables[0] = &grad_scalar;
    tables[1] = k->grad;
    fill(seed);
}

/* One shape in all its forms: A by rows or columns, from zero or from C, with or without bias. */
static void try_product(int m, int n, int k)
{
    static float c[2][64 * 64];
    for (int form = 0; form < 8; form++) {
        const int columns = form & 1, from_c = form >> 1 & 1;
        const size_t n_panels = (size_t)(n + KERNEL_LANES - 1) / KERNEL_LANES;
        for (int i = 0; i < 2; i++) {
            const struct product p = {.m = m,
                                      .n = n,
                                      .k = k,
                                      .a = numbers[0],
                                      .a_row = columns ? 1 : (size_t)k + 1,
                                      .a_col = columns ? (size_t)m + 2 : 1,
                                      .b = numbers[1],
                                      .b_row = columns ? KERNEL_LANES : n_panels * KERNEL_LANES,
                                      .b_panel = columns ? (size_t)k * KERNEL_LANES : KERNEL_LANES,
                                      .c = c[i],
                                      .c_row = 64,
                                      .bias = form >> 2 ? numbers[2] : NULL,
                                      .start = from_c ? c[i] : NULL};
            memcpy(c[i], numbers[3], sizeof c[i]);
            tables[i]->product(&p);
        }
        assert_same_bits(c[0], c[1], 64 * 64, tables[1]->name);
    }
}

TEST(products, .loops = n_tables())
{
    choose(_i, 1);
    static const int columns[] = {1, 7, 16, 17, 32, 33, 48, 64};
    for (int m = 1; m <= 40; m += SANITIZED ? 13 : m < 26 ? 1 : 7)
        for (int i = 0; i < 8; i++)
            try_product(m, columns[i], 1 + (m * 7 + i) % 19);
}

/* Where the slope is that of 0 or of 1. */
TEST(slopes_at_the_limits, .loops = n_tables())
{
    choose(_i, 4);
    static const float special[] = {0,   -0.0f, 1e-30f, -1e-30f, 1e-45f, 40,
                                    -40, 90,    -90,    3e4f,    -3e4f};
    static const float relu[] = {0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0};
    static const float others[] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 1, 0, 1, 0, 1, 0};
    const float ones[11] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (enum ffn_kind kind = 0; kind < FFN_KINDS; kind++) {
        float dup[11], dgate[11];
        const bool gated = ffn_is_gated(kind);
        tables[1]->ffn_backward[kind](dup, gated ? dgate : NULL, ones, gated ? ones : special,
                                      gated ? special : NULL, 11);
        for (int i = 0; i < 11; i++)
            ck_assert_double_eq_tol((double)(gated ? dgate : dup)[i],
                                    (double)(kind == FFN_RELU ? relu : others)[i], 1e-6);
    }
}

/* Every length, in place where that is allowed, nothing past the end. */
TEST(feed_forward_of_all_lengths, .loops = n_tables())
{
    choose(_i, 5);
    const float *dy = numbers[0], *up = numbers[1];
    for (enum ffn_kind kind = 0; kind < FFN_KINDS; kind++)
        for (size_t n = 0; n <= 70; n++) {
            const float *gate = ffn_is_gated(kind) ? numbers[2] : NULL;
            float y[2][72] = {{0}}, dup[2][72], dgate[2][72] = {{0}};
            memcpy(dup[0], dy, sizeof dup[0]);
            memcpy(dup[1], dy, sizeof dup[1]);
            for (int i = 0; i < 2; i++) {
                tables[i]->ffn[kind](y[i], up, gate, n);
                tables[i]->ffn_backward[kind](dup[i], gate ? dgate[i] : NULL, i ? dup[1] : dy, up,
                                              gate, n);
            }
            assert_same_bits(y[0], y[1], 72, "feed-forward");
            assert_same_bits(dup[0], dup[1], 72, "gradient of up");
            assert_same_bits(dgate[0], dgate[1], 72, "gradient of gate");
            ck_assert(y[1][n] == 0 && dup[1][n] == dy[n] && dgate[1][n] == 0);
        }
}

/* The second in place. */
TEST(norms_backward, .loops = n_tables())
{
    choose(_i, 7);
    const float *dy = numbers[0], *gain = numbers[1], *residual = numbers[2], *row = numbers[3];
    for (int kind = 0; kind < NORM_KINDS; kind++)
        for (int n = 1; n <= 100; n += n < 34 ? 1 : 11) {
            float dx[2][101], stats[2][2];
            memcpy(dx[1], residual, sizeof dx[1]);
            dx[0][n] = dx[1][n] = 7;
            for (int i = 0; i < 2; i++)
                tables[i]->norm_backward[kind](dx[i], i ? dx[1] : residual, dy, row, gain, n, 1e-3f,
                                               stats[i]);
            assert_same_bits(dx[0], dx[1], (size_t)n + 1, "gradient of a norm");
            assert_same_bits(stats[0], stats[1], 2, "stats of a norm");
            /* The norm is (x - stats[0]) stats[1] gain. */
            float out[101];
            kernels_scalar.norm[kind](out, row, gain, NULL, n, 1e-3f);
            for (int i = 0; i < n; i++) {
                const double centred = (double)row[i] - (double)stats[1][0];
                ck_assert_double_eq_tol((double)out[i],
                                        centred * (double)stats[1][1] * (double)gain[i], 1e-6);
            }
            ck_assert(kind != NORM_RMS || stats[1][0] == 0);
        }
}

/* Scores and gradient [n_keys, CAUSAL_WIDTH] through both kernels of g and of the definition. */
static void check_causal(int first, int n_keys, const struct attend_bias *bias)
{
    enum { SIZE = 80 * CAUSAL_WIDTH };
    static float e[2][SIZE], p[2][SIZE], ds[2][SIZE];
    float max[2][CAUSAL_WIDTH], inverse[2][CAUSAL_WIDTH];
    const size_t n = (size_t)n_keys * CAUSAL_WIDTH;
    const float *scores = numbers[0], *dp = numbers[1];
    for (int i = 0; i < 2; i++) {
        memcpy(e[i], scores, sizeof e[i]);
        memcpy(p[i], scores, sizeof p[i]);
        memcpy(ds[i], dp, sizeof ds[i]);
        struct causal c = {.n_keys = n_keys,
                           .first = first,
                           .scores = e[i],
                           .gradient = ds[i],
                           .max = max[i],
                           .inverse = inverse[i],
                           .scale = 0.25f,
                           .bias = bias};
        tables[i]->causal_softmax(&c);
        c.scores = p[i];
        tables[i]->causal_backward(&c);
    }
    assert_same_bits(max[0], max[1], CAUSAL_WIDTH, "largest score");
    assert_same_bits(inverse[0], inverse[1], CAUSAL_WIDTH, "inverse sum");
    assert_same_bits(e[0], e[1], SIZE, "exponentials");
    assert_same_bits(p[0], p[1], SIZE, "probabilities");
    assert_same_bits(ds[0], ds[1], SIZE, "gradient of scores");
    ck_assert(memcmp(e[1] + n, scores + n, (SIZE - n) * sizeof(float)) == 0);
}

TEST(causal_attention, .loops = n_tables())
{
    choose(_i, 8);
    static const struct attend_bias alibi = {0, -0.25f, 0}, quadratic = {3.5f, 0.125f, -0.0625f};
    for (int first = 0; first <= 45; first += SANITIZED ? 45 : 9)
        for (int n_keys = first + 1; n_keys <= first + CAUSAL_WIDTH; n_keys += 5) {
            check_causal(first, n_keys, NULL);
            check_causal(first, n_keys, &alibi);
            check_causal(first, n_keys, &quadratic);
        }
}

/* Scores w.tanh(q + k) and their gradients. */
static void check_additive(int n_keys, int dim)
{
    enum { SIZE = 40, STRIDE = SIZE + 3 };
    static float scores[2][SIZE * CAUSAL_WIDTH], dkeys[2][SIZE * STRIDE];
    static float dqueries[2][SIZE * CAUSAL_WIDTH], dweight[2][SIZE];
    const float *keys = numbers[0], *queries = numbers[1], *ds = numbers[2], *w = numbers[3];
    for (int i = 0; i < 2; i++) {
        memcpy(dkeys[i], numbers[1], sizeof dkeys[i]);
        const struct additive a = {.n_keys = n_keys,
                                   .dim = dim,
                                   .weight = w,
                                   .keys = keys,
                                   .queries = queries,
                                   .stride = STRIDE,
                                   .scores = scores[i],
                                   .gradient = ds,
                                   .dkeys = dkeys[i],
                                   .dqueries = dqueries[i],
                                   .dweight = dweight[i]};
        tables[i]->additive_scores(&a);
        tables[i]->additive_backward(&a);
    }
    assert_same_bits(scores[0], scores[1], SIZE * CAUSAL_WIDTH, "additive scores");
    assert_same_bits(dkeys[0], dkeys[1], SIZE * STRIDE, "gradient of keys");
    assert_same_bits(dqueries[0], dqueries[1], SIZE * CAUSAL_WIDTH, "gradient of queries");
    assert_same_bits(dweight[0], dweight[1], SIZE, "gradient of weights");
}

TEST(additive_scores, .loops = n_tables())
{
    choose(_i, 9);
    for (int n_keys = 1; n_keys <= 40; n_keys += 13)
        for (int dim = 1; dim <= 40; dim += SANITIZED ? 13 : 3)
            check_additive(n_keys, dim);
}

TEST(softmax_is_stable, .loops = n_tables())
{
    choose(_i, 0);
    for (int n = 1; n < 70; n++) {
        float x[70];
        double sum = 0;
        for (int i = 0; i < n; i++) {
            x[i] = (float)(1000 + i % 7);
            sum += exp((double)x[i] - 1000);
        }
        x[n] = 5;
        ck_assert_double_eq_tol((double)tables[1]->softmax(x, n, 0.5f), 1000 + log(sum), 1e-3);
        for (int i = 0; i < n; i++)
            ck_assert_double_eq_tol((double)x[i], 0.5 * exp(i % 7) / sum, 1e-6);
        ck_assert(x[n] == 5);
    }
    float bad[3] = {0, INFINITY, 1};
    ck_assert(isnan(tables[1]->softmax(bad, 3, 1)));
    float nan[3] = {0, NAN, 1};
    ck_assert(isnan(tables[1]->softmax(nan, 3, 1)));
}
