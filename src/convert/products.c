#include <assert.h>
#include <math.h>

#include "convert/private.h"

/* Pulls least squares towards their prior, relative to the features' mean square. */
#define REFIT_RIDGE 1e-4

/* --- doubles --------------------------------------------------------------------------------- */

struct double_product {
    const struct converter *c;
    struct linalg_product product;
    size_t rows;
};

static void add_product_rows(void *arg, int thread)
{
    const struct double_product *job = arg;
    int begin, end;
    pool_share(job->rows, thread, job->c->n_threads, &begin, &end);
    linalg_add_product(&job->product, begin, end);
}

void convert_add_product(const struct converter *c, struct linalg_product p, size_t rows)
{
    pool_run(c->pool, add_product_rows, &(struct double_product){c, p, rows});
}

void convert_multiply(const struct converter *c, struct linalg_product p, size_t rows)
{
    convert_zero(p.c, rows * p.columns);
    convert_add_product(c, p, rows);
}

void convert_multiply_transposed(const struct converter *c, struct linalg_product p, size_t rows)
{
    linalg_transpose(c->square2, p.b, p.columns, p.inner);
    p.b = c->square2;
    convert_multiply(c, p, rows);
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

void convert_add_turned(const struct converter *c, double *sum, size_t stride, struct product p,
                        int thread)
{
    int row, end;
    pool_share(p.m, thread, c->n_threads, &row, &end);
    p.a_row = 1;
    p.a_col = p.m;
    p.m = end - row;
    p.a += row;
    p.c += row * p.c_row;
    c->grad->product(&p);
    for (; row < end; row++, p.c += p.c_row)
        convert_add_rows(sum + row * stride, p.c, 1, p.n);
}

struct float_product {
    const struct converter *c;
    double *sum;
    struct product product;
};

static void add_turned_rows(void *arg, int thread)
{
    const struct float_product *job = arg;
    convert_add_turned(job->c, job->sum, job->product.n, job->product, thread);
}

void convert_add_outer_floats(const struct converter *c, double *sum, struct product p)
{
    pool_run(c->pool, add_turned_rows, &(struct float_product){c, sum, p});
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
    convert_add_outer_floats(c, r->features, convert_product(c->part, f, f, r->m, n, r->m));
    convert_add_outer_floats(c, r->targets, convert_product(c->part, f, t, r->m, n, r->columns));
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
