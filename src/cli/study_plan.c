#include "cli/study_plan.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Percents of the steps: no study needs more, and the steps stay within an int. */
#define MOST_ALPHA 10000
#define MOST_SHARD 100000

const char *const study_methods[] = {"mha", "mean",   "first",   "random", "procrustes",
                                     "fit", "latent", "scratch", NULL};
_Static_assert(sizeof study_methods / sizeof *study_methods == STUDY_N_METHODS + 1,
               "a name for each");

/* --- lists ----------------------------------------------------------------------------------- */

/* Whether names, which have it with the digits of "%g", tell it from all others. */
static bool is_short(double x)
{
    char text[32];
    double named;
    snprintf(text, sizeof text, "%g", x);
    return parse_double(text, &named) && named == x;
}

enum status study_list_shares(const char *option, const char *text, struct study_shares *list,
                              struct err *e)
{
    char end;
    do {
        char item[48];
        double x;
        end = list_next(&text, ",", item, sizeof item);
        if (!parse_double(item, &x) || x < 0 || x > MOST_ALPHA || !is_short(x))
            return err_set(e, STATUS_USAGE,
                           "%s: expected percents of the steps from 0 to %d, of no more than six "
                           "digits, found '%.60s'",
                           option, MOST_ALPHA, item);
        for (int i = 0; i < list->n; i++)
            if (list->items[i] == x)
                return err_set(e, STATUS_USAGE, "%s: %s is there twice", option, item);
        if (list->n == LIST_MAX)
            return err_set(e, STATUS_USAGE, "%s: expected at most %d percents", option, LIST_MAX);
        list->items[list->n++] = x;
    } while (end);
    return STATUS_OK;
}

enum status study_read_shard(const char *text, struct study_shard *shard, struct err *e)
{
    const char *rest = text;
    char index[24];
    if (list_next(&rest, "/", index, sizeof index) != '/' ||
        !parse_int(rest, 1, MOST_SHARD, &shard->n) ||
        !parse_int(index, 0, shard->n - 1, &shard->index))
        return err_set(e, STATUS_USAGE,
                       "--shard: expected I/N, I from 0 to N - 1, as 0/2 and 1/2; found '%.60s'",
                       text);
    return STATUS_OK;
}

/* --- cells ----------------------------------------------------------------------------------- */

/* Steps of a run of n_steps for `alpha` percent: at least one, but for 0. */
static double share_of(double alpha, int n_steps)
{
    return alpha > 0 ? fmax(1, floor(alpha / 100 * n_steps + 0.5)) : 0;
}

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
    snprintf(cell->name, sizeof cell->name, "s%" PRIu64 "-%s%s%s%s-a%g", cell->seed, variant,
             cell->method == STUDY_MHA ? "" : "-",
             cell->method == STUDY_MHA ? "" : cell->method_name, cell->taught ? "-taught" : "",
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

static struct study_cell *find(const struct study_plan *plan, const struct study_cell *key)
{
    return bsearch(key, plan->cells, (size_t)plan->n, sizeof *key, study_order);
}

struct study_cell *study_base(const struct study_plan *plan, const struct study_cell *cell)
{
    const struct study_cell key = {
        .seed = cell->seed, .kv_heads = plan->cells[0].kv_heads, .method = STUDY_MHA};
    return find(plan, &key);
}

struct study_cell *study_origin(const struct study_plan *plan, const struct study_cell *cell)
{
    if (cell->method == STUDY_SCRATCH || (cell->method == STUDY_MHA && cell->alpha == 0))
        return NULL;
    if (cell->alpha == 0)
        return study_base(plan, cell);
    const struct study_cell key = {.seed = cell->seed,
                                   .kv_heads = cell->kv_heads,
                                   .latent = cell->latent,
                                   .method = cell->method};
    return find(plan, &key);
}

/* --- the plan -------------------------------------------------------------------------------- */

/* Cells of every seed; counts only where there is no room yet. */
static void add(struct study_plan *plan, const struct study_wanted *w, struct study_cell cell)
{
    for (int i = 0; i < w->n_seeds; i++, plan->n++) {
        if (!plan->cells)
            continue;
        cell.seed = w->first_seed + (uint64_t)i;
        study_cell_complete(&cell, w->config);
        plan->cells[plan->n] = cell;
    }
}

static void add_shares(struct study_plan *plan, const struct study_wanted *w,
                       struct study_cell cell)
{
    for (int a = 0; a < w->alphas.n; a++) {
        cell.alpha = w->alphas.items[a];
        cell.steps = (int)share_of(cell.alpha, w->n_steps);
        cell.taught = false;
        if (cell.method == STUDY_MHA && cell.alpha == 0)
            cell.steps = w->n_steps;
        add(plan, w, cell);
        cell.taught = w->taught && cell.alpha > 0 && study_converts(cell.method);
        if (cell.taught)
            add(plan, w, cell);
    }
}

static void add_all(struct study_plan *plan, const struct study_wanted *w)
{
    plan->n = 0;
    add_shares(plan, w, (struct study_cell){.kv_heads = w->config->n_heads, .method = STUDY_MHA});
    for (int g = 0; g < w->kv_heads.n; g++) {
        struct study_cell cell = {.kv_heads = w->kv_heads.items[g]};
        for (int m = 0; m < w->methods.n; m++) {
            cell.method = (enum study_method)w->methods.items[m];
            add_shares(plan, w, cell);
        }
        cell.method = STUDY_SCRATCH;
        for (int a = 0; a < w->scratch.n; a++) {
            cell.alpha = w->scratch.items[a];
            cell.steps = w->n_steps + (int)share_of(cell.alpha, w->n_steps);
            add(plan, w, cell);
        }
    }
    for (int r = 0; r < w->latent.n; r++)
        add_shares(plan, w,
                   (struct study_cell){
                       .kv_heads = 1, .latent = w->latent.items[r], .method = STUDY_LATENT});
}

static enum status check_steps(const struct study_wanted *w, const struct study_shares *shares,
                               struct err *e)
{
    for (int i = 0; i < shares->n; i++)
        if (w->n_steps + share_of(shares->items[i], w->n_steps) > INT_MAX)
            return err_set(e, STATUS_USAGE, "%g%% more than %d steps are too many",
                           shares->items[i], w->n_steps);
    return STATUS_OK;
}

enum status study_plan_make(const struct study_wanted *w, struct study_plan *plan, struct err *e)
{
    *plan = (struct study_plan){.cells = NULL};
    TRY(check_steps(w, &w->alphas, e));
    TRY(check_steps(w, &w->scratch, e));
    add_all(plan, w);
    plan->cells = calloc((size_t)plan->n, sizeof *plan->cells);
    if (!plan->cells)
        return err_no_memory(e, "the study's cells", (size_t)plan->n * sizeof *plan->cells);
    add_all(plan, w);
    qsort(plan->cells, (size_t)plan->n, sizeof *plan->cells, study_order);
    return STATUS_OK;
}

void study_plan_free(struct study_plan *plan)
{
    free(plan->cells);
    *plan = (struct study_plan){.cells = NULL};
}
