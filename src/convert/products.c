#include "convert/products.h"

#include <math.h>
#include <string.h>

#include "compute/linalg.h"

struct product_rows {
    struct linalg_product product;
    int rows, n_threads;
};

static void add_product_rows(void *arg, int thread)
{
    const struct product_rows *job = arg;
    int begin, end;
    pool_share(job->rows, thread, job->n_threads, &begin, &end);
    linalg_add_product(&job->product, begin, end);
}

static void add_product(struct pool *pool, const struct linalg_product *p, int rows)
{
    struct product_rows job = {.product = *p, .rows = rows, .n_threads = pool_n_threads(pool)};
    pool_run(pool, add_product_rows, &job);
}

void convert_multiply(struct pool *pool, double *c, const double *a, const double *b, int m, int k,
                      int n)
{
    const struct linalg_product p = {.c = c,
                                     .c_stride = (size_t)n,
                                     .a = a,
                                     .a_row = (size_t)k,
                                     .a_inner = 1,
                                     .b = b,
                                     .b_stride = (size_t)n,
                                     .inner = k,
                                     .columns = n};
    memset(c, 0, (size_t)m * (size_t)n * sizeof *c);
    add_product(pool, &p, m);
}

void convert_multiply_transposed(struct pool *pool, double *c, const double *a, const double *b,
                                 int m, int k, int n, double *scratch)
{
    linalg_transpose(scratch, b, n, k);
    convert_multiply(pool, c, a, scratch, m, k, n);
}

void convert_add_outer(struct pool *pool, double *c, const double *a, const double *b, int n, int m,
                       int columns)
{
    const struct linalg_product p = {.c = c,
                                     .c_stride = (size_t)columns,
                                     .a = a,
                                     .a_row = 1,
                                     .a_inner = (size_t)m,
                                     .b = b,
                                     .b_stride = (size_t)columns,
                                     .inner = n,
                                     .columns = columns};
    add_product(pool, &p, m);
}

struct float_outer {
    double *c;
    const struct grad_kernels *grad;
    struct product product;
    int n_threads;
};

static void add_float_rows(void *arg, int thread)
{
    const struct float_outer *job = arg;
    struct product p = job->product;
    const size_t columns = (size_t)p.n;
    int begin, end;
    pool_share(p.m, thread, job->n_threads, &begin, &end);
    p.m = end - begin;
    p.a += begin;
    p.c += (size_t)begin * columns;
    double *c = job->c + (size_t)begin * columns;
    job->grad->product(&p);
    for (size_t i = 0; i < (size_t)p.m * columns; i++)
        c[i] += (double)p.c[i];
}

void convert_add_outer_floats(const struct convert_summing *s, double *c, const float *a,
                              const float *b, int n, int m, int columns)
{
    struct float_outer job = {.c = c,
                              .grad = s->grad,
                              .product = {.m = m,
                                          .n = columns,
                                          .k = n,
                                          .a = a,
                                          .a_row = 1,
                                          .a_col = (size_t)m,
                                          .b = b,
                                          .b_row = (size_t)columns,
                                          .b_panel = KERNEL_LANES,
                                          .c = s->part,
                                          .c_row = (size_t)columns},
                              .n_threads = pool_n_threads(s->pool)};
    pool_run(s->pool, add_float_rows, &job);
}

void convert_finish_sums(double *sums, const double *a_sum, const double *b_sum, double n, int m,
                         int columns)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < columns; j++, sums++)
            *sums = *sums / n - (a_sum ? a_sum[i] / n * (b_sum[j] / n) : 0);
}

void convert_root(double *l, const double *a, int n, double ridge)
{
    linalg_cholesky(l, a, n, fmax(ridge * linalg_trace(a, n) / n, 0));
}

void convert_add_rows(double *sum, const float *x, int n, size_t d)
{
    for (int t = 0; t < n; t++)
        for (size_t i = 0; i < d; i++)
            sum[i] += (double)x[(size_t)t * d + i];
}

void convert_widen(double *out, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)x[i];
}

void convert_widen_difference(double *out, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)x[i] - (double)y[i];
}

void convert_subtract(float *out, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] - y[i];
}
