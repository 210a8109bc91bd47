#include "convert/ridge.h"

#include <math.h>

#include "convert/memory.h"
#include "convert/products.h"

/* A row of targets beyond so many times a window's median counts as one that long: with massive
 * activations a few rows have almost all of the squares. But heads park on the first position,
 * which must be right. */
#define MOST_OF_MEDIAN 16
/* What pulls a feature's weights towards their prior, relative to its mean square: for each target
 * that of these which does best on the windows held out. */
static const double ridges[] = {1e-3, 1e-2, 1e-1, 1};

void convert_ridge_take(struct converter *c, struct convert_ridge *r)
{
    const size_t d = c->d, m = c->widest;
    for (struct convert_sums *s = r->sums; s < r->sums + 2; s++)
        *s = (struct convert_sums){.features = convert_doubles(c, m, m),
                                   .targets = convert_doubles(c, m, d),
                                   .f_sum = convert_doubles(c, m, 1),
                                   .t_sum = convert_doubles(c, d, 1)};
    r->root = convert_doubles(c, m, m);
    r->w = convert_doubles(c, m, d);
    r->b = convert_doubles(c, d, 1);
    r->error = convert_doubles(c, d, 1);
    r->trial_error = convert_doubles(c, d, 1);
}

void convert_ridge_begin(struct convert_ridge *r, size_t m, size_t columns)
{
    r->m = m;
    r->columns = columns;
    for (struct convert_sums *s = r->sums; s < r->sums + 2; s++) {
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

void convert_ridge_add(struct converter *c, struct convert_ridge *r, float *f, float *t,
                       const struct convert_window *win)
{
    const size_t m = r->m, columns = r->columns, n = win->n;
    struct convert_sums *s = &r->sums[win->held_out];
    double *lengths = c->scratch.x, *sorted = lengths + n;
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
    convert_add_gram(c, s->features,
                     convert_product_transposed(c->scratch.float_product, f, f, m, n, m));
    convert_add_gram(c, s->targets,
                     convert_product_transposed(c->scratch.float_product, f, t, m, n, columns));
}

struct ridge_job {
    struct converter *c;
    const struct convert_ridge *ridge;
};

/* A thread's range of the columns of scratch.square, by way of scratch.square2. */
static void solve_columns(void *arg, int thread)
{
    const struct ridge_job *job = arg;
    const struct converter *c = job->c;
    const struct convert_ridge *r = job->ridge;
    int begin, end;
    pool_range(r->columns, thread, c->n_threads, &begin, &end);
    double *own = c->scratch.square2 + begin * r->m, *w = c->scratch.square + begin;
    const size_t n = end - begin;
    if (n == 0)
        return;
    linalg_copy(own, n, w, r->columns, r->m, n);
    linalg_solve_lower(r->root, r->m, own, n);
    linalg_solve_lower_transposed(r->root, r->m, own, n);
    linalg_copy(w, r->columns, own, n, r->m, n);
}

/* The solution [m, columns] with this ridge, in scratch.square; then r->w takes those of its
 * columns whose mean squared error on the windows held out, less that of 0, is lower than it was.
 */
static void try_ridge(struct converter *c, const struct convert_ridge *r, const double *prior,
                      double ridge)
{
    const struct convert_sums *fitted = &r->sums[0], *held_out = &r->sums[1];
    const size_t m = r->m, columns = r->columns;
    const double least = 1e-9 * linalg_trace(fitted->features, m) / m;
    double *w = c->scratch.square, *product = c->scratch.square2, *error = r->trial_error;
    memcpy(r->root, fitted->features, m * m * sizeof *r->root);
    for (size_t i = 0; i < m; i++) {
        const double pull = ridge * r->root[i * m + i] + least;
        r->root[i * m + i] += pull;
        for (size_t j = 0; j < columns; j++)
            w[i * columns + j] =
                fitted->targets[i * columns + j] + pull * (prior ? prior[i * columns + j] : i == j);
    }
    linalg_cholesky(r->root, r->root, m, 0);
    pool_run(c->pool, solve_columns, &(struct ridge_job){c, r});

    convert_multiply(c, linalg_product(product, held_out->features, w, m, columns), m);
    convert_zero(error, columns);
    for (size_t i = 0; i < m * columns; i++)
        error[i % columns] += w[i] * (product[i] - 2 * held_out->targets[i]);
    for (size_t j = 0; j < columns; j++)
        if (error[j] < r->error[j]) {
            r->error[j] = error[j];
            for (size_t i = j; i < m * columns; i += columns)
                r->w[i] = w[i];
        }
}

bool convert_ridge_solve(struct converter *c, struct convert_ridge *r, const double *prior,
                         bool centred)
{
    const size_t m = r->m, columns = r->columns;
    assert(prior || m == columns);
    for (const struct convert_sums *s = r->sums; s < r->sums + 2; s++) {
        const double *f_sum = centred ? s->f_sum : NULL;
        convert_sums_to_moments(s->features, f_sum, s->f_sum, s->n, m, m);
        convert_sums_to_moments(s->targets, f_sum, s->t_sum, s->n, m, columns);
    }
    const struct convert_sums *s = &r->sums[0];
    if (!(linalg_trace(s->features, m) > 0))
        return false;
    for (size_t j = 0; j < columns; j++)
        r->error[j] = HUGE_VAL;
    for (int i = 0; i < LENGTH(ridges); i++)
        try_ridge(c, r, prior, ridges[i]);
    for (size_t j = 0; j < columns; j++) {
        if (!isfinite(r->error[j]))
            return false;
        r->b[j] = 0;
        if (!centred)
            continue;
        r->b[j] = s->t_sum[j] / s->n;
        for (size_t i = 0; i < m; i++)
            r->b[j] -= s->f_sum[i] / s->n * r->w[i * columns + j];
    }
    return true;
}
