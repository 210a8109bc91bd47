/*
 * Which heads share, and the maps that make the shared heads.
 *
 * Up to EXACT_HEADS heads, all groupings are tried. With more heads, swaps lower the sum of the
 * costs of all pairs that share.
 */
#include "convert/private.h"

#include <math.h>

#define EXACT_HEADS 12
/* Rounds of alignment to the mean of the aligned heads. */
#define ALIGN_ROUNDS 20

/* --- ranges -------------------------------------------------------------------------------- */

/* A range of elements of a head that a map may mix. */
struct fit_range {
    const struct convert_circuit *of;
    size_t first, n;
    size_t at;    /* of its square in a head's [dim, dim] */
    bool is_pair; /* rotary: maps are of the form ((a, -b), (b, a)) */
};

/* Finds range i of a head; false behind the last. Each rotary pair is a range, and all elements
 * that are not rotated are one. */
static bool next_range(const struct convert_circuit *s, size_t i, struct fit_range *out)
{
    const bool is_pair = i < s->n_rotary / 2;
    const size_t first = is_pair ? 2 * i : s->n_rotary;
    *out =
        (struct fit_range){s, first, is_pair ? 2 : s->dim - first, first * s->dim + first, is_pair};
    return is_pair || (i == s->n_rotary / 2 && first < s->dim);
}

/* --- what sharing costs ---------------------------------------------------------------------- */

/* Computes the eigenvalues of a range of `white` between these heads, and n_vectors eigenvectors;
 * returns how many eigenvalues there are. */
static size_t solve_range(const struct fit_range *range, const int *heads, size_t n,
                          struct convert_eigen *scratch, size_t n_vectors)
{
    const struct convert_circuit *s = range->of;
    const size_t size = range->n, width = n * size;
    const double *white = s->white + range->first * s->width + range->first;
    for (size_t g = 0; g < n; g++)
        for (size_t h = 0; h < n; h++)
            linalg_copy(scratch->matrix + g * size * width + h * size, width,
                        white + heads[g] * s->dim * s->width + heads[h] * s->dim, s->width, size,
                        size);
    scratch->diverged |= !linalg_eigen(scratch->matrix, width, scratch->values, scratch->vectors,
                                       n_vectors, scratch->scratch);
    return width;
}

/* Returns the squared error that one shared head leaves: over all ranges, the sum of all
 * eigenvalues but the range.n largest. */
static double energy_beyond(const struct convert_circuit *s, const int *heads, size_t n,
                            struct convert_eigen *scratch)
{
    double sum = 0;
    struct fit_range range;
    for (size_t p = 0; next_range(s, p, &range); p++) {
        const size_t n_values = solve_range(&range, heads, n, scratch, 0);
        for (size_t i = n_values; i-- > range.n;)
            sum += fmax(scratch->values[i], 0);
    }
    return sum;
}

/* The costs of n sets of `size` heads: what fit cannot reproduce if a set's heads share, as a share
 * of the block's energy, summed over both circuits. */
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
                energy_beyond(s, job->sets + i * job->size, job->size, &c->groups.eigen[thread]);
            const double all = linalg_trace(s->white, s->width);
            share[k] = all > 0 ? beyond / all : 0;
        }
        job->costs[i] = share[0] + share[1];
    }
}

static void find_costs(struct converter *c, const int *sets, size_t n, size_t size, double *costs)
{
    pool_run(c->spec->pool, cost_sets, &(struct costing){c, sets, costs, n, size});
}

