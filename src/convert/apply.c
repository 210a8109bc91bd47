#include "convert/apply.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "compute/linalg.h"
#include "convert/measure.h"

/* to [dim, n] += map [dim, dim] from [dim, n] */
static void add_mapped(double *to, const double *map, const double *from, int dim, int n)
{
    const struct linalg_product p = {.c = to,
                                     .c_stride = (size_t)n,
                                     .a = map,
                                     .a_row = (size_t)dim,
                                     .a_inner = 1,
                                     .b = from,
                                     .b_stride = (size_t)n,
                                     .inner = dim,
                                     .columns = n};
    linalg_add_product(&p, 0, dim);
}

/* Cached factors [kv_head, dim, n] to those of groups, and heads' own [head, dim, n] to such. */
static void apply_in(const struct converter *c, const struct convert_circuit *s, double *to,
                     const double *from, int n)
{
    const size_t rows = (size_t)s->dim * (size_t)n;
    memset(to, 0, (size_t)c->n_groups * rows * sizeof *to);
    for (int h = 0; h < c->n_heads; h++)
        add_mapped(to + (size_t)c->group_of[h] * rows, convert_of_head(s, s->in, h),
                   from + (size_t)convert_kv_head(c, h) * rows, s->dim, n);
}

static void apply_out(const struct converter *c, const struct convert_circuit *s, double *to,
                      const double *from, int n)
{
    const size_t rows = (size_t)s->dim * (size_t)n;
    memset(to, 0, (size_t)c->n_heads * rows * sizeof *to);
    for (int h = 0; h < c->n_heads; h++)
        add_mapped(to + (size_t)h * rows, convert_of_head(s, s->out, h), from + (size_t)h * rows,
                   s->dim, n);
}

/* --- means ----------------------------------------------------------------------------------- */

/* The bias that takes the mean from x's rows times the input. */
static void centre(const struct converter *c, const struct convert_circuit *s, double *bias,
                   const double *x)
{
    for (int i = 0; i < c->n_groups * s->dim; i++)
        bias[i] = -linalg_dot(x + (size_t)i * (size_t)c->d, c->moments.mean, (size_t)c->d);
}

void convert_add_value_means(const struct converter *c)
{
    const struct convert_weights *w = &c->from;
    const size_t d = (size_t)c->d;
    const int dim = c->ov.dim;
    for (int h = 0; h < c->n_heads; h++)
        for (int i = 0; i < dim; i++) {
            const size_t row = (size_t)(convert_kv_head(c, h) * dim + i);
            const double mean = linalg_dot(w->v + row * d, c->moments.mean, d) + w->bv[row];
            for (size_t j = 0; j < d; j++)
                c->to.bo[j] += mean * w->o[(size_t)(h * dim + i) * d + j];
        }
}

/*
 * fit reproduces the centred keys and values where it can. The keys' means do not matter: they add
 * the same to all scores of a query, unless positions turn them.
 */
static void move_means(const struct converter *c)
{
    if (c->qk.centred)
        centre(c, &c->qk, c->to.bk, c->to.k);
    if (!c->ov.centred)
        return;
    centre(c, &c->ov, c->to.bv, c->to.v);
    convert_add_value_means(c);
}

/* --- the weights ----------------------------------------------------------------------------- */

/* Numbers as large as those they replace. */
static void randomize(const struct converter *c, const struct convert_circuit *s, double *to,
                      double *bias, const double *from, struct rng *r)
{
    const size_t n_from = (size_t)(c->n_kv_heads * s->dim) * (size_t)c->d;
    const size_t rows_to = (size_t)(c->n_groups * s->dim), n_to = rows_to * (size_t)c->d;
    const double spread = sqrt(3 * linalg_dot(from, from, n_from) / (double)n_from);
    for (size_t i = 0; i < n_to; i++)
        to[i] = spread * (2 * rng_unit(r) - 1);
    memset(bias, 0, rows_to * sizeof *bias);
}

void convert_apply(struct converter *c)
{
    const struct convert_weights *from = &c->from, *to = &c->to;
    apply_out(c, &c->qk, to->q, from->q, c->d);
    apply_out(c, &c->qk, to->bq, from->bq, 1);
    apply_out(c, &c->ov, to->o, from->o, c->d);
    memcpy(to->bo, from->bo, (size_t)c->d * sizeof *to->bo);
    apply_in(c, &c->qk, to->k, from->k, c->d);
    apply_in(c, &c->ov, to->v, from->v, c->d);
    apply_in(c, &c->qk, to->bk, from->bk, 1);
    apply_in(c, &c->ov, to->bv, from->bv, 1);
    if (c->spec->method == CONVERT_FIT)
        move_means(c);
    if (c->spec->method == CONVERT_RANDOM) {
        struct rng r;
        rng_seed(&r, c->spec->seed, (uint64_t)c->block);
        randomize(c, &c->qk, to->k, to->bk, from->k, &r);
        randomize(c, &c->ov, to->v, to->bv, from->v, &r);
    }
}

void convert_keep(struct converter *c)
{
    for (int h = 0; h < c->n_heads; h++)
        c->order[h] = h;
    convert_copy_weights(c, &c->to, &c->from);
}

static void permute_rows(const struct converter *c, double *rows, size_t of_head)
{
    memcpy(c->square, rows, (size_t)c->n_heads * of_head * sizeof *rows);
    for (int i = 0; i < c->n_heads; i++)
        memcpy(rows + (size_t)i * of_head, c->square + (size_t)c->order[i] * of_head,
               of_head * sizeof *rows);
}

void convert_permute(struct converter *c)
{
    const size_t d = (size_t)c->d;
    permute_rows(c, c->to.q, (size_t)c->qk.dim * d);
    permute_rows(c, c->to.bq, (size_t)c->qk.dim);
    permute_rows(c, c->to.o, (size_t)c->ov.dim * d);
}
