/* Tests of decompositions and solvers by residuals, orthogonality and NumPy's values, also for
 * matrices that are singular or nearly so. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "compute/linalg.h"
#include "support.h"

static double *numbers(size_t n)
{
    return allocated_zeros((n + 1) * sizeof(double));
}

static double *random_numbers(size_t n, uint64_t seed)
{
    struct rng r;
    rng_seed(&r, seed, 0);
    double *x = numbers(n);
    for (size_t i = 0; i < n; i++)
        x[i] = rng_unit(&r) + rng_unit(&r) + rng_unit(&r) - 1.5;
    return x;
}

static double largest_difference(const double *a, const double *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(a[i] - b[i]));
    return largest;
}

/* Writes x^T x for x [n_rows, n]. */
static void gram(double *g, const double *x, int n_rows, int n)
{
    memset(g, 0, n * n * sizeof *g);
    for (int t = 0; t < n_rows; t++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                g[i * n + j] += x[t * n + i] * x[t * n + j];
}

TEST(products_are_those_of_plain_loops, .loops = 5)
{
    static const int shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {8, 64, 8}, {7, 131, 33}, {2, 0, 4}};
    const int m = shapes[_i][0], k = shapes[_i][1], n = shapes[_i][2];
    double *a = random_numbers(m * k, 1), *b = random_numbers(k * n, 2);
    double *at = numbers(m * k), *c = numbers(m * n), *d = numbers(m * n);
    linalg_multiply(c, a, b, m, k, n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int t = 0; t < k; t++)
                sum += a[i * k + t] * b[t * n + j];
            ck_assert_double_eq(c[i * n + j], sum);
        }
    /* A^T B of the transposed A has the same bits if it is cut at any row. */
    linalg_transpose(at, a, m, k);
    for (int cut = 0; cut <= m; cut++) {
        memset(d, 0, m * n * sizeof *d);
        const struct linalg_product p = {d, n, at, 1, (size_t)m, b, n, k, n};
        linalg_add_product(&p, cut, m);
        linalg_add_product(&p, 0, cut);
        ck_assert_mem_eq(c, d, m * n * sizeof *d);
    }
}

TEST(dot_and_trace)
{
    for (size_t n = 0; n < 40; n++) {
        double *a = random_numbers(n, n), *b = random_numbers(n, n + 100);
        long double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += (long double)a[i] * (long double)b[i];
        ck_assert_double_eq_tol(linalg_dot(a, b, n), (double)sum, 1e-14);
    }
    ck_assert_double_eq(linalg_trace((const double[]){1, 9, 9, 9, 2, 9, 9, 9, 4}, 3), 7);
}

/* Returns the largest element of |l l^T - a| over that of a. */
static double cholesky_residual(const double *l, const double *a, int n)
{
    double *lt = numbers(n * n), *back = numbers(n * n), *zero = numbers(n * n);
    linalg_transpose(lt, l, n, n);
    linalg_multiply(back, l, lt, n, n, n);
    return largest_difference(back, a, n * n) / largest_difference(zero, a, n * n);
}

/* The matrix has condition 1.5e10; the values are those of numpy.linalg.cholesky. The factor is
 * computed in place, and with a ridge. */
TEST(cholesky_of_a_hilbert_matrix)
{
    enum { N = 8 };
    double a[N * N], l[N * N];
    for (int i = 0; i < N * N; i++)
        a[i] = 1.0 / (i / N + i % N + 1);
    ck_assert_int_eq(linalg_cholesky(l, a, N, 0), N);
    ck_assert_double_lt(cholesky_residual(l, a, N), 1e-15);
    ck_assert_double_eq_tol(l[7 * N], 0.125, 1e-15);
    ck_assert_double_eq_tol(l[3 * N + 2], 0.11180339887499, 1e-9);
    ck_assert_double_eq_tol(l[7 * N + 7] / 7.52328e-05, 1, 1e-4);
    ck_assert_double_eq(l[2 * N + 3], 0);
    memcpy(l, a, sizeof a);
    ck_assert_int_eq(linalg_cholesky(l, l, N, 0.5), N);
    ck_assert_double_eq_tol(l[0], sqrt(1.5), 1e-15);
}

