#include "convert/ridge.h"

#include <assert.h>
#include <string.h>

#include "compute/linalg.h"

/* Pulls the solution towards its prior, relative to the features' mean square. */
#define REFIT_RIDGE 1e-4

void convert_ridge_begin(struct convert_ridge *r, int m, int columns)
{
    r->m = m;
    r->columns = columns;
    r->n = 0;
    memset(r->features, 0, (size_t)m * (size_t)m * sizeof *r->features);
    memset(r->targets, 0, (size_t)m * (size_t)columns * sizeof *r->targets);
    memset(r->f_sum, 0, (size_t)m * sizeof *r->f_sum);
    memset(r->t_sum, 0, (size_t)columns * sizeof *r->t_sum);
}

void convert_ridge_add(struct convert_ridge *r, const struct convert_summing *s, const float *f,
                       const float *t, int n)
{
    convert_add_outer_floats(s, r->features, f, f, n, r->m, r->m);
    convert_add_outer_floats(s, r->targets, f, t, n, r->m, r->columns);
    convert_add_rows(r->f_sum, f, n, (size_t)r->m);
    convert_add_rows(r->t_sum, t, n, (size_t)r->columns);
    r->n += n;
}

bool convert_ridge_solve(struct convert_ridge *r, const double *prior, bool centred)
{
    const size_t m = (size_t)r->m, columns = (size_t)r->columns;
    assert(prior || m == columns);
    const double *f_sum = centred ? r->f_sum : NULL;
    convert_finish_sums(r->features, f_sum, r->f_sum, r->n, r->m, r->m);
    convert_finish_sums(r->targets, f_sum, r->t_sum, r->n, r->m, r->columns);
    const double ridge = REFIT_RIDGE * linalg_trace(r->features, r->m) / r->m;
    if (!(ridge > 0))
        return false;
    for (size_t i = 0; i < m * columns; i++)
        r->targets[i] += ridge * (prior ? prior[i] : i / columns == i % columns);
    linalg_cholesky(r->features, r->features, r->m, ridge);
    linalg_solve_lower(r->features, r->m, r->targets, r->columns);
    linalg_solve_lower_transposed(r->features, r->m, r->targets, r->columns);
    for (size_t j = 0; j < columns; j++) {
        r->t_sum[j] = centred ? r->t_sum[j] / r->n : 0;
        for (size_t i = 0; i < m && centred; i++)
            r->t_sum[j] -= r->f_sum[i] / r->n * r->targets[i * columns + j];
    }
    return true;
}