/* STATUS_FAILED if an eigenproblem diverged on any thread. */
static enum status check_eigen(const struct converter *c, struct err *e)
{
    for (int thread = 0; thread < c->n_threads; thread++)
        if (c->groups.eigen[thread].diverged)
            return err_failed(e,
                              "layer %d: the eigenvalues of its attention cannot be computed: "
                              "weights of attention or its norm are not finite or too large; the "
                              "methods mean and first need none",
                              c->block.index);
    return STATUS_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Returns the number of sets of so many heads, which is the binomial coefficient. */
static size_t count_sets(size_t n_heads, size_t size)
{
    size_t n = 1;
    for (size_t i = 1; i <= size; i++)
        n = n * (n_heads - size + i) / i;
    return n;
}

void convert_groups_allocate(struct converter *c)
{
    struct convert_groups *g = &c->groups;
    const size_t n_heads = c->block.n_heads, dim = MAX(c->circuits[QK].dim, c->circuits[OV].dim);
    const size_t n = dim * c->block.group;
    const size_t of_eigen = linalg_eigen_scratch(n, true), of_fit = 2 * dim * dim;
    ARENA_TAKE(g->eigen, &c->arena, c->n_threads);
    for (int i = 0; i < c->n_threads; i++) {
        const struct convert_eigen eigen = {.matrix = convert_doubles(c, n, n),
                                            .values = convert_doubles(c, n, 1),
                                            .vectors = convert_doubles(c, dim, n),
                                            .scratch =
                                                convert_doubles(c, MAX(of_eigen, of_fit), 1)};
        if (g->eigen)
            g->eigen[i] = eigen;
    }
    if (!c->spec->cluster)
        return;
    const bool exact = n_heads <= EXACT_HEADS;
    size_t most = 0, widest = 2;
    for (int l = 0; l < c->config.n_layers; l++) {
        const size_t group = config_group(&c->converted, l);
        const size_t n_sets = count_sets(n_heads, exact ? group : 2); /* else of pairs */
        most = MAX(n_sets, most);
        widest = MAX(group, widest);
    }
    most += 2 * c->block.n_groups; /* of the two groupings that are compared at the end */
    ARENA_TAKE(g->costs, &c->arena, most);
    ARENA_TAKE(g->sets, &c->arena, most * widest);
}

/* --- grouping up to EXACT_HEADS heads -------------------------------------------------------- */

/* Lists all sets of `size` heads in lexicographic order, the members of each ascending, and their
 * costs; returns how many. */
static size_t cost_all_sets(struct converter *c, int size)
{
    const int n_heads = c->block.n_heads;
    const size_t n = count_sets(n_heads, size);
    int *set = c->groups.sets;
    for (int i = 0; i < size; i++)
        set[i] = i;
    for (size_t k = 1; k < n; k++, set += size) {
        int grows = size - 1; /* the last member that can */
        while (set[grows] == n_heads - size + grows)
            grows--;
        for (int i = 0; i < size; i++)
            set[size + i] = i < grows ? set[i] : set[grows] + 1 + i - grows;
    }
    find_costs(c, c->groups.sets, n, size, c->groups.costs);
    return n;
}

/* Puts the cheapest grouping of the n heads of a mask into order, group by group, and returns its
 * cost. The first head that is left is in the next group. Of equals the first found stays. */
static double group_exactly(const struct converter *c, size_t n_sets, unsigned left, size_t n,
                            int *order)
{
    const size_t size = c->block.group;
    double least = n > 0 ? HUGE_VAL : 0;
    for (size_t i = 0; n > 0 && i < n_sets; i++) {
        const int *set = c->groups.sets + i * size;
        int rest[EXACT_HEADS] = {0};
        unsigned mask = 0;
        for (size_t k = 0; k < size; k++)
            mask |= 1u << set[k];
        if ((mask & left) != mask || !(mask & left & -left))
            continue;
        const double cost =
            group_exactly(c, n_sets, left & ~mask, n - size, rest) + c->groups.costs[i];
        if (cost < least) {
            least = cost;
            memcpy(order, set, size * sizeof *order);
            memcpy(order + size, rest, (n - size) * sizeof *order);
        }
    }
    return least;
}

/* --- grouping more heads --------------------------------------------------------------------- */

/* Returns what the head costs in this group: the sum over its pairs with the group's members, but
 * for the member at position `except` of the order. Pairs are in lexicographic order. */
static double bond(const struct converter *c, size_t head, size_t group, size_t except)
{
    double sum = 0;
    for (size_t i = group * c->block.group; i < (group + 1) * c->block.group; i++) {
        const size_t other = c->block.order[i], low = MIN(head, other), high = MAX(head, other);
        const size_t before =
            low * c->block.n_heads - low * (low + 1) / 2; /* whose first is lower */
        if (i != except)
            sum += c->groups.costs[before + high - low - 1];
    }
    return sum;
}

/* Swaps the two heads of different groups for which the cost falls most; false if no swap lowers it
 * by more than rounding. */
static bool swap_best(struct converter *c)
{
    double most = 1e-12;
    size_t from = 0, to = 0;
    for (size_t i = 0; i < c->block.n_heads; i++)
        for (size_t j = i - i % c->block.group + c->block.group; j < c->block.n_heads; j++) {
            const size_t a = c->block.order[i], b = c->block.order[j], ga = i / c->block.group,
                         gb = j / c->block.group;
            const double less =
                bond(c, a, ga, i) + bond(c, b, gb, j) - bond(c, a, gb, j) - bond(c, b, ga, i);
            if (less > most) {
                most = less;
                from = i;
                to = j;
            }
        }
    const int old = c->block.order[from];
    c->block.order[from] = c->block.order[to];
    c->block.order[to] = old;
    return from != to;
}

static int compare_heads(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Swaps heads while that lowers the cost. Costs of pairs say little about whole groups: if groups
 * of neighbours cost less than the groups found, neighbours share. */
static void group_by_swaps(struct converter *c)
{
    double *swapped = c->groups.costs + cost_all_sets(c, 2);
    double *adjacent = swapped + c->block.n_groups;
    double gain = 0;
    for (size_t swaps = 0; swaps < c->block.n_heads * c->block.n_heads; swaps++)
        if (!swap_best(c))
            break;
    for (size_t g = 0; g < c->block.n_groups; g++)
        qsort(c->block.order + g * c->block.group, c->block.group, sizeof *c->block.order,
              compare_heads);
    find_costs(c, c->block.order, c->block.n_groups, c->block.group, swapped);
    for (size_t i = 0; i < c->block.n_heads; i++)
        c->groups.sets[i] = i;
    find_costs(c, c->groups.sets, c->block.n_groups, c->block.group, adjacent);
    for (size_t g = 0; g < c->block.n_groups; g++)
        gain += adjacent[g] - swapped[g];
    if (!(gain > 0))
        memcpy(c->block.order, c->groups.sets, c->block.n_heads * sizeof *c->block.order);
}

/* --- fit ------------------------------------------------------------------------------------- */

/*
 * Fits the maps of a group. The leading eigenvectors are rows of `vectors`, `width` apart; with E_h
 * as head h's columns of them, map_cached_h = E_h^T root_h^T and map_own_h = E_h^T root_h^-1. So
 * the shared element of an eigenvalue w would have the variance w, and the heads' own elements 1; a
 * factor w^-1/4 to the former and w^1/4 to the latter makes both equal.
 */
static void fit_group(const struct converter *c, const struct convert_circuit *s, const int *heads,
                      struct convert_eigen *scratch)
{
    struct fit_range range;
    for (size_t p = 0; next_range(s, p, &range) && !scratch->diverged; p++) {
        const size_t n = range.n, dim = s->dim;
        const size_t width =
            solve_range(&range, heads, c->block.group, scratch, range.is_pair ? 1 : n);
        const double *values = scratch->values;
        double *product = scratch->matrix, *root = product + n * n, *e = scratch->scratch;
        /* Pairs are complex numbers: their eigenvalues come twice, and the second eigenvector is i
         * times the first, not whatever else is at right angles. */
        double *first = scratch->vectors, *second = first + width;
        if (range.is_pair)
            for (size_t i = 0; i < width; i += 2) {
                second[i] = -first[i + 1];
                second[i + 1] = first[i];
            }
        for (size_t g = 0; g < c->block.group; g++) {
            double *cached = convert_of_head(s, s->map_cached, heads[g]) + range.at;
            double *own = convert_of_head(s, s->map_own, heads[g]) + range.at;
            linalg_copy(root, n, convert_of_head(s, s->root, heads[g]) + range.at, dim, n, n);
            for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < n; k++)
                    e[i * n + k] = first[k * width + g * n + i];
            /* The maps transposed: root E and root^-T E. */
            linalg_multiply(product, root, e, n, n, n);
            linalg_solve_lower_transposed(root, n, e, n);
            for (size_t k = 0; k < n; k++) {
                const double w = fmax(values[range.is_pair ? 0 : k], 1e-12 * values[0]);
                const double factor = w > 0 ? sqrt(sqrt(w)) : 1;
                for (size_t i = 0; i < n; i++) {
                    cached[k * dim + i] = product[i * n + k] / factor;
                    own[k * dim + i] = e[i * n + k] * factor;
                }
            }
        }
    }
}

/* --- alignment ------------------------------------------------------------------------------- */

/* Rotates each cached factor to come nearest to the mean of the rotated factors, again and again,
 * and in the first round to the first head (generalized Procrustes, Gower 1975). The rotations are
 * map_own, which is the identity before. */
static void align_group(const struct converter *c, const struct convert_circuit *s,
                        const int *heads, struct convert_eigen *scratch)
{
    struct fit_range range;
    for (size_t p = 0; next_range(s, p, &range); p++) {
        const size_t n = range.n;
        double *sum = scratch->matrix, *rotation = sum + n * n;
        for (int round = 0; round <= ALIGN_ROUNDS; round++) {
            /* The first round rotates all heads but the first, towards that one. */
            const size_t n_targets = round == 0 ? 1 : c->block.group;
            for (size_t g = round == 0; g < c->block.group; g++) {
                convert_zero(sum, n * n);
                for (size_t o = 0; o < n_targets; o++) {
                    /* += E rotated x_o x_g^T */
                    struct linalg_product p_o =
                        linalg_product(sum, convert_of_head(s, s->map_own, heads[o]) + range.at,
                                       convert_gram(c, s, heads[o], heads[g]) +
                                           range.first * (c->block.n_kv_heads * s->dim + 1),
                                       n, n);
                    p_o.a_row = s->dim;
                    p_o.b_stride = c->block.n_kv_heads * s->dim;
                    linalg_add_product(&p_o, 0, n);
                }
                linalg_nearest_orthogonal(rotation, sum, n, scratch->scratch);
                linalg_copy(convert_of_head(s, s->map_own, heads[g]) + range.at, s->dim, rotation,
                            n, n, n);
            }
        }
    }
    for (size_t g = 0; g < c->block.group; g++) {
        const double *own = convert_of_head(s, s->map_own, heads[g]);
        for (size_t i = 0; i < s->dim * s->dim; i++)
            convert_of_head(s, s->map_cached, heads[g])[i] = own[i] / c->block.group;
    }
}

/* --- all groups ------------------------------------------------------------------------------ */

/* Makes this thread's maps; an item is one circuit of one group. */
static void map_groups(void *arg, int thread)
{
    struct converter *c = arg;
    const struct range items = pool_range(2 * c->block.n_groups, thread, c->n_threads);
    for (int item = items.begin; item < items.end; item++) {
        const struct convert_circuit *s = &c->circuits[item % 2];
        const int *heads = c->block.order + item / 2 * c->block.group;
        /* The shared head is the mean of the heads, or the first; fit and alignment replace that.
         */
        for (size_t g = 0; g < c->block.group; g++) {
            const double share = c->spec->method == CONVERT_MEAN ? 1.0 / c->block.group : g == 0;
            double *cached = convert_of_head(s, s->map_cached, heads[g]);
            linalg_identity(cached, s->dim);
            linalg_identity(convert_of_head(s, s->map_own, heads[g]), s->dim);
            for (size_t i = 0; i < s->dim; i++)
                cached[i * s->dim + i] = share;
        }
        if (c->spec->method == CONVERT_FIT)
            fit_group(c, s, heads, &c->groups.eigen[thread]);
        else if (c->spec->method == CONVERT_PROCRUSTES)
            align_group(c, s, heads, &c->groups.eigen[thread]);
    }
}

enum status convert_group_heads(struct converter *c, struct err *e)
{
    assert(c->block.group * c->block.n_groups == c->block.n_heads);
    for (size_t i = 0; i < c->block.n_heads; i++)
        c->block.order[i] = i;
    const size_t n_heads = c->block.n_heads;
    const bool clusters = c->spec->cluster && c->block.group > 1 && c->block.n_groups > 1;
    if (clusters && n_heads <= EXACT_HEADS)
        group_exactly(c, cost_all_sets(c, c->block.group), (1u << n_heads) - 1, n_heads,
                      c->block.order);
    else if (clusters)
        group_by_swaps(c);
    for (size_t i = 0; i < c->block.n_heads; i++)
        c->block.group_of[c->block.order[i]] = i / c->block.group;
    TRY(check_eigen(c, e));
    pool_run(c->spec->pool, map_groups, c);
    return check_eigen(c, e);
}