/* The matrices have rank 7, or are zero. Solutions are finite, and solve right sides in the range.
 */
TEST(cholesky_of_a_singular_matrix)
{
    enum { N = 40 };
    double a[N * N], l[N * N], x[N * 3], b[N * 3], back[N * 3];
    gram(a, random_numbers(7 * N, 3), 7, N);
    ck_assert_int_eq(linalg_cholesky(l, a, N, 0), 7);
    ck_assert_double_lt(cholesky_residual(l, a, N), N * N * DBL_EPSILON);
    linalg_multiply(b, a, random_numbers(N * 3, 4), N, N, 3);
    memcpy(x, b, sizeof b);
    linalg_solve_lower(l, N, x, 3);
    linalg_solve_lower_transposed(l, N, x, 3);
    linalg_multiply(back, a, x, N, N, 3);
    ck_assert_double_lt(largest_difference(back, b, N * 3), 1e-9);
    memset(a, 0, sizeof a);
    ck_assert_int_eq(linalg_cholesky(l, a, N, 0), 0);
    linalg_solve_lower(l, N, x, 3);
    for (int i = 0; i < N * 3; i++)
        ck_assert_double_eq(x[i], 0);
}

struct eigen {
    int n;
    double *values, *vectors;
};

static struct eigen decompose(const double *a, int n, int n_vectors)
{
    struct eigen g = {n, numbers(n), numbers(n * n)};
    double *copy = numbers(n * n), *scratch = numbers(linalg_eigen_scratch(n, true));
    memcpy(copy, a, n * n * sizeof *copy);
    ck_assert(linalg_eigen(copy, n, g.values, n_vectors ? g.vectors : NULL, n_vectors, scratch));
    return g;
}

/* Checks residuals, orthogonality, order and sign of the first n_vectors. */
static void check_eigen(const double *a, const struct eigen *g, int n_vectors)
{
    const int n = g->n;
    const double norm = fmax(fabs(g->values[0]), fabs(g->values[n - 1]));
    double trace = 0;
    for (int i = 0; i < n; i++)
        trace += g->values[i];
    ck_assert_double_le(fabs(trace - linalg_trace(a, n)), 1e-14 * n * norm);
    for (int k = 0; k < n_vectors; k++) {
        const double *x = g->vectors + k * n;
        double most = 0, positive = 0;
        for (int i = 0; i < n; i++) {
            const double ax = linalg_dot(a + i * n, x, n);
            ck_assert_double_le(fabs(ax - g->values[k] * x[i]), 1e-14 * n * norm);
            positive = fabs(x[i]) > most ? x[i] : positive;
            most = fmax(most, fabs(x[i]));
        }
        ck_assert_double_gt(positive, 0);
        for (int j = 0; j <= k; j++)
            ck_assert_double_le(fabs(linalg_dot(x, g->vectors + j * n, n) - (j == k)), 1e-14 * n);
    }
    for (int i = 1; i < n; i++)
        ck_assert_double_ge(g->values[i - 1], g->values[i]);
}

/* The values are those of numpy.linalg.eigh for [[4, 1, -2], [1, 3, 0.5], [-2, 0.5, 1]]. */
TEST(eigenvectors_as_numpy_gives_them)
{
    static const double a[] = {4, 1, -2, 1, 3, 0.5, -2, 0.5, 1};
    struct eigen g = decompose(a, 3, 3);
    check_eigen(a, &g, 3);
    static const double values[] = {5.217955775144567, 3.034654141519038, -0.2526099166636067};
    static const double vectors[] = {0.8731175045391053,  0.3085754697593195,  -0.3774215186369488,
                                     -0.1581418955397411, 0.911590791215525,   0.3794645836519538,
                                     0.4611474429534475,  -0.2716310159644294, 0.8447245864917327};
    ck_assert_double_lt(largest_difference(g.values, values, 3), 1e-13);
    ck_assert_double_lt(largest_difference(g.vectors, vectors, 9), 1e-13);
}

