/* The training kernels one by one, every table: products against sums in double, the rest against
 * the functions they stand for; bits against the scalar table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compute/grad_kernels.h"
#include "kernel_data.h"
#include "plain_model.h"
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

/* The table of this turn: the tests run with each that this machine has. */
static const struct grad_kernels *g;

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
    g = k->grad;
    fill(seed);
}

/* For what is summed up in another order. */
static void near(float found, double expected, double tolerance)
{
    ck_assert_double_eq_tol((double)found, expected, tolerance);
}

/* One shape in all four forms: A by rows or columns, from zero or from C, with or without bias. */
static void try_product(int m, int n, int k)
{
    const float *a = numbers[0], *b = numbers[1], *bias = numbers[2];
    float c[64 * 64], kept[64 * 64];
    for (int form = 0; form < 8; form++) {
        const int columns = form & 1, from_c = form >> 1 & 1;
        const size_t n_panels = (size_t)(n + KERNEL_LANES - 1) / KERNEL_LANES;
        const struct product p = {.m = m,
                                  .n = n,
                                  .k = k,
                                  .a = a,
                                  .a_row = columns ? 1 : (size_t)k + 1,
                                  .a_col = columns ? (size_t)m + 2 : 1,
                                  .b = b,
                                  .b_row = form & 1 ? KERNEL_LANES : n_panels * KERNEL_LANES,
                                  .b_panel = form & 1 ? (size_t)k * KERNEL_LANES : KERNEL_LANES,
                                  .c = c,
                                  .c_row = 64,
                                  .bias = form >> 2 ? bias : NULL,
                                  .start = from_c ? c : NULL};
        memcpy(c, numbers[3], sizeof c);
        memcpy(kept, c, sizeof c);
        g->product(&p);
        for (int at = 0; at < m * 64; at++) {
            const int j = at / 64, i = at % 64;
            double sum = from_c || i >= n ? (double)kept[at] : 0;
            for (int x = 0; x < k && i < n; x++)
                sum += (double)a[(size_t)j * p.a_row + (size_t)x * p.a_col] *
                       (double)b[(size_t)(i / KERNEL_LANES) * p.b_panel + (size_t)x * p.b_row +
                                 (size_t)(i % KERNEL_LANES)];
            sum += p.bias && i < n ? (double)bias[i] : 0;
            ck_assert_msg(fabs((double)c[at] - sum) < 1e-5,
                          "%s: %d x %d x %d form %d: [%d][%d] is %g, expected %g", g->name, m, n, k,
                          form, j, i, (double)c[at], sum);
        }
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

static double slope(enum ffn_kind kind, double x)
{
    const double h = 1e-5;
    return (plain_activation(kind, x + h) - plain_activation(kind, x - h)) / (2 * h);
}

/* What the kernels give for up, against differences in double; gate is NULL unless gated. */
static void check_ffn(enum ffn_kind kind, const float *up, const float *gate, size_t n)
{
    float y[2001], dup[2001], dgate[2001];
    g->ffn[kind](y, up, gate, n);
    g->ffn_backward[kind](dup, gate ? dgate : NULL, numbers[2], up, gate, n);
    for (size_t i = 0; i < n; i++) {
        const double u = (double)up[i], x = gate ? (double)gate[i] : u;
        const double times = gate ? u : 1, dy = (double)numbers[2][i];
        const double tolerance = 1e-6 * (1 + fabs(x * times));
        near(y[i], plain_activation(kind, x) * times, tolerance);
        near((gate ? dgate : dup)[i], dy * times * slope(kind, x), 1e-5 * (1 + fabs(times)));
        if (gate)
            near(dup[i], dy * plain_activation(kind, x), tolerance);
    }
}

TEST(feed_forward_and_its_slope, .loops = n_tables())
{
    choose(_i, 4);
    enum { N = 2001 };
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = ((float)(i - 1000) + 0.5f) * 0.02f; /* not 0, where ReLU has no slope */
    static const float special[] = {0,   -0.0f, 1e-30f, -1e-30f, 1e-45f, 40,
                                    -40, 90,    -90,    3e4f,    -3e4f};
    static const float relu[] = {0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0};
    static const float others[] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 1, 0, 1, 0, 1, 0};
    const float ones[11] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (enum ffn_kind kind = 0; kind < FFN_KINDS; kind++) {
        float dup[11], dgate[11];
        const bool gated = ffn_is_gated(kind);
        check_ffn(kind, gated ? numbers[0] : x, gated ? x : NULL, N);
        g->ffn_backward[kind](dup, gated ? dgate : NULL, ones, gated ? ones : special,
                              gated ? special : NULL, 11);
        for (int i = 0; i < 11; i++)
            near((gated ? dgate : dup)[i], (double)(kind == FFN_RELU ? relu : others)[i], 1e-6);
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
            grad_scalar.ffn[kind](y[0], up, gate, n);
            grad_scalar.ffn_backward[kind](dup[0], gate ? dgate[0] : NULL, dy, up, gate, n);
            g->ffn[kind](y[1], up, gate, n);
            g->ffn_backward[kind](dup[1], gate ? dgate[1] : NULL, dup[1], up, gate, n);
            assert_same_bits(y[0], y[1], 72, "feed-forward");
            assert_same_bits(dup[0], dup[1], 72, "gradient of up");
            assert_same_bits(dgate[0], dgate[1], 72, "gradient of gate");
            ck_assert(y[1][n] == 0 && dup[1][n] == dy[n] && dgate[1][n] == 0);
        }
}

/* sum_i dy[i] * norm(x)[i], what the gradient is of. */
static double norm_loss(int kind, const double *x, const float *dy, const float *gain, int n,
                        double eps)
{
    double mean = 0, variance = 0, loss = 0;
    for (int i = 0; i < n && kind == NORM_LAYER; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        loss += (double)dy[i] * (double)gain[i] * (x[i] - mean) / sqrt(variance + eps);
    return loss;
}

static void check_norm(int kind, int n)
{
    const float *dy = numbers[0], *gain = numbers[1], *residual = numbers[2], *row = numbers[3];
    const double h = 1e-5, eps = 1e-3;
    float dx[2][101], stats[2][2];
    double x[101];
    dx[0][n] = dx[1][n] = 7;
    for (int i = 0; i < n; i++)
        x[i] = (double)row[i];
    grad_scalar.norm_backward[kind](dx[0], residual, dy, row, gain, n, (float)eps, stats[0]);
    memcpy(dx[1], residual, (size_t)n * sizeof *residual);
    g->norm_backward[kind](dx[1], dx[1], dy, row, gain, n, (float)eps, stats[1]);
    assert_same_bits(dx[0], dx[1], (size_t)n + 1, "gradient of a norm");
    assert_same_bits(stats[0], stats[1], 2, "stats of a norm");
    for (int i = 0; i < n; i++) {
        x[i] += h;
        const double above = norm_loss(kind, x, dy, gain, n, eps);
        x[i] -= 2 * h;
        const double below = norm_loss(kind, x, dy, gain, n, eps);
        x[i] += h;
        const double expected = (double)residual[i] + (above - below) / (2 * h);
        near(dx[1][i], expected, 1e-5 * (1 + fabs(expected)));
    }
    /* The norm is (x - stats[0]) stats[1] gain. */
    float out[101];
    kernels_scalar.norm[kind](out, row, gain, NULL, n, (float)eps);
    for (int i = 0; i < n; i++)
        near(out[i], (x[i] - (double)stats[1][0]) * (double)stats[1][1] * (double)gain[i], 1e-6);
    ck_assert(kind != NORM_RMS || stats[1][0] == 0);
}

TEST(norms_backward, .loops = n_tables())
{
    choose(_i, 7);
    for (int i = 0; i < 100; i++)
        numbers[3][i] += 0.7f; /* a mean that tells the kinds apart */
    for (int kind = 0; kind < NORM_KINDS; kind++)
        for (int n = 1; n <= 100; n += n < 34 ? 1 : 11)
            check_norm(kind, n);
}

static double biased(const struct attend_bias *b, int distance, double score)
{
    if (!b)
        return score;
    const double x = distance - (double)b->centre;
    return score + (double)b->linear * x + (double)b->square * x * x;
}

/* Column q in double: probabilities p, and the gradient of the scores given that of p. */
static void check_column(const struct causal *c, const float *scores, const float *dp, int q,
                         const float *e, const float *found_p, const float *found_ds)
{
    double p[80], sum = 0, dot = 0, max = -(double)INFINITY;
    for (int t = 0; t < c->n_keys && t <= c->first + q; t++)
        max = fmax(max, biased(c->bias, c->first + q - t, (double)scores[t * CAUSAL_WIDTH + q]));
    for (int t = 0; t < c->n_keys; t++) {
        const double s = biased(c->bias, c->first + q - t, (double)scores[t * CAUSAL_WIDTH + q]);
        p[t] = t <= c->first + q ? exp(s - max) : 0;
        sum += p[t];
        near(e[t * CAUSAL_WIDTH + q], p[t], 2e-5);
    }
    for (int t = 0; t < c->n_keys; t++)
        dot += p[t] / sum * (double)dp[t * CAUSAL_WIDTH + q];
    for (int t = 0; t < c->n_keys; t++) {
        const int at = t * CAUSAL_WIDTH + q;
        near(found_p[at], p[t] / sum, 2e-5);
        const double ds = p[t] / sum * ((double)dp[at] - dot);
        near(found_ds[at], (double)c->scale * ds, 2e-5);
    }
    near(c->max[q], max, 1e-4);
    near(c->inverse[q], 1 / sum, 1e-5);
}

/* Scores and gradient [n_keys, CAUSAL_WIDTH] through both kernels of g and of the definition. */
static void check_causal(int first, int n_keys, const struct attend_bias *bias)
{
    enum { SIZE = 80 * CAUSAL_WIDTH };
    static float e[2][SIZE], p[2][SIZE], ds[2][SIZE];
    float max[2][CAUSAL_WIDTH], inverse[2][CAUSAL_WIDTH];
    const size_t n = (size_t)n_keys * CAUSAL_WIDTH;
    const float *scores = numbers[0], *dp = numbers[1];
    struct causal c;
    for (int i = 0; i < 2; i++) {
        memcpy(e[i], scores, sizeof e[i]);
        memcpy(p[i], scores, sizeof p[i]);
        memcpy(ds[i], dp, sizeof ds[i]);
        c = (struct causal){.n_keys = n_keys,
                            .first = first,
                            .scores = e[i],
                            .gradient = ds[i],
                            .max = max[i],
                            .inverse = inverse[i],
                            .scale = 0.25f,
                            .bias = bias};
        (i ? g : &grad_scalar)->causal_softmax(&c);
        c.scores = p[i];
        (i ? g : &grad_scalar)->causal_backward(&c);
    }
    for (int q = 0; q < CAUSAL_WIDTH; q++)
        check_column(&c, scores, dp, q, e[1], p[1], ds[1]);
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

/* Scores w.tanh(q + k) and their gradients: the bits of the definition, and double precision. */
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
        (i ? g : &grad_scalar)->additive_scores(&a);
        (i ? g : &grad_scalar)->additive_backward(&a);
    }
    assert_same_bits(scores[0], scores[1], SIZE * CAUSAL_WIDTH, "additive scores");
    assert_same_bits(dkeys[0], dkeys[1], SIZE * STRIDE, "gradient of keys");
    assert_same_bits(dqueries[0], dqueries[1], SIZE * CAUSAL_WIDTH, "gradient of queries");
    assert_same_bits(dweight[0], dweight[1], SIZE, "gradient of weights");
    double dq[SIZE][CAUSAL_WIDTH] = {0}, dw[SIZE] = {0};
    for (int t = 0; t < n_keys; t++) {
        double dk[SIZE] = {0};
        for (int q = 0; q < CAUSAL_WIDTH; q++) {
            double sum = 0;
            for (int i = 0; i < dim; i++) {
                const double d = (double)ds[t * CAUSAL_WIDTH + q], wi = (double)w[i];
                const double h =
                    tanh((double)keys[t * STRIDE + i] + (double)queries[i * CAUSAL_WIDTH + q]);
                sum += wi * h;
                dq[i][q] += d * wi * (1 - h * h);
                dk[i] += d * wi * (1 - h * h);
                dw[i] += d * h;
            }
            near(scores[1][t * CAUSAL_WIDTH + q], sum, 3e-6 * dim);
        }
        for (int i = 0; i < dim; i++)
            near(dkeys[1][t * STRIDE + i], (double)numbers[1][t * STRIDE + i] + dk[i], 2e-5);
    }
    for (int i = 0; i < dim; i++) {
        near(dweight[1][i], dw[i], 2e-4);
        for (int q = 0; q < CAUSAL_WIDTH; q++)
            near(dqueries[1][i * CAUSAL_WIDTH + q], dq[i][q], 2e-5);
    }
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
        ck_assert_double_eq_tol((double)g->softmax(x, n, 0.5f), 1000 + log(sum), 1e-3);
        for (int i = 0; i < n; i++)
            near(x[i], 0.5 * exp(i % 7) / sum, 1e-6);
        ck_assert(x[n] == 5);
    }
    float bad[3] = {0, INFINITY, 1};
    ck_assert(isnan(g->softmax(bad, 3, 1)));
    float nan[3] = {0, NAN, 1};
    ck_assert(isnan(g->softmax(nan, 3, 1)));
}
