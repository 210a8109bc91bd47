#include "convert/fit.h"

#include <math.h>
#include <string.h>

#include "compute/linalg.h"
#include "convert/measure.h"

/* Rounds of alignment to the mean of the aligned heads. */
#define ALIGN_ROUNDS 20

/* --- parts ---------------------------------------------------------------------------------- */

/* Elements of a head that a map may mix. */
struct part {
    int first, n;
    bool is_pair; /* turned: maps are of the form ((a, -b), (b, a)) */
};

static int count_parts(const struct convert_circuit *s)
{
    return s->n_turned / 2 + (s->n_turned < s->dim);
}

static struct part part_at(const struct convert_circuit *s, int i)
{
    if (i < s->n_turned / 2)
        return (struct part){2 * i, 2, true};
    return (struct part){s->n_turned, s->dim - s->n_turned, false};
}

/* --- fit ------------------------------------------------------------------------------------- */

/* A part of `white` between the given heads, to scratch->matrix; returns its size. */
static int copy_white(const struct converter *c, const struct convert_circuit *s, struct part part,
                      const int *heads, int n, struct convert_eigen *scratch)
{
    const size_t dim = (size_t)s->dim, size = (size_t)part.n, width = (size_t)n * size;
    const double *white = s->white + (size_t)part.first * (size_t)s->width + part.first;
    for (size_t g = 0; g < (size_t)n; g++)
        for (size_t i = 0; i < size; i++)
            for (size_t h = 0; h < (size_t)n; h++)
                memcpy(scratch->matrix + (g * size + i) * width + h * size,
                       white + ((size_t)heads[g] * dim + i) * (size_t)c->n_heads * dim +
                           (size_t)heads[h] * dim,
                       size * sizeof(double));
    return (int)width;
}

/* The squared error that one shared head leaves: of each part the eigenvalues beyond its elements.
 */
static double energy_beyond(const struct converter *c, const struct convert_circuit *s,
                            const int *heads, int n, struct convert_eigen *scratch, bool *diverged)
{
    double sum = 0;
    for (int p = 0; p < count_parts(s); p++) {
        const struct part part = part_at(s, p);
        const int width = copy_white(c, s, part, heads, n, scratch);
        if (!linalg_eigen(scratch->matrix, width, scratch->values, NULL, 0, scratch->scratch))
            *diverged = true;
        for (int i = width - 1; i >= part.n; i--)
            sum += fmax(scratch->values[i], 0);
    }
    return sum;
}

/* The same as a share of the block's. */
static double share_beyond(const struct converter *c, const struct convert_circuit *s,
                           const int *heads, int n, struct convert_eigen *scratch, bool *diverged)
{
    const double beyond = energy_beyond(c, s, heads, n, scratch, diverged);
    const double all = linalg_trace(s->white, s->width);
    return all > 0 ? beyond / all : 0;
}

double convert_kept(const struct converter *c, const struct convert_circuit *s, const int *heads,
                    int n, struct convert_eigen *scratch, bool *diverged)
{
    const double beyond = energy_beyond(c, s, heads, n, scratch, diverged);
    double all = 0;
    for (int i = 0; i < n; i++)
        for (int j = heads[i] * s->dim; j < (heads[i] + 1) * s->dim; j++)
            all += s->white[(size_t)j * (size_t)s->width + (size_t)j];
    return all > 0 ? fmax(1 - beyond / all, 0) : 1;
}

double convert_group_cost(const struct converter *c, const int *heads, int n,
                          struct convert_eigen *scratch, bool *diverged)
{
    return share_beyond(c, &c->qk, heads, n, scratch, diverged) +
           share_beyond(c, &c->ov, heads, n, scratch, diverged);
}

/* A square [part.n, part.n] from, or to, the part's place in a head's matrix. */
static void copy_square(double *to, size_t to_stride, const double *from, size_t from_stride, int n)
{
    for (size_t i = 0; i < (size_t)n; i++)
        memcpy(to + i * to_stride, from + i * from_stride, (size_t)n * sizeof *to);
}

static size_t place_in_head(const struct convert_circuit *s, struct part part)
{
    return (size_t)part.first * (size_t)s->dim + (size_t)part.first;
}

/*
 * With E_h head h's columns of the leading eigenvectors (rows of `vectors`): in_h = E_h^T root_h^T,
 * out_h = E_h^T root_h^-1. Of an eigenvalue w the shared element has the variance w and the
 * heads' own have 1; a factor w^-1/4 here and w^1/4 there makes them equal.
 */