/* Some have low rank: eigenvalues that should be zero are noise, and must not keep QL from ending.
 */
TEST(eigenvalues_of_random_matrices, .loops = 14)
{
    static const int sizes[][2] = {{1, 1},     {2, 2},     {3, 3},    {5, 5},    {33, 33},
                                   {32, 1},    {64, 8},    {96, 95},  {128, 32}, {128, 128},
                                   {160, 155}, {256, 128}, {256, 16}, {300, 64}};
    const int n = sizes[_i][0], rank = sizes[_i][1];
    double *a = numbers(n * n);
    for (uint64_t seed = 0; seed < (SANITIZED ? 1 : 4); seed++) {
        gram(a, random_numbers(rank * n, 31 + seed), rank, n);
        for (int i = 0; i < n && rank == n; i++)
            a[i * n + i] -= n / 8.0; /* indefinite */
        struct eigen g = decompose(a, n, n), values = decompose(a, n, 0), some = decompose(a, n, 1);
        check_eigen(a, &g, n);
        ck_assert_mem_eq(g.values, values.values, n * sizeof(double));
        ck_assert_mem_eq(g.vectors, some.vectors, n * sizeof(double));
        ck_assert(rank == n || g.values[rank - 1] > 1e-9 * g.values[0]);
        for (int i = rank; i < n; i++)
            ck_assert_double_le(fabs(g.values[i]), 1e-14 * n * g.values[0]);
    }
}

/* The matrices are zero, a multiple of one, of rank 1, or near over- and underflow. One that is not
 * finite comes to an end. */
TEST(eigenvalues_of_special_matrices)
{
    enum { N = 24 };
    double a[N * N] = {0}, values[N], scratch[4 * N];
    for (int diagonal = 0; diagonal <= 3; diagonal += 3) {
        for (int i = 0; i < N; i++)
            a[i * N + i] = diagonal;
        struct eigen g = decompose(a, N, N);
        check_eigen(a, &g, N);
    }
    for (int over = 0; over < 2; over++) {
        const double size = over ? 1e200 : 1e-200;
        for (int i = 0; i < N * N; i++)
            a[i] = size;
        ck_assert_double_eq_tol(decompose(a, N, N).values[0] / (N * size), 1, 1e-14);
    }
    for (int i = 0; i < N * N; i++)
        a[i] = i % 7;
    a[5 * N + 3] = a[3 * N + 5] = (double)NAN;
    ck_assert(!linalg_eigen(a, N, values, NULL, 0, scratch));
}

static void check_orthogonal(const double *q, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            ck_assert_double_le(fabs(linalg_dot(q + i * n, q + j * n, n) - (i == j)), 1e-14 * n);
}

/* Of a rotation times a positive definite matrix the rotation is found; only with it is q^T m
 * symmetric positive definite. The result is also orthogonal for singular matrices, of rank 2 and
 * zero. */
TEST(nearest_orthogonal_matrix)
{
    enum { N = 20 };
    double q[N * N], again[N * N], back[N * N], scratch[2 * N * N], m[N * N], qt[N * N], p[N * N];
    double *x = random_numbers(N * N, 21);
    linalg_nearest_orthogonal(q, x, N, scratch);
    check_orthogonal(q, N);
    linalg_transpose(qt, q, N, N);
    linalg_multiply(back, qt, x, N, N, N);
    linalg_transpose(qt, back, N, N);
    ck_assert_double_le(largest_difference(back, qt, N * N), 1e-13);
    ck_assert_int_eq(linalg_cholesky(m, back, N, 0), N);
    gram(p, random_numbers(3 * N * N, 22), 3 * N, N);
    linalg_multiply(m, q, p, N, N, N);
    linalg_nearest_orthogonal(again, m, N, scratch);
    ck_assert_double_lt(largest_difference(again, q, N * N), 1e-12);
    for (int rank = 2; rank >= 0; rank -= 2) {
        linalg_multiply(m, x, x + N * (N - 2), N, rank, N);
        linalg_nearest_orthogonal(q, m, N, scratch);
        check_orthogonal(q, N);
    }
}
