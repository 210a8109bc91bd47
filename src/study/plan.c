/*
 * The cells of a study and their order, what each is made from, and their means over the seeds.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "study/study.h"

const char *const study_methods[] = {"mha",        "mean", "first",   "random",
                                     "procrustes", "fit",  "scratch", NULL};
_Static_assert(LENGTH(study_methods) == STUDY_N_METHODS + 1, "a name for each");

/* --- cells ----------------------------------------------------------------------------------- */

void study_cell_complete(struct study_cell *cell, const struct config *c)
{
    char variant[16], heads[16] = "";
    size_t len = 0;
    const bool is_mha = cell->method == STUDY_MHA;
    config_variant_name(c, cell->kv_heads, cell->variant);
    for (const char *at = cell->variant; *at; at++)
        if (*at != '-')
            variant[len++] = *at | 0x20; /* small letters; digits stay */
    variant[len] = 0;
    cell->method_name = study_methods[cell->method];
    cell->heads = c->n_heads;
    cell->d_ff = c->d_ff;
    if (cell->by_heads)
        chars_printf(heads, "h%d-", cell->heads);
    chars_printf(cell->name, "s%" PRIu64 "-%s%s%s%s%s-a%g", cell->seed, heads, variant,
                 is_mha ? "" : "-", is_mha ? "" : cell->method_name, cell->taught ? "-taught" : "",
                 cell->alpha);
}

int study_order(const void *a, const void *b)
{
    const struct study_cell *x = a, *y = b;
#define RISING(p, q)                                                                               \
    if ((p) != (q))                                                                                \
    return (p) < (q) ? -1 : 1
    RISING(x->heads, y->heads);
    RISING(y->kv_heads, x->kv_heads);
    RISING(x->method, y->method);
    RISING(x->taught, y->taught);
    RISING(x->alpha, y->alpha);
    RISING(x->seed, y->seed);
#undef RISING
    return 0;
}

/* --- the plan -------------------------------------------------------------------------------- */

enum status study_plan_add(struct study_plan *plan, struct study_cell cell, const double *shares,
                           int n, struct err *e)
{
    const size_t bytes = (plan->n + 2 * (size_t)n * plan->n_seeds) * sizeof cell;
    struct study_cell *cells = realloc(plan->cells, bytes + 1); /* 0 may give NULL */
    if (!cells)
        return err_no_memory(e, "the study's cells", bytes);
    plan->cells = cells;
    FOR_EACH (const double, share, shares, n) {
        /* At least one step, but for 0. */
        double steps = *share > 0 ? fmax(1, floor(*share / 100 * plan->n_steps + 0.5)) : 0;
        if (plan->n_steps + steps > INT_MAX)
            return err_usage(e, "%g%% more than %d steps are too many", *share, plan->n_steps);
        if (cell.method == STUDY_SCRATCH || (cell.method == STUDY_MHA && *share == 0))
            steps += plan->n_steps;
        cell.alpha = *share;
        cell.steps = steps;
        const bool twice = plan->taught && cell.alpha > 0 && study_converts(cell.method);
        for (int taught = 0; taught <= twice; taught++)
            for (int i = 0; i < plan->n_seeds; i++) {
                cell.taught = taught;
                cell.seed = plan->first_seed + i;
                study_cell_complete(&cell, plan->config);
                plan->cells[plan->n++] = cell;
            }
    }
    if (plan->n > 0)
        qsort(plan->cells, plan->n, sizeof cell, study_order);
    return STATUS_OK;
}

void study_plan_free(struct study_plan *plan)
{
    free(plan->cells);
    free(plan->means);
    *plan = (struct study_plan){.cells = NULL};
}

static struct study_cell *find_cell(const struct study_plan *plan, struct study_cell key)
{
    return bsearch(&key, plan->cells, plan->n, sizeof key, study_order);
}

struct study_cell *study_base(const struct study_plan *plan, const struct study_cell *cell)
{
    return find_cell(plan, (struct study_cell){
                               .seed = cell->seed, .heads = cell->heads, .kv_heads = cell->heads});
}

struct study_cell *study_origin(const struct study_plan *plan, const struct study_cell *cell)
{
    if (cell->method == STUDY_SCRATCH || (cell->method == STUDY_MHA && cell->alpha == 0))
        return NULL;
    if (cell->alpha == 0)
        return study_base(plan, cell);
    struct study_cell key = *cell;
    key.alpha = key.taught = 0;
    return find_cell(plan, key);
}

/* --- means ----------------------------------------------------------------------------------- */

enum status study_means(struct study_plan *plan, struct err *e)
{
    const struct study_cell *end = plan->cells + plan->n;
    TRY_ZEROED(plan->means, plan->n, "the study's means", e);
    for (const struct study_cell *first = plan->cells, *next = first; first < end; first = next) {
        struct study_mean m = {.of = *first, .least = HUGE_VAL, .most = -HUGE_VAL};
        struct study_cell *of = &m.of;
        double sum = 0, squares = 0;
        /* Neighbours of which only the seed is another. */
        for (; next < end && (of->seed = next->seed, study_order(of, next) == 0); next++) {
            if (!next->done)
                continue;
            struct study_cell key = *study_base(plan, next);
            key.alpha = next->alpha;
            const struct study_cell *control = find_cell(plan, key); /* its MHA, trained as long */
            m.n_seeds++;
            of->cache_bytes_per_token = next->cache_bytes_per_token;
            sum += next->bits_per_byte;
            m.least = fmin(m.least, next->bits_per_byte);
            m.most = fmax(m.most, next->bits_per_byte);
            m.over_mha +=
                control && control->done ? next->bits_per_byte - control->bits_per_byte : NO_FIGURE;
        }
        if (m.n_seeds == 0)
            continue;
        of->bits_per_byte = sum / m.n_seeds;
        m.over_mha /= m.n_seeds;
        for (const struct study_cell *cell = first; cell < next; cell++)
            if (cell->done)
                squares += pow(cell->bits_per_byte - of->bits_per_byte, 2);
        m.deviation = m.n_seeds > 1 ? sqrt(squares / (m.n_seeds - 1)) : NO_FIGURE;
        chars_printf(m.line, "%s, %s%s", of->variant,
                     of->method != STUDY_MHA ? of->method_name
                     : of->by_heads          ? "from scratch"
                                             : "trained as long",
                     of->taught ? ", taught" : "");
        plan->means[plan->n_means++] = m;
    }
    return STATUS_OK;
}
