#include <assert.h>
#include <math.h>

#include "convert/private.h"

/* Pulls least squares towards their prior, relative to the features' mean square. */
#define REFIT_RIDGE 1e-4

/* --- doubles --------------------------------------------------------------------------------- */

struct product_rows {
    struct pool *pool;
    size_t rows;
    struct linalg_product product;
};

static void add_product_rows(void *arg, int thread)
{
    const struct product_rows *job = arg;
    int begin, end;
    pool_share(job->rows, thread, pool_n_threads(job->pool), &begin, &end);
    linalg_add_product(&job->product, begin, end);
}

void convert_multiply(const struct converter *c, double *out, const double *a, const double *b,
                      size_t m, size_t k, size_t n)
{
    struct product_rows job = {c->pool, m, linalg_product(out, a, b, k, n)};
    convert_zero(out, m * n);
    pool_run(job.pool, add_product_rows, &job);
}

void convert_multiply_transposed(const struct converter *c, double *out, const double *a,
                                 const double *b, size_t m, size_t k, size_t n)
{
    linalg_transpose(c->square2, b, n, k);
    convert_multiply(c, out, a, c->square2, m, k, n);
}

void convert_add_outer(const struct converter *c, double *sum, const double *a, const double *b,
                       size_t n, size_t m, size_t columns)
{
    struct product_rows job = {c->pool, m, linalg_product_turned(sum, a, b, m, n, columns)};
    pool_run(job.pool, add_product_rows, &job);
}

void convert_add_dots(double *m, const double *a, const double *b, struct convert_rows r,
                      double scale)
{
    for (size_t i = 0; i < r.dim; i++)
        for (size_t j = 0; j < r.dim; j++)
            m[i * r.dim + j] += scale * linalg_dot(a + i * r.stride, b + j * r.stride, r.n);
}

void convert_finish_sums(double *sums, const double *a_sum, const double *b_sum, double n, size_t m,
                         size_t columns)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < columns; j++, sums++)
            *sums = *sums / n - (a_sum ? a_sum[i] / n * (b_sum[j] / n) : 0);
}

void convert_root(double *l, const double *a, size_t n, double ridge)
{
    linalg_cholesky(l, a, n, fmax(ridge * linalg_trace(a, n) / n, 0));
}

/* --- floats ---------------------------------------------------------------------------------- */

struct float_outer {
    double *sum;
    const struct converter *c;
    struct product product;
};

static void add_float_rows(void *arg, int thread)
{
    const struct float_outer *job = arg;
    struct product p = job->product;
    int begin, end;
    pool_share(p.m, thread, pool_n_threads(job->c->pool), &begin, &end);
    p.m = end - begin;
    p.a += begin;
    p.c += begin * p.c_row;
    job->c->grad->product(&p);
    convert_add_rows(job->sum + begin * p.c_row, p.c, 1, p.m * p.c_row);
}

void convert_add_outer_floats(const struct converter *c, double *sum, const float *a,
                              const float *b, size_t n, size_t m, size_t columns)
{
    struct float_outer job = {sum, c, convert_product(c->part, a, b, m, n, columns)};
    job.product.a_row = 1;
    job.product.a_col = m;
    pool_run(c->pool, add_float_rows, &job);
}

void convert_add_rows(double *sum, const float *x, size_t n, size_t d)
{
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < d; i++)
            sum[i] += (double)x[t * d + i];
}

void convert_subtract(float *out, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] - y[i];
}

/* --- least squares --------------------------------------------------------------------------- */

void convert_ridge_begin(struct converter *c, size_t m, size_t columns)
{
    struct convert_ridge *r = &c->ridge;
    r->m = m;
    r->columns = columns;
    r->n = 0;
    convert_zero(r->features, m * m);
    convert_zero(r->targets, m * columns);
    convert_zero(r->f_sum, m);
    convert_zero(r->t_sum, columns);
}

void convert_ridge_add(struct converter *c, const float *f, const float *t, size_t n)
{
    struct convert_ridge *r = &c->ridge;
    convert_add_outer_floats(c, r->features, f, f, n, r->m, r->m);
    convert_add_outer_floats(c, r->targets, f, t, n, r->m, r->columns);
    convert_add_rows(r->f_sum, f, n, r->m);
    convert_add_rows(r->t_sum, t, n, r->columns);
    r->n += n;
}

bool convert_ridge_solve(struct convert_ridge *r, const double *prior, bool centred)
{
    const size_t m = r->m, columns = r->columns;
    const double *f_sum = centred ? r->f_sum : NULL;
    assert(prior || m == columns);
    convert_finish_sums(r->features, f_sum, r->f_sum, r->n, m, m);
    convert_finish_sums(r->targets, f_sum, r->t_sum, r->n, m, columns);
    const double ridge = REFIT_RIDGE * linalg_trace(r->features, m) / m;
    if (!(ridge > 0))
        return false;
    for (size_t i = 0; i < m * columns; i++)
        r->targets[i] += ridge * (prior ? prior[i] : i / columns == i % columns);
    linalg_cholesky(r->features, r->features, m, ridge);
    linalg_solve_lower(r->features, m, r->targets, columns);
    linalg_solve_lower_transposed(r->features, m, r->targets, columns);
    for (size_t j = 0; j < columns; j++) {
        r->t_sum[j] = centred ? r->t_sum[j] / r->n : 0;
        for (size_t i = 0; i < m && centred; i++)
            r->t_sum[j] -= r->f_sum[i] / r->n * r->targets[i * columns + j];
    }
    return true;
}
