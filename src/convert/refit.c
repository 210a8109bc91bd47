/*
 * Ridge regression of what the checkpoint's attention adds on the heads' results, which come from
 * the converted model's residual stream (or, where layers share a block, from the checkpoint's).
 * The new matrix is kept if it lowers the layer's error after attention on the windows held out.
 * That error is the sum of the rows' distances and not of their squares, because a few rows have
 * almost all of the squares.
 */
#include "convert/private.h"

#include <math.h>

/* A row of targets counts as at most so many times as long as the window's median, because with
 * massive activations a few rows have almost all of the squares. The first position is not cut:
 * heads park there, so it must be right. */
#define MOST_OF_MEDIAN 16
/* How strongly a feature's weights are pulled towards the old ones, relative to the feature's mean
 * square. Each target takes the ridge that does best on the windows held out. */
static const double ridges[] = {1e-3, 1e-2, 1e-1, 1};

void convert_refit_allocate(struct converter *c)
{
    struct convert_refitting *r = &c->refitting;
    const size_t d = c->d, m = c->circuits[OV].width;
    for (struct convert_sums *s = r->sums; s < r->sums + 2; s++)
        *s = (struct convert_sums){.features = convert_doubles(c, m, m),
                                   .targets = convert_doubles(c, m, d),
                                   .f_sum = convert_doubles(c, m, 1),
                                   .t_sum = convert_doubles(c, d, 1)};
    r->before = convert_doubles(c, m, d);
    r->before_bias = convert_doubles(c, d, 1);
    r->root = convert_doubles(c, m, m);
    r->w = convert_doubles(c, m, d);
    r->error = convert_doubles(c, d, 1);
    r->trial_error = convert_doubles(c, d, 1);
}

uint64_t convert_refit_windows(const struct converter *c)
{
    const uint64_t n = c->calib.n_windows;
    return c->spec->refit ? n + 2 * (n / CONVERT_HELD_OUT_EVERY) : 0;
}

/* --- sums over windows ------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* x [d] *= root; then sum [d] += root * x. */
static void weigh_row(double *sum, float *x, double root, size_t d)
{
    for (size_t i = 0; i < d; i++) {
        x[i] = (float)((double)x[i] * root);
        sum[i] += root * (double)x[i];
    }
}

/* Adds a window's rows to the sums: features are the heads' results, targets what the checkpoint's
 * attention adds. */
static void add_window(struct converter *c, int layer, const struct convert_window *win)
{
    struct convert_sums *s = &c->refitting.sums[win->held_out];
    const size_t m = c->circuits[OV].width, d = c->d, n = win->n;
    float *f = c->scratch.rows, *t = c->scratch.rows3;
    double *lengths = c->scratch.x, *sorted = lengths + n;
    convert_run_layer(c, layer, win, (struct block_taps){.at = {[TAP_HEADS] = f}});
    for (size_t i = 0; i < n * d; i++)
        t[i] = win->middle[i] - (config_adds(&c->config) ? win->from[i] : 0);
    for (size_t i = 0; i < n; i++) {
        lengths[i] = 0;
        for (size_t j = 0; j < d; j++)
            lengths[i] += (double)t[i * d + j] * (double)t[i * d + j];
        sorted[i] = lengths[i] = sqrt(lengths[i]);
    }
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    const double most = MOST_OF_MEDIAN * sorted[n / 2];
    for (size_t i = 0; i < n; i++) {
        const double root = i > 0 && lengths[i] > most ? most / lengths[i] : 1;
        weigh_row(s->f_sum, f + i * m, root, m);
        weigh_row(s->t_sum, t + i * d, root, d);
        s->n += root * root;
    }
    convert_add_gram(c, s->features, f, m, f, m, n);
    convert_add_gram(c, s->targets, f, m, t, d, n);
}

static enum status sum_windows(struct converter *c)
{
    const size_t m = c->circuits[OV].width, d = c->d;
    for (struct convert_sums *s = c->refitting.sums; s < c->refitting.sums + 2; s++) {
        s->n = 0;
        convert_zero(s->features, m * m);
        convert_zero(s->targets, m * d);
        convert_zero(s->f_sum, m);
        convert_zero(s->t_sum, d);
    }
    return convert_each_window(c, CONVERT_ALL, add_window);
}

/* --- the regression --------------------------------------------------------------------------- */

/* Solves a thread's range of the columns of scratch.square, which are copied to scratch.square2
 * meanwhile. */
static void solve_columns(void *arg, int thread)
{
    const struct converter *c = arg;
    const size_t m = c->circuits[OV].width, d = c->d;
    const struct range own = pool_range(d, thread, c->n_threads);
    double *columns = c->scratch.square2 + own.begin * m, *w = c->scratch.square + own.begin;
    const size_t n = own.end - own.begin;
    if (n == 0)
        return;
    linalg_copy(columns, n, w, d, m, n);
    linalg_solve_lower(c->refitting.root, m, columns, n);
    linalg_solve_lower_transposed(c->refitting.root, m, columns, n);
    linalg_copy(w, d, columns, n, m, n);
}

