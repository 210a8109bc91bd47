#include "convert/private.h"

/* --- doubles --------------------------------------------------------------------------------- */

struct double_product {
    const struct converter *c;
    struct linalg_product product;
    size_t rows;
};

static void add_product_rows(void *arg, int thread)
{
    const struct double_product *job = arg;
    const struct range rows = pool_range(job->rows, thread, job->c->n_threads);
    linalg_add_product(&job->product, rows.begin, rows.end);
}

void convert_add_product(const struct converter *c, struct linalg_product p, size_t rows)
{
    pool_run(c->spec->pool, add_product_rows, &(struct double_product){c, p, rows});
}

void convert_multiply(const struct converter *c, struct linalg_product p, size_t rows)
{
    convert_zero(p.c, rows * p.columns);
    convert_add_product(c, p, rows);
}

void convert_sums_to_moments(double *sums, const double *a_sum, const double *b_sum, double n,
                             size_t m, size_t columns)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < columns; j++, sums++)
            *sums = *sums / n - (a_sum ? a_sum[i] / n * (b_sum[j] / n) : 0);
}

/* --- floats ---------------------------------------------------------------------------------- */

struct gram {
    const struct converter *c;
    double *sum;
    struct product product;
};

static void add_gram_rows(void *arg, int thread)
{
    const struct gram *job = arg;
    struct product p = job->product;
    const struct range rows = pool_range(p.m, thread, job->c->n_threads);
    p.m = rows.end - rows.begin;
    p.a += rows.begin;
    p.c += rows.begin * p.c_row;
    job->c->grad->product(&p);
    for (int row = rows.begin; row < rows.end; row++, p.c += p.c_row)
        convert_add_rows(job->sum + row * p.n, p.c, 1, p.n);
}

void convert_add_gram(const struct converter *c, double *sum, const float *a, size_t a_columns,
                      const float *b, size_t b_columns, size_t n)
{
    const struct product p = {.m = a_columns,
                              .n = b_columns,
                              .k = n,
                              .a = a,
                              .a_row = 1,
                              .a_col = a_columns,
                              .b = b,
                              .b_row = b_columns,
                              .b_panel = KERNEL_LANES,
                              .c = c->scratch.float_product,
                              .c_row = b_columns};
    pool_run(c->spec->pool, add_gram_rows, &(struct gram){c, sum, p});
}

void convert_add_rows(double *sum, const float *x, size_t n, size_t d)
{
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < d; i++)
            sum[i] += (double)x[t * d + i];
}
