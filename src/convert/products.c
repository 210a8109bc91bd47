#include <math.h>

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

/* A row of targets beyond so many times a window's median counts as one that long: with massive
 * activations a few rows have almost all of the squares. But heads park on the first position,
 * which must be right. */
#define MOST_OF_MEDIAN 16
/* What pulls a feature's weights towards their prior, relative to its mean square: for each target
 * that of these which does best on the windows kept aside. */
static const double ridges[] = {1e-3, 1e-2, 1e-1, 1};

void convert_ridge_begin(struct converter *c, size_t m, size_t columns)
{
    c->ridge.m = m;
    c->ridge.columns = columns;
    for (struct convert_sums *s = c->ridge.sums; s < c->ridge.sums + 2; s++) {
        s->n = 0;
        convert_zero(s->features, m * m);
        convert_zero(s->targets, m * columns);
        convert_zero(s->f_sum, m);
        convert_zero(s->t_sum, columns);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* x [d] *= root, and sum += root x. */
static void weigh_row(double *sum, float *x, double root, size_t d)
{
    for (size_t i = 0; i < d; i++) {
        x[i] = (float)((double)x[i] * root);
        sum[i] += root * (double)x[i];
    }
}

void convert_ridge_add(struct converter *c, float *f, float *t, const struct convert_window *win)
{
    const size_t m = c->ridge.m, columns = c->ridge.columns, n = win->n;
    struct convert_sums *s = &c->ridge.sums[win->judged];
    double *lengths = c->x, *sorted = lengths + n;
    for (size_t i = 0; i < n; i++) {
        lengths[i] = 0;
        for (size_t j = 0; j < columns; j++)
            lengths[i] += (double)t[i * columns + j] * (double)t[i * columns + j];
        sorted[i] = lengths[i] = sqrt(lengths[i]);
    }
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    const double most = MOST_OF_MEDIAN * sorted[n / 2];
    for (size_t i = 0; i < n; i++) {
        const double root = i > 0 && lengths[i] > most ? most / lengths[i] : 1;
        weigh_row(s->f_sum, f + i * m, root, m);
        weigh_row(s->t_sum, t + i * columns, root, columns);
        s->n += root * root;
    }
    convert_add_outer_floats(c, s->features, convert_product_turned(c->part, f, f, m, n, m));
    convert_add_outer_floats(c, s->targets, convert_product_turned(c->part, f, t, m, n, columns));
}

/* A thread's share of the columns of c->square, by way of c->square2. */
static void solve_columns(void *arg, int thread)
{
    const struct converter *c = arg;
    const struct convert_ridge *r = &c->ridge;
    int begin, end;
    pool_share(r->columns, thread, c->n_threads, &begin, &end);
    double *own = c->square2 + begin * r->m, *w = c->square + begin;
    const size_t n = end - begin;
    if (n == 0)
        return;
    linalg_copy(own, n, w, r->columns, r->m, n);
    linalg_solve_lower(r->root, r->m, own, n);
    linalg_solve_lower_transposed(r->root, r->m, own, n);
    linalg_copy(w, r->columns, own, n, r->m, n);
}

/* c->square [m, columns] with this ridge; then its columns whose mean squared error on the windows
 * kept aside, less that of 0, is lower than it was. */
static void try_ridge(struct converter *c, const double *prior, double ridge)
{
    const struct convert_ridge *r = &c->ridge;
    const struct convert_sums *fitted = &r->sums[0], *aside = &r->sums[1];
    const size_t m = r->m, columns = r->columns;
    const double least = 1e-9 * linalg_trace(fitted->features, m) / m;
    double *w = c->square, *product = c->square2, *error = aside->t_sum;
    memcpy(r->root, fitted->features, m * m * sizeof *r->root);
    for (size_t i = 0; i < m; i++) {
        const double pull = ridge * r->root[i * m + i] + least;
        r->root[i * m + i] += pull;
        for (size_t j = 0; j < columns; j++)
            w[i * columns + j] =
                fitted->targets[i * columns + j] + pull * (prior ? prior[i * columns + j] : i == j);
    }
    linalg_cholesky(r->root, r->root, m, 0);
    pool_run(c->pool, solve_columns, c);

    convert_multiply(c, linalg_product(product, aside->features, w, m, columns), m);
    convert_zero(error, columns);
    for (size_t i = 0; i < m * columns; i++)
        error[i % columns] += w[i] * (product[i] - 2 * aside->targets[i]);
    for (size_t j = 0; j < columns; j++)
        if (error[j] < r->error[j]) {
            r->error[j] = error[j];
            for (size_t i = j; i < m * columns; i += columns)
                r->w[i] = w[i];
        }
}

bool convert_ridge_solve(struct converter *c, const double *prior, bool centred)
{
    const struct convert_ridge *r = &c->ridge;
    const size_t m = r->m, columns = r->columns;
    assert(prior || m == columns);
    for (const struct convert_sums *s = r->sums; s < r->sums + 2; s++) {
        const double *f_sum = centred ? s->f_sum : NULL;
        convert_finish_sums(s->features, f_sum, s->f_sum, s->n, m, m);
        convert_finish_sums(s->targets, f_sum, s->t_sum, s->n, m, columns);
    }
    const struct convert_sums *s = &r->sums[0];
    if (!(linalg_trace(s->features, m) > 0))
        return false;
    for (size_t j = 0; j < columns; j++)
        r->error[j] = HUGE_VAL;
    for (int i = 0; i < LENGTH(ridges); i++)
        try_ridge(c, prior, ridges[i]);
    for (size_t j = 0; j < columns; j++) {
        r->b[j] = centred ? s->t_sum[j] / s->n : 0;
        for (size_t i = 0; i < m && centred; i++)
            r->b[j] -= s->f_sum[i] / s->n * r->w[i * columns + j];
        if (!isfinite(r->error[j]))
            return false;
    }
    return true;
}
