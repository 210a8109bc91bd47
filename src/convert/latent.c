/*
 * A cache of one vector a position, which all heads of the block in work take as key and as value.
 *
 * c = x B of R numbers takes the place of all keys and values. What a head's queries can tell of
 * its keys, and its rows of the output matrix of its values, is a positive form on inputs; B keeps
 * most of their sum W, scores and outputs each as a share of their own: the leading eigenvectors of
 * C^T W C, with C C^T the inputs' covariance. Keys and values come back from c by least squares.
 */
#include <math.h>

#include "convert/private.h"

/* What a share of the scores' energy counts, as an error of scores moves whole patterns. (1, 3 and
 * 8 leave 0.046, 0.040 and 0.038 nats a token on the shipped checkpoint with rank 64.) */
#define SCORES_WEIGHT 8
/* Added to the covariance's diagonal, relative to its mean: it only has to make it invertible. */
#define COVARIANCE_RIDGE 1e-9
/* Of eigenvalues, relative to the largest: what is below is noise. */
#define LEAST_VALUE 1e-10

void convert_latent_take(struct converter *c)
{
    const size_t d = c->d;
    c->latent =
        (struct convert_latent){.basis = convert_doubles(c, d, d),
                                .shift = convert_doubles(c, d, 1),
                                .k_b = convert_doubles(c, d, c->qk.width),
                                .v_b = convert_doubles(c, d, c->ov.width),
                                .values = convert_doubles(c, d, 1),
                                .root = convert_doubles(c, d, d),
                                .form = convert_doubles(c, d, d),
                                .product = convert_doubles(c, c->widest, c->widest),
                                .scratch = convert_doubles(c, linalg_eigen_scratch(d, true), 1)};
}

/* Of a circuit's energy what its maps' first rows do not keep. */
static double lost_of(const struct convert_circuit *s, size_t n_heads, const double *maps, int rank)
{
    double kept = 0;
    for (int r = 0; r < rank; r++)
        for (size_t h = 0; h < n_heads; h++) {
            const double *x = maps + r * s->width + h * s->dim;
            const double *metric = convert_of_head(s, s->metric, h);
            for (size_t i = 0; i < s->dim; i++)
                kept += x[i] * linalg_dot(metric + i * s->dim, x, s->dim);
        }
    const double all = linalg_trace(s->white, s->width);
    return all > 0 ? fmax(1 - kept / all, 0) : 0;
}

enum status convert_latent_fit(struct converter *c, struct convert_layer *lost, struct err *e)
{
    const struct convert_latent *l = &c->latent;
    const size_t d = c->d;
    double *const all_maps[] = {l->k_b, l->v_b}, *weighted = c->square; /* [dim, d] */
    convert_zero(l->form, d * d);
    for (int k = 0; k < 2; k++) {
        /* += sum_h x_h^T metric_h x_h for the cached factors x_h [dim, d], as a share of the
         * circuit's energy */
        const struct convert_circuit *s = &c->circuits[k];
        const size_t dim = s->dim, rows = dim * d;
        const double energy = linalg_trace(s->white, s->width);
        const double share = (k == 0 ? SCORES_WEIGHT : 1) / energy;
        for (size_t h = 0; h < c->n_heads && energy > 0; h++) {
            const double *own = c->from.at[s->cached].w + convert_kv_head(c, h) * rows;
            linalg_multiply(weighted, convert_of_head(s, s->metric, h), own, dim, dim, d);
            linalg_scale(weighted, share, rows);
            convert_add_product(c, linalg_product_turned(l->form, own, weighted, d, dim, d), d);
        }
    }
    /* C with C C^T the covariance, and C^T W C, symmetric to the last bit. */
    convert_root(l->root, c->value_moments, d, COVARIANCE_RIDGE);
    convert_multiply(c, linalg_product(l->product, l->form, l->root, d, d), d);
    convert_multiply(c, linalg_product_turned(l->basis, l->root, l->product, d, d, d), d);
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++)
            l->form[i * d + j] = (l->basis[i * d + j] + l->basis[j * d + i]) / 2;
    c->eigen[0].diverged = !linalg_eigen(l->form, d, l->values, l->basis, d, l->scratch);
    TRY(convert_check_eigen(c, "", e));
    /* Row r of the basis: C^-T times eigenvector r, so that c is white; and 0 where nothing is. */
    linalg_transpose(l->product, l->basis, d, d);
    linalg_solve_lower_transposed(l->root, d, l->product, d);
    linalg_transpose(l->basis, l->product, d, d);
    for (size_t r = 0; r < d; r++) {
        double *row = l->basis + r * d;
        if (!(l->values[r] > LEAST_VALUE * l->values[0]))
            convert_zero(row, d);
        l->shift[r] = -linalg_dot(row, c->input_mean, d);
    }
    /* Maps [d, width]: the covariance of c with the factors of all heads. */
    convert_multiply(c, linalg_product(c->square, l->basis, c->value_moments, d, d), d);
    for (int k = 0; k < 2; k++) {
        const struct convert_circuit *s = &c->circuits[k];
        const struct convert_matrix *x = &c->from.at[s->cached];
        double *of_kv = l->product; /* [d, kv] */
        convert_multiply_transposed(c, linalg_product(of_kv, c->square, x->w, d, x->rows), d);
        for (size_t h = 0; h < c->n_heads; h++)
            linalg_copy(all_maps[k] + h * s->dim, s->width, of_kv + convert_kv_head(c, h) * s->dim,
                        x->rows, d, s->dim);
    }
    convert_keep(c); /* queries and output; there is no K and V */
    convert_add_value_means(c);
    if (lost) {
        const int rank = config_latent(&c->converted, c->block);
        lost->score = lost_of(&c->qk, c->n_heads, l->k_b, rank);
        lost->output = lost_of(&c->ov, c->n_heads, l->v_b, rank);
    }
    return STATUS_OK;
}
