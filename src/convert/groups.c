/*
 * Which heads share, and the maps that make them: by fit, alignment or plainly.
 *
 * Up to EXACT_HEADS heads the best grouping is found: dynamic programming over the sets of heads
 * that are placed. Beyond, swaps lower the sum of the costs of all pairs that share.
 */
#include <math.h>

#include "convert/private.h"

#define EXACT_HEADS 12
/* Rounds of alignment to the mean of the aligned heads. */
#define ALIGN_ROUNDS 20

/* --- parts ---------------------------------------------------------------------------------- */

/* Elements of a head that a map may mix. */
struct part {
    const struct convert_circuit *of;
    size_t first, n;
    size_t at;    /* of its square in a head's [dim, dim] */
    bool is_pair; /* turned: maps are of the form ((a, -b), (b, a)) */
};

/* Part i of a head's, false behind the last: each turned pair, and all that is not turned. */
static bool next_mixed(const struct convert_circuit *s, size_t i, struct part *out)
{
    const bool is_pair = i < s->n_turned / 2;
    const size_t first = is_pair ? 2 * i : s->n_turned;
    *out = (struct part){s, first, is_pair ? 2 : s->dim - first, first * s->dim + first, is_pair};
    return is_pair || (i == s->n_turned / 2 && first < s->dim);
}

/* --- what sharing costs ---------------------------------------------------------------------- */

/* The eigenvalues of a part of `white` between these heads, and n_vectors eigenvectors; returns how
 * many there are. */
static size_t solve_part(const struct part *part, const int *heads, size_t n,
                         struct convert_eigen *scratch, size_t n_vectors)
{
    const struct convert_circuit *s = part->of;
    const size_t size = part->n, width = n * size;
    const double *white = s->white + part->first * s->width + part->first;
    for (size_t g = 0; g < n; g++)
        for (size_t h = 0; h < n; h++)
            linalg_copy(scratch->matrix + g * size * width + h * size, width,
                        white + heads[g] * s->dim * s->width + heads[h] * s->dim, s->width, size,
                        size);
    scratch->diverged |= !linalg_eigen(scratch->matrix, width, scratch->values, scratch->vectors,
                                       n_vectors, scratch->scratch);
    return width;
}

/* The squared error that one shared head leaves: of each part the eigenvalues beyond its elements.
 */
static double energy_beyond(const struct convert_circuit *s, const int *heads, size_t n,
                            struct convert_eigen *scratch)
{
    double sum = 0;
    struct part part;
    for (size_t p = 0; next_mixed(s, p, &part); p++)
        for (size_t i = solve_part(&part, heads, n, scratch, 0); i-- > part.n;)
            sum += fmax(scratch->values[i], 0);
    return sum;
}

double convert_kept(const struct convert_circuit *s, const int *heads, size_t n,
                    struct convert_eigen *scratch)
{
    const double beyond = energy_beyond(s, heads, n, scratch);
    double all = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = heads[i] * s->dim; j < (heads[i] + 1) * s->dim; j++)
            all += s->white[j * s->width + j];
    return all > 0 ? fmax(1 - beyond / all, 0) : 1;
}

/* The costs of n sets of `size` heads: what fit cannot reproduce, as a share of the block's energy,
 * of both circuits together. */
struct costing {
    struct converter *c;
    const int *sets;
    double *costs;
    size_t n, size;
};

static void cost_sets(void *arg, int thread)
{
    const struct costing *job = arg;
    struct converter *c = job->c;
    for (size_t i = thread; i < job->n; i += c->n_threads) {
        double share[2];
        for (int k = 0; k < 2; k++) {
            const struct convert_circuit *s = &c->circuits[k];
            const double beyond =
                energy_beyond(s, job->sets + i * job->size, job->size, &c->eigen[thread]);
            const double all = linalg_trace(s->white, s->width);
            share[k] = all > 0 ? beyond / all : 0;
        }
        job->costs[i] = share[0] + share[1];
    }
}

