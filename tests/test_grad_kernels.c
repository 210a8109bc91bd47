/* The training kernels one by one, every table: products against sums in double, the rest against
 * the functions they stand for; bits against the scalar table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compute/grad_kernels.h"
#include "support.h"

#define MAX 8192

static float numbers[4][MAX];

static void fill(uint64_t seed)
{
    struct rng r;
    rng_seed(&r, seed, 0);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < MAX; j++)
            numbers[i][j] = (float)(2 * rng_unit(&r) - 1);
}

static const struct grad_kernels *table_at(int i)
{
    const struct kernels *k = kernels_at(i);
    return k && kernels_supported(k) ? grad_kernels_for(k) : NULL;
}

/* One shape in all four forms: A by rows or columns, from zero or from C, with or without bias. */
static void try_product(const struct grad_kernels *g, int m, int n, int k)
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
        for (int j = 0; j < m; j++)
            for (int i = 0; i < 64; i++) {
                double sum = from_c ? (double)kept[j * 64 + i] : 0;
                for (int x = 0; x < k && i < n; x++)
                    sum += (double)a[(size_t)j * p.a_row + (size_t)x * p.a_col] *
                           (double)b[(size_t)(i / KERNEL_LANES) * p.b_panel + (size_t)x * p.b_row +
                                     (size_t)(i % KERNEL_LANES)];
                if (p.bias)
                    sum += (double)bias[i];
                if (i >= n)
                    sum = (double)kept[j * 64 + i];
                ck_assert_msg(fabs((double)c[j * 64 + i] - sum) < 1e-5,
                              "%s: %d x %d x %d form %d: [%d][%d] is %g, expected %g", g->name, m,
                              n, k, form, j, i, (double)c[j * 64 + i], sum);
            }
    }
}

START_TEST(products)
{
    const struct grad_kernels *g = table_at(_i);
    if (!g)
        return;
    fill(1);
    static const int columns[] = {1, 7, 16, 17, 32, 33, 48, 64};
    for (int m = 1; m <= 40; m += m < 26 ? 1 : 7)
        for (int i = 0; i < 8; i++)
            try_product(g, m, columns[i], 1 + (m * 7 + i) % 19);
}
END_TEST

/* Cut along k, the sum is the same chain. */
START_TEST(product_in_parts)
{
    const struct grad_kernels *g = table_at(_i);
    if (!g)
        return;
    fill(2);
    float whole[20 * 32], parts[20 * 32];
    struct product p = {.m = 20,
                        .n = 32,
                        .k = 50,
                        .a = numbers[0],
                        .a_row = 50,
                        .a_col = 1,
                        .b = numbers[1],
                        .b_row = 32,
                        .b_panel = 16,
                        .c = whole,
                        .c_row = 32};
    g->product(&p);
    p.c = parts;
    p.k = 13;
    g->product(&p);
    p.start = parts;
    p.a += 13;
    p.b += (size_t)13 * 32;
    p.k = 37;
    g->product(&p);
    ck_assert(memcmp(whole, parts, sizeof whole) == 0);
}
END_TEST

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

START_TEST(gelu_and_its_slope)
{
    const struct grad_kernels *g = table_at(_i);
    if (!g)
        return;
    enum { N = 2001 };
    float x[N], y[N], dy[N], dx[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i - 1000) * 0.02f;
        dy[i] = 2;
    }
    g->ffn[FFN_GELU](y, x, NULL, N);
    g->ffn_backward[FFN_GELU](dx, NULL, dy, x, NULL, N);
    for (int i = 0; i < N; i++) {
        const double at = (double)x[i], h = 1e-5;
        ck_assert_double_eq_tol((double)y[i], gelu(at), 1e-6 * (1 + fabs(at)));
        ck_assert_double_eq_tol((double)dx[i], (gelu(at + h) - gelu(at - h)) / h, 2e-5);
    }
}
END_TEST

START_TEST(softmax_is_stable)
{
    const struct grad_kernels *g = table_at(_i);
    if (!g)
        return;
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
            ck_assert_double_eq_tol((double)x[i], 0.5 * exp(i % 7) / sum, 1e-6);
        ck_assert(x[n] == 5);
    }
    float bad[3] = {0, INFINITY, 1};
    ck_assert(isnan(g->softmax(bad, 3, 1)));
    float nan[3] = {0, NAN, 1};
    ck_assert(isnan(g->softmax(nan, 3, 1)));
}
END_TEST

START_TEST(sums_over_rows)
{
    const struct grad_kernels *g = table_at(_i);
    if (!g)
        return;
    fill(3);
    enum { ROWS = 13, STRIDE = 90 };
    for (int n = 1; n <= STRIDE; n += 8) {
        float plain[STRIDE + 1], gain[STRIDE + 1];
        plain[n] = gain[n] = 7;
        g->column_sums(plain, numbers[0], STRIDE, ROWS, n);
        g->gain_sums(gain, numbers[0], numbers[1], numbers[2], STRIDE, ROWS, n);
        ck_assert(plain[n] == 7 && gain[n] == 7);
        double squares = 0;
        for (int i = 0; i < n; i++) {
            double s = 0, w = 0;
            for (int t = 0; t < ROWS; t++) {
                const int at = t * STRIDE + i;
                s += (double)numbers[0][at];
                w += (double)numbers[0][at] * (double)(numbers[1][at] - numbers[2][2 * t]) *
                     (double)numbers[2][2 * t + 1];
            }
            ck_assert_double_eq_tol((double)plain[i], s, 1e-5);
            ck_assert_double_eq_tol((double)gain[i], w, 1e-5);
            squares += (double)numbers[0][i] * (double)numbers[0][i];
        }
        ck_assert_double_eq_tol((double)g->squares(numbers[0], (size_t)n), squares, 1e-5);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("training kernels");
    TCase *t = tcase_create("tables");
    int n = 0;
    while (kernels_at(n))
        n++;
    tcase_add_loop_test(t, products, 0, n);
    tcase_add_loop_test(t, product_in_parts, 0, n);
    tcase_add_loop_test(t, gelu_and_its_slope, 0, n);
    tcase_add_loop_test(t, softmax_is_stable, 0, n);
    tcase_add_loop_test(t, sums_over_rows, 0, n);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
