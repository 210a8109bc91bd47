/*
 * Up to EXACT_HEADS heads the best grouping is found exactly: the cost of every
 * set of a group's size, then dynamic programming over the sets of heads that are placed. Beyond,
 * swaps between groups lower the sum of the costs of all pairs that share.
 */
#include "convert/group.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "convert/fit.h"

#define EXACT_HEADS 12

static bool is_exact(int n_heads)
{
    return n_heads <= EXACT_HEADS;
}

static size_t binomial(int n, int k)
{
    size_t result = 1;
    for (int i = 1; i <= k; i++)
        result = result * (size_t)(n - k + i) / (size_t)i;
    return result;
}

/* Heads of a set that has a cost: a whole group, or a pair. */
static int set_size(int n_heads, int group)
{
    return is_exact(n_heads) ? group : 2;
}

void convert_group_take(struct converter *c, struct arena *arena)
{
    if (!c->spec->cluster)
        return;
    uint64_t n = 0;
    int group = 2;
    for (int l = 0; l < c->config.n_layers; l++) {
        const int of_layer = config_group(&c->converted, l);
        const uint64_t sets = binomial(c->n_heads, set_size(c->n_heads, of_layer));
        n = sets > n ? sets : n;
        group = of_layer > group ? of_layer : group;
    }
    n += 2 * (uint64_t)c->n_groups; /* of the two groupings that are compared at the end */
    c->costs = arena_take(arena, n, sizeof *c->costs);
    c->sets = arena_take(arena, n * (uint64_t)group, sizeof *c->sets);
}

/* --- costs, on all threads ------------------------------------------------------------------- */

struct costing {
    struct converter *c;
    const int *sets;
    double *costs;
    int n, size;
};

static void cost_sets(void *arg, int thread)
{
    const struct costing *job = arg;
    struct converter *c = job->c;
    const int n_threads = pool_n_threads(c->spec->pool);
    for (int i = thread; i < job->n; i += n_threads)
        job->costs[i] = convert_group_cost(c, job->sets + (size_t)i * (size_t)job->size, job->size,
                                           &c->eigen[thread], &c->diverged[thread]);
}

/* The costs of n sets of `size` heads. */
static void find_costs(struct converter *c, const int *sets, int n, int size, double *costs)
{
    struct costing job = {.c = c, .sets = sets, .costs = costs, .n = n, .size = size};
    pool_run(c->spec->pool, cost_sets, &job);
}

/* All sets of `size` heads in lexicographic order; returns how many. */
static int list_sets(int n_heads, int size, int *sets)
{
    int n = 0;
    int *set = sets;
    for (int i = 0; i < size; i++)
        set[i] = i;
    for (;;) {
        n++;
        int i = size - 1;
        while (i >= 0 && set[i] == n_heads - size + i)
            i--;
        if (i < 0)
            return n;
        memcpy(set + size, set, (size_t)size * sizeof *set);
        set += size;
        set[i]++;
        for (int j = i + 1; j < size; j++)
            set[j] = set[j - 1] + 1;
    }
}

/* --- up to EXACT_HEADS heads ----------------------------------------------------------------- */

static unsigned mask_of(const int *set, int size)
{
    unsigned mask = 0;
    for (int i = 0; i < size; i++)
        mask |= 1u << set[i];
    return mask;
}

/* The least cost of placing the heads of a mask, and the set with its first head that does. */
struct placing {
    double cost;
    int set;
};

/* best[mask] from the masks with one set less. The lists are in lexicographic order: of equal
 * costs the first counts. */
static void find_best(const struct converter *c, const double *costs, int n_sets,
                      struct placing *best)
{
    const unsigned all = (1u << c->n_heads) - 1;
    best[0] = (struct placing){0, -1};
    for (unsigned mask = 1; mask <= all; mask++) {
        best[mask] = (struct placing){HUGE_VAL, -1};
        for (int i = 0; i < n_sets; i++) {
            const unsigned set = mask_of(c->sets + (size_t)i * (size_t)c->group, c->group);
            const unsigned first = mask & ~(mask - 1);
            if ((set & mask) != set || !(set & first))
                continue;
            const double cost = best[mask & ~set].cost + costs[i];
            if (cost < best[mask].cost)
                best[mask] = (struct placing){cost, i};
        }
    }
}

