/*
 * The cells of a study and their order, what each is made from, and their means over the seeds.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study/study.h"

const char *const study_methods[] = {"mha", "mean",   "first",   "random", "procrustes",
                                     "fit", "latent", "scratch", NULL};
_Static_assert(sizeof study_methods / sizeof *study_methods == STUDY_N_METHODS + 1,
               "a name for each");

/* --- cells ----------------------------------------------------------------------------------- */

void study_cell_complete(struct study_cell *cell, const struct config *c)
{
    char variant[16];
    size_t len = 0;
    struct config cached = *c;
    for (int l = 0; l < c->n_layers; l++)
        cached.latent[l] = cell->latent;
    config_variant_name(&cached, cell->kv_heads, cell->variant);
    for (const char *at = cell->variant; *at; at++)
        if (*at != '-')
            variant[len++] = *at >= 'A' && *at <= 'Z' ? (char)(*at - 'A' + 'a') : *at;
    variant[len] = 0;
    cell->method_name = study_methods[cell->method];
    const bool is_mha = cell->method == STUDY_MHA;
    snprintf(cell->name, sizeof cell->name, "s%" PRIu64 "-%s%s%s%s-a%g", cell->seed, variant,
             is_mha ? "" : "-", is_mha ? "" : cell->method_name, cell->taught ? "-taught" : "",
             cell->alpha);
}

/* -1, 0 or 1 as a is below, equal to or above b. */
#define COMPARE(a, b) ((a) > (b)) - ((a) < (b))

int study_order(const void *a, const void *b)
{
    const struct study_cell *x = a, *y = b;
    const int orders[] = {COMPARE(x->latent > 0, y->latent > 0),
                          COMPARE(y->kv_heads, x->kv_heads),
                          COMPARE(y->latent, x->latent),
                          COMPARE(x->method, y->method),
                          COMPARE(x->taught, y->taught),
                          COMPARE(x->alpha, y->alpha),
                          COMPARE(x->seed, y->seed)};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (orders[i] != 0)
            return orders[i];
    return 0;
}

/* --- the plan -------------------------------------------------------------------------------- */

/* Steps of a run of n_steps for `alpha` percent: at least one, but for 0. */
static double share_of(double alpha, int n_steps)
{
    return alpha > 0 ? fmax(1, floor(alpha / 100 * n_steps + 0.5)) : 0;
}

enum status study_plan_add(struct study_plan *plan, struct study_cell cell, const double *shares,
                           int n, struct err *e)
{
    const size_t bytes = ((size_t)plan->n + 2 * (size_t)n * (size_t)plan->n_seeds) * sizeof cell;
    struct study_cell *cells = realloc(plan->cells, bytes + 1); /* 0 may give NULL */
    if (!cells)
        return err_no_memory(e, "the study's cells", bytes);
    plan->cells = cells;
    for (int a = 0; a < n; a++) {
        const double share = share_of(shares[a], plan->n_steps);
        if (plan->n_steps + share > INT_MAX)
            return err_set(e, STATUS_USAGE, "%g%% more than %d steps are too many", shares[a],
                           plan->n_steps);
        cell.alpha = shares[a];
        cell.steps = (int)share;
        if (cell.method == STUDY_SCRATCH || (cell.method == STUDY_MHA && cell.alpha == 0))
            cell.steps += plan->n_steps;
        const bool twice = plan->taught && cell.alpha > 0 && study_converts(cell.method);
        for (int taught = 0; taught <= twice; taught++)
            for (int i = 0; i < plan->n_seeds; i++) {
                cell.taught = taught;
                cell.seed = plan->first_seed + (uint64_t)i;
                study_cell_complete(&cell, plan->config);
                plan->cells[plan->n++] = cell;
            }
    }
    return STATUS_OK;
}

void study_plan_sort(struct study_plan *plan)
{
    qsort(plan->cells, (size_t)plan->n, sizeof *plan->cells, study_order);
}

void study_plan_free(struct study_plan *plan)
{
    free(plan->cells);
    *plan = (struct study_plan){.cells = NULL};
}

static struct study_cell *find(const struct study_plan *plan, struct study_cell key)
{
    return bsearch(&key, plan->cells, (size_t)plan->n, sizeof key, study_order);
}

struct study_cell *study_base(const struct study_plan *plan, const struct study_cell *cell)
{
    return find(plan, (struct study_cell){.seed = cell->seed, .kv_heads = plan->cells[0].kv_heads});
}

struct study_cell *study_origin(const struct study_plan *plan, const struct study_cell *cell)
{
    if (cell->method == STUDY_SCRATCH || (cell->method == STUDY_MHA && cell->alpha == 0))
        return NULL;
    if (cell->alpha == 0)
        return study_base(plan, cell);
    return find(plan, (struct study_cell){.seed = cell->seed,
                                          .kv_heads = cell->kv_heads,
                                          .latent = cell->latent,
                                          .method = cell->method});
}

/* --- means ----------------------------------------------------------------------------------- */

/* Of the cells [first, end), which differ in their seeds, those that are done. */
static struct study_mean mean_of(const struct study_plan *plan, const struct study_cell *first,
                                 const struct study_cell *end)
{
    struct study_mean m = {.kv_heads = first->kv_heads,
                           .latent = first->latent,
                           .method = first->method_name,
                           .taught = first->taught,
                           .alpha = first->alpha,
                           .least = HUGE_VAL,
                           .most = -HUGE_VAL};
    double sum = 0, squares = 0;
    memcpy(m.variant, first->variant, sizeof m.variant);
    for (const struct study_cell *cell = first; cell < end; cell++) {
        if (!cell->done)
            continue;
        struct study_cell key = *study_base(plan, cell);
        key.alpha = cell->alpha;
        const struct study_cell *control = find(plan, key); /* its seed's MHA, trained as long */
        m.n_seeds++;
        m.cache_bytes_per_token = cell->cache_bytes_per_token;
        sum += cell->bits_per_byte;
        m.least = fmin(m.least, cell->bits_per_byte);
        m.most = fmax(m.most, cell->bits_per_byte);
        m.over_mha +=
            control && control->done ? cell->bits_per_byte - control->bits_per_byte : (double)NAN;
    }
    m.bits_per_byte = sum / m.n_seeds;
    m.over_mha /= m.n_seeds;
    for (const struct study_cell *cell = first; cell < end; cell++)
        if (cell->done)
            squares += pow(cell->bits_per_byte - m.bits_per_byte, 2);
    m.deviation = m.n_seeds > 1 ? sqrt(squares / (m.n_seeds - 1)) : (double)NAN;
    return m;
}

/* Neighbours in the plan, of which only the seed is another. */
static bool same_mean(const struct study_cell *a, const struct study_cell *b)
{
    struct study_cell key = *a;
    key.seed = b->seed;
    return study_order(&key, b) == 0;
}

enum status study_means(const struct study_plan *plan, struct study_mean **means, int *n,
                        struct err *e)
{
    const struct study_cell *end = plan->cells + plan->n;
    *n = 0;
    *means = calloc((size_t)plan->n, sizeof **means);
    if (!*means)
        return err_no_memory(e, "the study's means", (size_t)plan->n * sizeof **means);
    for (const struct study_cell *first = plan->cells, *next = first; first < end; first = next) {
        while (next < end && same_mean(first, next))
            next++;
        const struct study_mean m = mean_of(plan, first, next);
        if (m.n_seeds > 0)
            (*means)[(*n)++] = m;
    }
    return STATUS_OK;
}