static void find_costs(struct converter *c, const int *sets, size_t n, size_t size, double *costs)
{
    pool_run(c->pool, cost_sets, &(struct costing){c, sets, costs, n, size});
}

/* --- grouping up to EXACT_HEADS heads -------------------------------------------------------- */

/* The least cost of placing the heads of a mask, and the set with its first head that does. */
struct convert_placing {
    double cost;
    int set;
};

void convert_group_take(struct converter *c)
{
    if (!c->spec->cluster)
        return;
    const bool exact = c->n_heads <= EXACT_HEADS;
    size_t most = 0, group = 2;
    for (int l = 0; l < c->config.n_layers; l++) {
        const size_t own = config_group(&c->converted, l), size = exact ? own : 2;
        size_t n = 1; /* sets of whole groups, or pairs: the binomial coefficient */
        for (size_t i = 1; i <= size; i++)
            n = n * (c->n_heads - size + i) / i;
        most = MAX(n, most);
        group = MAX(own, group);
    }
    most += 2 * c->n_groups; /* of the two groupings that are compared at the end */
    ARENA_TAKE(c->costs, &c->arena, most);
    ARENA_TAKE(c->sets, &c->arena, most * group);
    if (exact)
        ARENA_TAKE(c->placings, &c->arena, UINT64_C(1) << c->n_heads);
}

/* All sets of `size` heads in lexicographic order, with their costs; returns how many. */
static size_t cost_all_sets(struct converter *c, int size)
{
    size_t n = 1;
    int *set = c->sets, i;
    for (i = 0; i < size; i++)
        set[i] = i;
    for (;; n++) {
        for (i = size - 1; i >= 0 && set[i] == (int)c->n_heads - size + i;)
            i--;
        if (i < 0)
            break;
        memcpy(set + size, set, size * sizeof *set);
        set += size;
        set[i]++;
        for (int j = i + 1; j < size; j++)
            set[j] = set[j - 1] + 1;
    }
    find_costs(c, c->sets, n, size, c->costs);
    return n;
}

static unsigned mask_of(const int *set, size_t size)
{
    unsigned mask = 0;
    for (size_t i = 0; i < size; i++)
        mask |= 1u << set[i];
    return mask;
}

/* The best of each mask, from the masks with one set less; of equal costs the first counts. */
static void group_exactly(struct converter *c)
{
    const size_t n_sets = cost_all_sets(c, c->group);
    const unsigned all = (1u << c->n_heads) - 1;
    struct convert_placing *best = c->placings;
    best[0] = (struct convert_placing){0, -1};
    for (unsigned mask = 1; mask <= all; mask++) {
        best[mask] = (struct convert_placing){HUGE_VAL, -1};
        for (size_t i = 0; i < n_sets; i++) {
            const unsigned set = mask_of(c->sets + i * c->group, c->group);
            const unsigned first = mask & ~(mask - 1);
            if ((set & mask) != set || !(set & first))
                continue;
            const double cost = best[mask & ~set].cost + c->costs[i];
            if (cost < best[mask].cost)
                best[mask] = (struct convert_placing){cost, i};
        }
    }
    unsigned left = all;
    for (int *order = c->order; left; order += c->group) {
        memcpy(order, c->sets + best[left].set * c->group, c->group * sizeof *order);
        left &= ~mask_of(order, c->group);
    }
}

/* --- grouping more heads --------------------------------------------------------------------- */

/* The sum of the head's costs with a group but its place `except`. Costs are of pairs in
 * lexicographic order. */
static double bond(const struct converter *c, size_t head, size_t group, size_t except)
{
    double sum = 0;
    for (size_t i = group * c->group; i < (group + 1) * c->group; i++) {
        const size_t other = c->order[i], low = MIN(head, other), high = MAX(head, other);
        if (i != except)
            sum += c->costs[low * c->n_heads - low * (low + 1) / 2 + high - low - 1];
    }
    return sum;
}