/* Computes the solution [m, d] with this ridge in scratch.square. r->w takes each column that has a
 * lower mean squared error on the windows held out than its own. (Errors are given without a
 * constant, the error of weights of 0.) */
static void try_ridge(struct converter *c, double ridge)
{
    const struct convert_refitting *r = &c->refitting;
    const struct convert_sums *fitted = &r->sums[0], *held_out = &r->sums[1];
    const size_t m = c->circuits[OV].width, d = c->d;
    const double least = 1e-9 * linalg_trace(fitted->features, m) / m;
    double *w = c->scratch.square, *product = c->scratch.square2, *error = r->trial_error;
    memcpy(r->root, fitted->features, m * m * sizeof *r->root);
    for (size_t i = 0; i < m; i++) {
        const double pull = ridge * r->root[i * m + i] + least;
        r->root[i * m + i] += pull;
        for (size_t j = 0; j < d; j++)
            w[i * d + j] = fitted->targets[i * d + j] + pull * r->before[i * d + j];
    }
    linalg_cholesky(r->root, r->root, m, 0);
    pool_run(c->spec->pool, solve_columns, c);

    convert_multiply(c, linalg_product(product, held_out->features, w, m, d), m);
    convert_zero(error, d);
    for (size_t i = 0; i < m * d; i++)
        error[i % d] += w[i] * (product[i] - 2 * held_out->targets[i]);
    for (size_t j = 0; j < d; j++)
        if (error[j] < r->error[j]) {
            r->error[j] = error[j];
            for (size_t i = j; i < m * d; i += d)
                r->w[i] = w[i];
        }
}

/* Solves t = f w + b for the sums, which it destroys. Puts w into `to`, and b if the file has a
 * bias. If the features are constant, nothing changes. */
static void solve(struct converter *c)
{
    struct convert_refitting *r = &c->refitting;
    const struct convert_matrix *o = &c->block.to[WEIGHT_O];
    const bool centred = convert_new(c, ROLE_ATTN_OUTPUT, true)->bytes;
    const size_t m = o->rows, d = c->d;
    for (const struct convert_sums *s = r->sums; s < r->sums + 2; s++) {
        const double *f_sum = centred ? s->f_sum : NULL;
        convert_sums_to_moments(s->features, f_sum, s->f_sum, s->n, m, m);
        convert_sums_to_moments(s->targets, f_sum, s->t_sum, s->n, m, d);
    }
    const struct convert_sums *s = &r->sums[0];
    if (!(linalg_trace(s->features, m) > 0))
        return;
    for (size_t j = 0; j < d; j++)
        r->error[j] = HUGE_VAL;
    for (int i = 0; i < LENGTH(ridges); i++)
        try_ridge(c, ridges[i]);
    for (size_t j = 0; j < d; j++)
        if (!isfinite(r->error[j]))
            return;
    memcpy(o->w, r->w, m * d * sizeof *o->w);
    if (!centred)
        return;
    for (size_t j = 0; j < d; j++) {
        o->bias[j] = s->t_sum[j] / s->n;
        for (size_t i = 0; i < m; i++)
            o->bias[j] -= s->f_sum[i] / s->n * o->w[i * d + j];
    }
}

/* --- judging ---------------------------------------------------------------------------------- */

static void add_distance(struct converter *c, int layer, const struct convert_window *win)
{
    convert_run_layer(c, layer, win, (struct block_taps){.at = {[TAP_MIDDLE] = c->scratch.rows}});
    for (size_t at = 0; at < win->n * c->d; at += c->d)
        c->refitting.distance +=
            sqrt(convert_squared_distance(c, c->scratch.rows + at, win->middle + at, c->d));
}

/* Measures the distance of the stored tensors' stream from the checkpoint's, after attention, on
 * the windows held out. */
static enum status measure_distance(struct converter *c, double *distance)
{
    c->refitting.distance = 0;
    convert_load_stored(c);
    TRY(convert_each_window(c, CONVERT_HELD_OUT, add_distance));
    *distance = c->refitting.distance;
    return STATUS_OK;
}

/* A solution that the type of the weights cannot hold counts as worse. */
enum status convert_refit(struct converter *c, struct err *e)
{
    struct convert_refitting *r = &c->refitting;
    const struct convert_matrix *o = &c->block.to[WEIGHT_O];
    double before, after = HUGE_VAL;
    struct err beyond;
    if (!c->spec->refit)
        return STATUS_OK;
    TRY(measure_distance(c, &before));
    memcpy(r->before, o->w, o->rows * c->d * sizeof *o->w);
    memcpy(r->before_bias, o->bias, c->d * sizeof *o->bias);
    TRY(sum_windows(c));
    solve(c);
    if (convert_store(c, WEIGHT_O, CONVERT_WEIGHTS, &beyond) == STATUS_OK)
        TRY(measure_distance(c, &after));
    if (after < before)
        return STATUS_OK;
    memcpy(o->w, r->before, o->rows * c->d * sizeof *o->w);
    memcpy(o->bias, r->before_bias, c->d * sizeof *o->bias);
    return convert_store(c, WEIGHT_O, CONVERT_WEIGHTS, e);
}
