/* Tests of the products of training, where every table gives the bits of the definition; and of
 * kernels for numbers at the limits. (train/test_backprop.c tests that gradients are right.) */
#include <math.h>
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

/* The definition and the table of this turn; the tests run with each table that this machine has.
 */
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

/* Tests one shape in all its forms: A by rows or columns, from zero or from C, with or without a
 * bias. */
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

/* Rows of A that are as far apart as logits are copied in parts, and give the bits of rows side by
 * side. */
TEST(rows_far_apart, .loops = n_tables())
{
    enum { M = 100, N = 20, K = 400, APART = 5000 };
    static float a[K * APART], dense[K * M], b[K * 32], c[2][M * N];
    choose(_i, 3);
    for (int i = 0; i < K * 32; i++)
        b[i] = numbers[1][i % MOST];
    for (int form = 0; form < 8; form++) {
        const int columns = form & 1, rows = columns ? K : M, n = columns ? M : K;
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < n; j++)
                dense[i * n + j] = a[i * APART + j] = numbers[0][(i * n + j) % MOST];
        for (int i = 0; i < 2; i++) {
            const size_t apart = i == 0 ? (size_t)n : APART;
            const struct product p = {.m = M,
                                      .n = N,
                                      .k = K,
                                      .a = i == 0 ? dense : a,
                                      .a_row = columns ? 1 : apart,
                                      .a_col = columns ? apart : 1,
                                      .b = b,
                                      .b_row = KERNEL_LANES,
                                      .b_panel = (size_t)K * KERNEL_LANES,
                                      .c = c[i],
                                      .c_row = N,
                                      .bias = form >> 2 ? numbers[2] : NULL,
                                      .start = form >> 1 & 1 ? c[i] : NULL};
            memcpy(c[i], numbers[3], sizeof c[i]);
            tables[i]->product(&p);
        }
        assert_same_bits(c[0], c[1], M * N, tables[1]->name);
    }
}

TEST(transposes, .loops = n_tables())
{
    static float out[40 * 48];
    choose(_i, 5);
    for (int n_rows = 0; n_rows <= 48; n_rows += 5)
        for (int n = 1; n <= 40; n += 13) {
            tables[1]->transpose(out, 48, numbers[0], 43, n_rows, n, 0.5f);
            for (int i = 0; i < n * 48; i++)
                ck_assert(out[i] == (i % 48 < n_rows ? numbers[0][i % 48 * 43 + i / 48] / 2 : 0));
        }
}

/* On a line of the cache, where stores may go past it, and behind its beginning. */
TEST(stores_past_the_caches, .loops = n_tables())
{
    static _Alignas(64) float w[2][96], moments[2][2][96], copy[96];
    const struct adamw step = {0.5f, 0.9f, 0.99f, 0.01f, 2, 1e-8f, 0.001f};
    choose(_i, 5);
    for (int n = 0; n < 70; n++)
        for (int first = 0; first < 2; first++) {
            for (int i = 0; i < 2; i++) {
                memcpy(w[i], numbers[0], sizeof w[i]);
                memset(moments[i], 0, sizeof moments[i]);
                tables[i]->adamw(&step, w[i] + first, moments[i][0], moments[i][1], numbers[1],
                                 (size_t)n);
            }
            assert_same_bits(w[0], w[1], 96, tables[1]->name);
            memcpy(copy, numbers[2], sizeof copy);
            tables[1]->publish(copy + first, numbers[0], (size_t)n);
            for (int i = 0; i < 96; i++)
                ck_assert(copy[i] ==
                          (i < first || i >= first + n ? numbers[2][i] : numbers[0][i - first]));
            tables[1]->add(copy, numbers[0], numbers[1] + first, (size_t)n);
            for (int i = 0; i < n; i++)
                ck_assert(copy[i] == numbers[0][i] + numbers[1][first + i]);
        }
}

/* The slope is 0 or 1 at these limits, and the value is the same both ways. */
TEST(slopes_at_the_limits, .loops = n_tables())
{
    choose(_i, 4);
    static const float special[] = {0,   -0.0f, 1e-30f, -1e-30f, 1e-45f, 40,
                                    -40, 90,    -90,    3e4f,    -3e4f};
    static const float relu[] = {0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0};
    static const float others[] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 1, 0, 1, 0, 1, 0};
    const float ones[11] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (enum ffn_kind kind = 0; kind < FFN_KINDS; kind++) {
        float out[11], dy[11], up[11], gate[11];
        const bool gated = ffn_kinds[kind].is_gated;
        memcpy(dy, ones, sizeof dy);
        memcpy(up, gated ? ones : special, sizeof up);
        memcpy(gate, special, sizeof gate);
        tables[0]->ffn[kind](out, up, gated ? gate : NULL, 11);
        tables[1]->ffn_backward[kind](dy, up, gated ? gate : NULL, 11);
        assert_same_bits(out, up, 11, tables[1]->name);
        for (int i = 0; i < 11; i++)
            ck_assert_double_eq_tol((double)(gated ? gate : dy)[i],
                                    (double)(kind == FFN_RELU ? relu : others)[i], 1e-6);
    }
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
