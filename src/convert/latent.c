#include "convert/latent.h"

#include <math.h>
#include <string.h>

#include "compute/linalg.h"
#include "convert/apply.h"
#include "convert/products.h"

/* What a share of the scores' energy counts, of that of the outputs' 1: an error of scores moves
 * whole patterns. (1, 3 and 8 leave 0.046, 0.040 and 0.038 nats a token on the shipped checkpoint
 * with rank 64, 0.016, 0.014 and 0.012 on another of half the width with rank 32.) */
#define SCORES_WEIGHT 8
/* Added to the covariance's diagonal, relative to its mean: it only has to make it invertible. */
#define COVARIANCE_RIDGE 1e-9
/* Of eigenvalues, relative to the largest: what is below is noise. */
#define LEAST_VALUE 1e-10

void convert_latent_take(struct converter *c, struct arena *arena)
{
    const int d = c->d;
    c->latent = arena_take(arena, 1, sizeof *c->latent);
    const struct convert_latent pieces = {
        .basis = convert_take_doubles(arena, d, d),
        .shift = convert_take_doubles(arena, d, 1),
        .k_b = convert_take_doubles(arena, d, c->qk.width),
        .v_b = convert_take_doubles(arena, d, c->ov.width),
        .values = convert_take_doubles(arena, d, 1),
        .root = convert_take_doubles(arena, d, d),
        .form = convert_take_doubles(arena, d, d),
        .product = convert_take_doubles(arena, c->widest, c->widest),
        .scratch = arena_take(arena, linalg_eigen_scratch(d, true), sizeof(double)),
    };
    if (c->latent)
        *c->latent = pieces;
}

/* form += share * sum_h x_h^T metric_h x_h for the cached factors x [kv_heads * dim, d]. */
static void add_form(struct converter *c, const struct convert_circuit *s, const double *x,
                     double share)
{
    const int dim = s->dim, d = c->d;
    const size_t rows = (size_t)dim * (size_t)d;
    double *weighted = c->square; /* [dim, d] */
    for (int h = 0; h < c->n_heads; h++) {
        const double *own = x + (size_t)convert_kv_head(c, h) * rows;
        linalg_multiply(weighted, convert_of_head(s, s->metric, h), own, dim, dim, d);
        for (size_t i = 0; i < rows; i++)
            weighted[i] *= share;
        convert_add_outer(c->spec->pool, c->latent->form, own, weighted, dim, d, d);
    }
}

/* C with C C^T the covariance, and the form C^T W C to `form`. */
static void set_form(struct converter *c)
{
    struct convert_latent *l = c->latent;
    struct pool *pool = c->spec->pool;
    const int d = c->d;
    const double *cov = c->moments.values, scores = linalg_trace(c->qk.white, c->qk.width);
    const double outputs = linalg_trace(c->ov.white, c->ov.width);
    memset(l->form, 0, (size_t)d * (size_t)d * sizeof *l->form);
    if (scores > 0)
        add_form(c, &c->qk, c->from.k, SCORES_WEIGHT / scores);
    if (outputs > 0)
        add_form(c, &c->ov, c->from.v, 1 / outputs);
    convert_root(l->root, cov, d, COVARIANCE_RIDGE);
    convert_multiply(pool, l->product, l->form, l->root, d, d, d);
    memset(l->basis, 0, (size_t)d * (size_t)d * sizeof *l->basis);
    convert_add_outer(pool, l->basis, l->root, l->product, d, d, d);
    for (size_t i = 0; i < (size_t)d; i++) /* symmetric to the last bit */
        for (size_t j = 0; j < (size_t)d; j++)
            l->form[i * d + j] = (l->basis[i * d + j] + l->basis[j * d + i]) / 2;
}

/* Row r of the basis: C^-T times eigenvector r, as which it begins, so that c is white; and 0 where
 * nothing is. */
static void set_basis(struct converter *c)
{
    struct convert_latent *l = c->latent;
    const int d = c->d;
    double *turned = l->product; /* [d, d] eigenvectors as columns */
    linalg_transpose(turned, l->basis, d, d);
    linalg_solve_lower_transposed(l->root, d, turned, d);
    linalg_transpose(l->basis, turned, d, d);
    for (int r = 0; r < d; r++) {
        double *row = l->basis + (size_t)r * (size_t)d;
        if (!(l->values[r] > LEAST_VALUE * l->values[0]))
            memset(row, 0, (size_t)d * sizeof *row);
        l->shift[r] = -linalg_dot(row, c->moments.mean, (size_t)d);
    }
}

/* maps [d, width]: the covariance of c with the factors x of all heads. */
static void set_maps(struct converter *c, const struct convert_circuit *s, const double *x,
                     double *maps)
{
    const int d = c->d, kv = c->n_kv_heads * s->dim;
    double *turned = c->square2, *of_kv = c->latent->product; /* [d, kv], [d, kv] */
    convert_multiply(c->spec->pool, c->square, c->latent->basis, c->moments.values, d, d, d);
    convert_multiply_transposed(c->spec->pool, of_kv, c->square, x, d, d, kv, turned);
    for (int r = 0; r < d; r++)
        for (int h = 0; h < c->n_heads; h++)
            memcpy(maps + (size_t)r * (size_t)s->width + (size_t)(h * s->dim),
                   of_kv + (size_t)r * (size_t)kv + (size_t)(convert_kv_head(c, h) * s->dim),
                   (size_t)s->dim * sizeof *maps);
}

bool convert_latent_fit(struct converter *c)
{
    struct convert_latent *l = c->latent;
    set_form(c);
    if (!linalg_eigen(l->form, c->d, l->values, l->basis, c->d, l->scratch))
        return false;
    set_basis(c);
    set_maps(c, &c->qk, c->from.k, l->k_b);
    set_maps(c, &c->ov, c->from.v, l->v_b);
    convert_keep(c); /* queries and output; there is no K and V */
    convert_add_value_means(c);
    return true;
}

/* Of a circuit's energy what its maps' first rows do not keep. */
static double loss(const struct convert_circuit *s, int n_heads, const double *maps, int rank)
{
    double kept = 0;
    for (int r = 0; r < rank; r++)
        for (int h = 0; h < n_heads; h++) {
            const double *x = maps + (size_t)r * (size_t)s->width + (size_t)(h * s->dim);
            const double *metric = convert_of_head(s, s->metric, h);
            for (int i = 0; i < s->dim; i++)
                kept += x[i] * linalg_dot(metric + i * s->dim, x, (size_t)s->dim);
        }
    const double all = linalg_trace(s->white, s->width);
    return all > 0 ? fmax(1 - kept / all, 0) : 0;
}

void convert_latent_losses(const struct converter *c, int rank, double *score, double *output)
{
    *score = loss(&c->qk, c->n_heads, c->latent->k_b, rank);
    *output = loss(&c->ov, c->n_heads, c->latent->v_b, rank);
}