static void fit_head(const struct convert_circuit *s, struct part part, int head,
                     const double *vectors, size_t width, struct convert_eigen *scratch)
{
    const int n = part.n;
    const size_t at = place_in_head(s, part), dim = (size_t)s->dim;
    double *product = scratch->matrix, *root = product + n * n, *e = scratch->scratch; /* E_h */
    double *in = convert_of_head(s, s->in, head) + at;
    double *out = convert_of_head(s, s->out, head) + at;
    copy_square(root, (size_t)n, convert_of_head(s, s->root, head) + at, dim, n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            e[i * n + k] = vectors[(size_t)k * width + (size_t)i];
    /* Transposed: root E, and root^-T E. */
    linalg_multiply(product, root, e, n, n, n);
    linalg_solve_lower_transposed(root, n, e, n);
    for (int k = 0; k < n; k++) {
        const double w = fmax(scratch->values[part.is_pair ? 0 : k], 1e-12 * scratch->values[0]);
        const double factor = w > 0 ? sqrt(sqrt(w)) : 1;
        for (int i = 0; i < n; i++) {
            in[(size_t)k * dim + (size_t)i] = product[i * n + k] / factor;
            out[(size_t)k * dim + (size_t)i] = e[i * n + k] * factor;
        }
    }
}

/* Pairs are complex numbers: their eigenvalues come twice, and the second eigenvector is i times
 * the first, not whatever else is at right angles. */
static void complete_pair(double *vectors, int width)
{
    for (int i = 0; i < width; i += 2) {
        vectors[width + i] = -vectors[i + 1];
        vectors[width + i + 1] = vectors[i];
    }
}

static bool fit_group(const struct converter *c, const struct convert_circuit *s, const int *heads,
                      struct convert_eigen *scratch)
{
    for (int p = 0; p < count_parts(s); p++) {
        const struct part part = part_at(s, p);
        const int width = copy_white(c, s, part, heads, c->group, scratch);
        if (!linalg_eigen(scratch->matrix, width, scratch->values, scratch->vectors,
                          part.is_pair ? 1 : part.n, scratch->scratch))
            return false;
        if (part.is_pair)
            complete_pair(scratch->vectors, width);
        for (int g = 0; g < c->group; g++)
            fit_head(s, part, heads[g], scratch->vectors + g * part.n, (size_t)width, scratch);
    }
    return true;
}

/* --- pooling --------------------------------------------------------------------------------- */

static void set_diagonal(const struct convert_circuit *s, double *of_heads, int head, double x)
{
    double *m = convert_of_head(s, of_heads, head);
    for (int i = 0; i < s->dim; i++)
        m[i * s->dim + i] = x;
}

static void pool_group(const struct converter *c, const struct convert_circuit *s, const int *heads)
{
    const bool mean = c->spec->method == CONVERT_MEAN;
    for (int g = 0; g < c->group; g++) {
        set_diagonal(s, s->in, heads[g], mean ? 1.0 / c->group : g == 0);
        set_diagonal(s, s->out, heads[g], 1);
    }
}

/* sum [part.n, part.n] += E turned x_o x_g^T for the cached factor of head o, turned as it is now,
 * and that of head g. */
static void add_turned(const struct converter *c, const struct convert_circuit *s, struct part part,
                       int o, int g, double *sum)
{
    const struct linalg_product p = {
        .c = sum,
        .c_stride = (size_t)part.n,
        .a = convert_of_head(s, s->out, o) + place_in_head(s, part),
        .a_row = (size_t)s->dim,
        .a_inner = 1,
        .b = convert_gram_row(c, s, o, part.first, g) + part.first,
        .b_stride = (size_t)(c->n_kv_heads * s->dim),
        .inner = part.n,
        .columns = part.n,
    };
    linalg_add_product(&p, 0, part.n);
}

/* Turns each cached factor so that it comes nearest to the mean of the turned ones, again and again
 * (generalized Procrustes, Gower 1975), starting from the first. */
static void align_part(const struct converter *c, const struct convert_circuit *s, struct part part,
                       const int *heads, struct convert_eigen *scratch)
{
    const size_t dim = (size_t)s->dim, at = place_in_head(s, part), n = (size_t)part.n;
    double *sum = scratch->matrix, *turn = sum + n * n;
    for (int round = 0; round <= ALIGN_ROUNDS; round++)
        for (int g = round ? 0 : 1; g < c->group; g++) {
            memset(sum, 0, n * n * sizeof *sum);
            for (int o = 0; o < (round ? c->group : 1); o++)
                add_turned(c, s, part, heads[o], heads[g], sum);
            linalg_nearest_orthogonal(turn, sum, part.n, scratch->scratch);
            copy_square(convert_of_head(s, s->out, heads[g]) + at, dim, turn, n, part.n);
        }
}

static void align_group(const struct converter *c, const struct convert_circuit *s,
                        const int *heads, struct convert_eigen *scratch)
{
    for (int g = 0; g < c->group; g++)
        set_diagonal(s, s->out, heads[g], 1);
    for (int p = 0; p < count_parts(s); p++)
        align_part(c, s, part_at(s, p), heads, scratch);
    for (int g = 0; g < c->group; g++)
        for (int i = 0; i < s->dim * s->dim; i++)
            convert_of_head(s, s->in, heads[g])[i] =
                convert_of_head(s, s->out, heads[g])[i] / c->group;
}

/* --- all groups ------------------------------------------------------------------------------ */

static void map_group(struct converter *c, int item, int thread)
{
    const struct convert_circuit *s = item % 2 ? &c->ov : &c->qk;
    const int *heads = c->order + item / 2 * c->group;
    switch (c->spec->method) {
    case CONVERT_FIT:
        if (!fit_group(c, s, heads, &c->eigen[thread]))
            c->diverged[thread] = true;
        break;
    case CONVERT_PROCRUSTES:
        align_group(c, s, heads, &c->eigen[thread]);
        break;
    default:
        pool_group(c, s, heads);
    }
}

static void map_groups(void *arg, int thread)
{
    struct converter *c = arg;
    int begin, end;
    pool_share(2 * c->n_groups, thread, pool_n_threads(c->spec->pool), &begin, &end);
    for (int item = begin; item < end; item++)
        map_group(c, item, thread);
}

static void clear_maps(const struct convert_circuit *s)
{
    const size_t n = (size_t)s->width * (size_t)s->dim;
    memset(s->in, 0, n * sizeof *s->in);
    memset(s->out, 0, n * sizeof *s->out);
}

bool convert_map(struct converter *c)
{
    clear_maps(&c->qk);
    clear_maps(&c->ov);
    pool_run(c->spec->pool, map_groups, c);
    return !convert_any_diverged(c);
}