static void group_exactly(struct converter *c)
{
    struct placing best[1 << EXACT_HEADS];
    const int n_sets = list_sets(c->n_heads, c->group, c->sets);
    find_costs(c, c->sets, n_sets, c->group, c->costs);
    find_best(c, c->costs, n_sets, best);
    unsigned left = (1u << c->n_heads) - 1;
    for (int *order = c->order; left; order += c->group) {
        const int *set = c->sets + (size_t)best[left].set * (size_t)c->group;
        memcpy(order, set, (size_t)c->group * sizeof *order);
        left &= ~mask_of(set, c->group);
    }
}

/* --- more heads ------------------------------------------------------------------------------ */

/* Of the pair (i, j) in the lexicographic list. */
static double pair_cost(const struct converter *c, int i, int j)
{
    const size_t low = (size_t)(i < j ? i : j), high = (size_t)(i < j ? j : i);
    const size_t n = (size_t)c->n_heads;
    return c->costs[low * n - low * (low + 1) / 2 + high - low - 1];
}

/* The sum of the head's pairs with the group whose place `except` is left out. */
static double bond(const struct converter *c, int head, int group, int except)
{
    double sum = 0;
    for (int i = group * c->group; i < (group + 1) * c->group; i++)
        if (i != except)
            sum += pair_cost(c, head, c->order[i]);
    return sum;
}

/* What swapping the heads at places i and j changes. */
static double swap_gain(const struct converter *c, int i, int j)
{
    const int a = c->order[i], b = c->order[j], ga = i / c->group, gb = j / c->group;
    return bond(c, a, ga, i) + bond(c, b, gb, j) - bond(c, a, gb, j) - bond(c, b, ga, i);
}

/* Makes the best swap; false if none lowers the cost by more than rounding. */
static bool make_best_swap(struct converter *c)
{
    double most = 1e-12;
    int from = -1, to = -1;
    for (int i = 0; i < c->n_heads; i++)
        for (int j = i - i % c->group + c->group; j < c->n_heads; j++) {
            const double gain = swap_gain(c, i, j);
            if (gain > most) {
                most = gain;
                from = i;
                to = j;
            }
        }
    if (from < 0)
        return false;
    const int head = c->order[from];
    c->order[from] = c->order[to];
    c->order[to] = head;
    return true;
}

static void sort_group(int *heads, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && heads[j] < heads[j - 1]; j--) {
            const int head = heads[j];
            heads[j] = heads[j - 1];
            heads[j - 1] = head;
        }
}

/* Pairs say little about whole groups: neighbours stay if their groups cost less. */
static void group_by_swaps(struct converter *c)
{
    const int n_sets = list_sets(c->n_heads, 2, c->sets);
    find_costs(c, c->sets, n_sets, 2, c->costs);
    for (int swaps = 0; swaps < c->n_heads * c->n_heads && make_best_swap(c);)
        swaps++;
    double *swapped = c->costs + n_sets, *adjacent = swapped + c->n_groups;
    for (int g = 0; g < c->n_groups; g++)
        sort_group(c->order + g * c->group, c->group);
    find_costs(c, c->order, c->n_groups, c->group, swapped);
    for (int i = 0; i < c->n_heads; i++)
        c->sets[i] = i;
    find_costs(c, c->sets, c->n_groups, c->group, adjacent);
    double gain = 0;
    for (int g = 0; g < c->n_groups; g++)
        gain += adjacent[g] - swapped[g];
    if (!(gain > 0))
        memcpy(c->order, c->sets, (size_t)c->n_heads * sizeof *c->order);
}

bool convert_group(struct converter *c)
{
    assert(c->group * c->n_groups == c->n_heads);
    for (int i = 0; i < c->n_heads; i++)
        c->order[i] = i;
    const bool choice = c->spec->cluster && c->group > 1 && c->n_groups > 1;
    if (choice && is_exact(c->n_heads))
        group_exactly(c);
    else if (choice)
        group_by_swaps(c);
    for (int i = 0; i < c->n_heads; i++)
        c->group_of[c->order[i]] = i / c->group;
    return !convert_any_diverged(c);
}