static void swap_places(int *a, int *b)
{
    const int old = *a;
    *a = *b;
    *b = old;
}

/* The best swap again and again, while one lowers the cost by more than rounding. Pairs say little
 * about whole groups: neighbours stay if their groups cost less. */
static void group_by_swaps(struct converter *c)
{
    double *swapped = c->costs + cost_all_sets(c, 2), *adjacent = swapped + c->n_groups, gain = 0;
    size_t from = 0, to = 1;
    for (size_t swaps = 0; swaps < c->n_heads * c->n_heads && from != to; swaps++) {
        double most = 1e-12;
        from = to = 0;
        for (size_t i = 0; i < c->n_heads; i++)
            for (size_t j = i - i % c->group + c->group; j < c->n_heads; j++) {
                const size_t a = c->order[i], b = c->order[j], ga = i / c->group, gb = j / c->group;
                const double less =
                    bond(c, a, ga, i) + bond(c, b, gb, j) - bond(c, a, gb, j) - bond(c, b, ga, i);
                if (less > most) {
                    most = less;
                    from = i;
                    to = j;
                }
            }
        swap_places(c->order + from, c->order + to);
    }
    for (size_t i = 0; i < c->n_heads; i++) /* sorts each group */
        for (size_t j = i; j % c->group && c->order[j] < c->order[j - 1]; j--)
            swap_places(c->order + j, c->order + j - 1);
    find_costs(c, c->order, c->n_groups, c->group, swapped);
    for (size_t i = 0; i < c->n_heads; i++)
        c->sets[i] = i;
    find_costs(c, c->sets, c->n_groups, c->group, adjacent);
    for (size_t g = 0; g < c->n_groups; g++)
        gain += adjacent[g] - swapped[g];
    if (!(gain > 0))
        memcpy(c->order, c->sets, c->n_heads * sizeof *c->order);
}

/* --- fit ------------------------------------------------------------------------------------- */

/*
 * Of head h, with E_h its columns of the leading eigenvectors (rows of `vectors`, `width` apart):
 * in_h = E_h^T root_h^T, out_h = E_h^T root_h^-1. Of an eigenvalue w the shared element has the
 * variance w and the heads' own have 1; a factor w^-1/4 here and w^1/4 there makes them equal.
 */
static void fit_group(const struct converter *c, const struct convert_circuit *s, const int *heads,
                      struct convert_eigen *scratch)
{
    struct part part;
    for (size_t p = 0; next_mixed(s, p, &part) && !scratch->diverged; p++) {
        const size_t n = part.n, dim = s->dim;
        const size_t width = solve_part(&part, heads, c->group, scratch, part.is_pair ? 1 : n);
        const double *values = scratch->values;
        double *product = scratch->matrix, *root = product + n * n, *e = scratch->scratch;
        /* Pairs are complex numbers: their eigenvalues come twice, and the second eigenvector is i
         * times the first, not whatever else is at right angles. */
        double *first = scratch->vectors, *second = first + width;
        for (size_t i = 0; i < width && part.is_pair; i += 2) {
            second[i] = -first[i + 1];
            second[i + 1] = first[i];
        }
        for (size_t g = 0; g < c->group; g++) {
            double *in = convert_of_head(s, s->in, heads[g]) + part.at;
            double *out = convert_of_head(s, s->out, heads[g]) + part.at;
            linalg_copy(root, n, convert_of_head(s, s->root, heads[g]) + part.at, dim, n, n);
            for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < n; k++)
                    e[i * n + k] = first[k * width + g * n + i];
            /* Transposed: root E, and root^-T E. */
            linalg_multiply(product, root, e, n, n, n);
            linalg_solve_lower_transposed(root, n, e, n);
            for (size_t k = 0; k < n; k++) {
                const double w = fmax(values[part.is_pair ? 0 : k], 1e-12 * values[0]);
                const double factor = w > 0 ? sqrt(sqrt(w)) : 1;
                for (size_t i = 0; i < n; i++) {
                    in[k * dim + i] = product[i * n + k] / factor;
                    out[k * dim + i] = e[i * n + k] * factor;
                }
            }
        }
    }
}

