#include "engine/draft_pace.h"

#include <assert.h>
#include <math.h>

/* What is thought of a draft's tokens before any was seen, and how much a sight weighs. */
#define FIRST_SHARE 0.7
#define FIRST_TRIED 4
#define RATE_DECAY  0.95
/* A row more, over a step, before two numbers of rows were measured. */
#define FIRST_ROW_SHARE 0.125
/* Averages follow what is faster at once, what is slower only in time: noise only ever adds. */
#define BLEND_DOWN 0.5
#define BLEND_UP   0.125
/* A time counts as no more than so many times the average. */
#define MOST_SPIKE 2
/* To draft at all, it must win so much. */
#define LEAST_GAIN 1.02
/* What drafting may lose: of all time, and some steps at the start; what it won counts as far. */
#define LOST_SHARE 0.01
#define LOST_STEPS 2
#define WON_STEPS  10
/* Tokens to try again with. */
#define TRY_LEVELS 2
/* Rounds that draft before one does not, to see what that takes. */
#define LOOK_AFTER 48

void pace_take(struct draft_pace *p, struct arena *a, int n_rows)
{
    p->n_rows = n_rows;
    p->step_ns = arena_take(a, (uint64_t)n_rows + 1, sizeof *p->step_ns);
}

void pace_start(struct draft_pace *p, double cost)
{
    assert(p->most >= 1 && p->most <= DRAFT_MOST);
    for (int k = 0; k < DRAFT_KINDS; k++)
        for (int i = 0; i < DRAFT_MOST; i++)
            p->rates[k][i] = (struct draft_rate){FIRST_SHARE * FIRST_TRIED, FIRST_TRIED};
    for (int r = 0; r <= p->n_rows; r++)
        p->step_ns[r] = 0;
    p->draft_ns = -cost; /* a share until the first step was measured */
    p->feed_ns = 0;
    p->elapsed_ns = 0;
    p->lost_ns = 0;
    p->n_drafting = 0;
}

double pace_share(const struct draft_pace *p, int kind, int depth)
{
    double share = 1;
    for (int i = 0; i <= depth; i++)
        share *= p->rates[kind][i].right / p->rates[kind][i].tried;
    return share;
}

/* --- times ----------------------------------------------------------------------------------- */

double pace_step_ns(const struct draft_pace *p, int rows)
{
    int below = rows, above = rows, first = 1;
    assert(rows >= 1 && rows <= p->n_rows);
    while (below > 0 && p->step_ns[below] == 0)
        below--;
    while (above <= p->n_rows && p->step_ns[above] == 0)
        above++;
    if (below == 0)
        return above <= p->n_rows ? p->step_ns[above] : 0;
    const double *t = p->step_ns;
    if (above <= p->n_rows)
        return above == below ? t[rows]
                              : t[below] + (t[above] - t[below]) * (rows - below) / (above - below);
    while (t[first] == 0)
        first++;
    const double slope = first < below ? fmax(0, (t[below] - t[first]) / (below - first))
                                       : FIRST_ROW_SHARE * t[below] / below;
    return t[below] + slope * (rows - below);
}

static void blend(double *average, double ns)
{
    if (*average <= 0) {
        *average = ns;
        return;
    }
    ns = fmin(ns, MOST_SPIKE * *average);
    *average += (ns - *average) * (ns < *average ? BLEND_DOWN : BLEND_UP);
}

/* --- the choice ------------------------------------------------------------------------------ */

int pace_best(const struct draft_pace *p, int base, const struct draft_level *levels, int n,
              double level_ns)
{
    double tokens = base, best_rate = LEAST_GAIN * base / pace_step_ns(p, base);
    int rows = base, best = 0;
    for (int i = 0; i < n && rows + levels[i].rows <= p->n_rows; i++) {
        rows += levels[i].rows;
        tokens += levels[i].share * levels[i].rows;
        const double rate = tokens / (pace_step_ns(p, rows) + (i + 1) * level_ns);
        if (rate > best_rate) {
            best_rate = rate;
            best = i + 1;
        }
    }
    return best;
}

static double time_to_try(const struct draft_pace *p, int base, const struct draft_level *levels,
                          int n, double level_ns, int lag)
{
    int rows = base;
    for (int i = 0; i < n; i++)
        rows += levels[i].rows;
    return pace_step_ns(p, rows < p->n_rows ? rows : p->n_rows) - pace_step_ns(p, base) +
           n * level_ns + lag * p->feed_ns;
}

int pace_choose(struct draft_pace *p, int base, const struct draft_level *levels, int n,
                double level_ns, int lag, bool *trying)
{
    *trying = false;
    if (p->fixed || n == 0)
        return n;
    const double step = pace_step_ns(p, base), allowed = LOST_SHARE * p->elapsed_ns;
    if (step == 0 || p->n_drafting >= LOOK_AFTER)
        return 0;
    if (level_ns < 0)
        level_ns = -level_ns * step;
    const int best = pace_best(p, base, levels, n, level_ns);
    if (best > 0)
        return p->lost_ns <= allowed + LOST_STEPS * step ? best : 0;
    const int few = n < TRY_LEVELS ? n : TRY_LEVELS;
    const double cost = time_to_try(p, base, levels, few, level_ns, lag);
    *trying = fmax(p->lost_ns, 0) + cost <= allowed;
    return *trying ? few : 0;
}

/* --- what was measured ----------------------------------------------------------------------- */

void pace_saw(struct draft_pace *p, int kind, int depth, bool right)
{
    struct draft_rate *r = &p->rates[kind][depth];
    r->right = r->right * RATE_DECAY + right;
    r->tried = r->tried * RATE_DECAY + 1;
}

void pace_fed(struct draft_pace *p, int rows, double ns, bool trying)
{
    blend(&p->feed_ns, ns / rows);
    if (trying)
        p->lost_ns += ns;
}

void pace_round(struct draft_pace *p, const struct draft_round *r)
{
    if (p->fixed)
        return;
    blend(&p->step_ns[r->rows], r->ns);
    if (r->levels > 0)
        blend(&p->draft_ns, r->draft_ns / r->levels);
    double took = fmin(r->ns, MOST_SPIKE * p->step_ns[r->rows]);
    p->n_drafting = r->rows > r->base ? p->n_drafting + 1 : 0;
    if (r->levels > 0)
        took += fmin(r->draft_ns, MOST_SPIKE * p->draft_ns * r->levels);
    p->elapsed_ns += took;
    if (r->rows == r->base && r->levels == 0)
        return;
    const double step = pace_step_ns(p, r->base);
    p->lost_ns = fmax(p->lost_ns + took - r->tokens * step / r->base, -WON_STEPS * step);
}