/* --- alignment ------------------------------------------------------------------------------- */

/* Turns each cached factor, by `out` from the identity on, to come nearest to the mean of the
 * turned ones, again and again (generalized Procrustes, Gower 1975); at first to the first. */
static void align_group(const struct converter *c, const struct convert_circuit *s,
                        const int *heads, struct convert_eigen *scratch)
{
    struct part part;
    for (size_t p = 0; next_mixed(s, p, &part); p++) {
        const size_t n = part.n;
        double *sum = scratch->matrix, *turn = sum + n * n;
        for (int round = 0; round <= ALIGN_ROUNDS; round++)
            for (size_t g = round ? 0 : 1; g < c->group; g++) {
                convert_zero(sum, n * n);
                for (size_t o = 0; o < (round ? c->group : 1); o++) {
                    /* += E turned x_o x_g^T */
                    struct linalg_product p_o =
                        linalg_product(sum, convert_of_head(s, s->out, heads[o]) + part.at,
                                       convert_gram(c, s, heads[o], heads[g]) +
                                           part.first * (c->n_kv_heads * s->dim + 1),
                                       n, n);
                    p_o.a_row = s->dim;
                    p_o.b_stride = c->n_kv_heads * s->dim;
                    linalg_add_product(&p_o, 0, n);
                }
                linalg_nearest_orthogonal(turn, sum, n, scratch->scratch);
                linalg_copy(convert_of_head(s, s->out, heads[g]) + part.at, s->dim, turn, n, n, n);
            }
    }
    for (size_t g = 0; g < c->group; g++) {
        const double *out = convert_of_head(s, s->out, heads[g]);
        for (size_t i = 0; i < s->dim * s->dim; i++)
            convert_of_head(s, s->in, heads[g])[i] = out[i] / c->group;
    }
}

/* --- all groups ------------------------------------------------------------------------------ */

/* Both circuits of each group are items. */
static void map_groups(void *arg, int thread)
{
    struct converter *c = arg;
    int item, end;
    pool_share(2 * c->n_groups, thread, c->n_threads, &item, &end);
    for (; item < end; item++) {
        const struct convert_circuit *s = &c->circuits[item % 2];
        const int *heads = c->order + item / 2 * c->group;
        for (size_t g = 0; g < c->group; g++) { /* the mean, or the first */
            const double share = c->spec->method == CONVERT_MEAN ? 1.0 / c->group : g == 0;
            double *in = convert_of_head(s, s->in, heads[g]);
            linalg_identity(in, s->dim);
            linalg_identity(convert_of_head(s, s->out, heads[g]), s->dim);
            for (size_t i = 0; i < s->dim; i++)
                in[i * s->dim + i] = share;
        }
        if (c->spec->method == CONVERT_FIT)
            fit_group(c, s, heads, &c->eigen[thread]);
        else if (c->spec->method == CONVERT_PROCRUSTES)
            align_group(c, s, heads, &c->eigen[thread]);
    }
}

/* What ends the message of a method that cannot compute its eigenvalues. */
#define OTHER_METHODS "; the methods mean and first need none"

enum status convert_group(struct converter *c, struct err *e)
{
    assert(c->group * c->n_groups == c->n_heads);
    for (size_t i = 0; i < c->n_heads; i++)
        c->order[i] = i;
    if (c->spec->cluster && c->group > 1 && c->n_groups > 1)
        (c->placings ? group_exactly : group_by_swaps)(c);
    for (size_t i = 0; i < c->n_heads; i++)
        c->group_of[c->order[i]] = i / c->group;
    TRY(convert_check_eigen(c, OTHER_METHODS, e));
    pool_run(c->pool, map_groups, c);
    return convert_check_eigen(c, OTHER_METHODS, e);
}
