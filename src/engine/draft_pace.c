#include "engine/draft.h"

#include <assert.h>
#include <math.h>

/* What is thought of a draft's first token before any was seen, and in how many sights' weight. */
#define FIRST_SHARE 0.7
#define PRIOR_TRIED 4
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
    p->steps = arena_take(a, (uint64_t)n_rows + 1, sizeof *p->steps);
}

void pace_start(struct draft_pace *p, double cost)
{
    assert(p->most >= 1 && p->most <= DRAFT_MOST);
    for (int k = 0; k < DRAFT_KINDS; k++)
        for (int i = 0; i < DRAFT_MOST; i++)
            p->rates[k][i] = (struct draft_rate){.prior = PRIOR_TRIED};
    for (int r = 0; r <= p->n_rows; r++)
        p->steps[r] = (struct draft_time){.n = 0};
    p->draft = p->feed = (struct draft_time){.n = 0};
    p->cost = cost;
    p->elapsed_ns = 0;
    p->lost_ns = 0;
    p->n_drafting = 0;
}

double pace_share(const struct draft_pace *p, int kind, int depth)
{
    double share = 1, rate = FIRST_SHARE;
    for (int i = 0; i <= depth; i++) {
        const struct draft_rate *r = &p->rates[kind][i];
        rate = (r->right + r->prior * rate) / (r->tried + r->prior);
        share *= rate;
    }
    return share;
}

/* --- times ----------------------------------------------------------------------------------- */

/* The nearest known number of rows from `rows` on by +1 or -1; 0: there is none. */
static int known_from(const struct draft_pace *p, int rows, int by)
{
    for (; rows > 0 && rows <= p->n_rows; rows += by)
        if (p->steps[rows].n == TIME_KNOWN)
            return rows;
    return 0;
}

double pace_step_ns(const struct draft_pace *p, int rows)
{
    assert(rows >= 1 && rows <= p->n_rows);
    const int below = known_from(p, rows, -1), above = known_from(p, rows, 1);
    const struct draft_time *t = p->steps;
    if (below == 0)
        return t[above].ns;
    if (above == below)
        return t[rows].ns;
    if (above > 0)
        return t[below].ns + (t[above].ns - t[below].ns) * (rows - below) / (above - below);
    const int first = known_from(p, 1, 1);
    const double slope = first < below ? fmax(0, (t[below].ns - t[first].ns) / (below - first))
                                       : FIRST_ROW_SHARE * t[below].ns / below;
    return t[below].ns + slope * (rows - below);
}

double pace_draft_ns(const struct draft_pace *p, int base)
{
    return p->draft.n == TIME_KNOWN ? p->draft.ns : p->cost * pace_step_ns(p, base);
}

static void blend(struct draft_time *t, double ns)
{
    if (t->n < TIME_KNOWN) {
        t->ns = t->n == 0 ? ns : fmin(t->ns, ns);
        t->n++;
        return;
    }
    ns = fmin(ns, MOST_SPIKE * t->ns);
    t->ns += (ns - t->ns) * (ns < t->ns ? BLEND_DOWN : BLEND_UP);
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

int pace_choose(struct draft_pace *p, int base, const struct draft_level *levels, int n,
                double level_ns, int lag, bool *trying)
{
    *trying = false;
    if (p->fixed || n == 0)
        return n;
    const double step = pace_step_ns(p, base), allowed = LOST_SHARE * p->elapsed_ns;
    if (step == 0 || p->n_drafting >= LOOK_AFTER)
        return 0;
    const int best = pace_best(p, base, levels, n, level_ns);
    if (best > 0)
        return p->lost_ns <= allowed + LOST_STEPS * step ? best : 0;
    const int few = n < TRY_LEVELS ? n : TRY_LEVELS;
    int rows = base;
    for (int i = 0; i < few; i++)
        rows += levels[i].rows;
    const double verify = pace_step_ns(p, rows < p->n_rows ? rows : p->n_rows) - step;
    const double cost = verify + few * level_ns + lag * p->feed.ns;
    *trying = fmax(p->lost_ns, 0) + cost <= allowed;
    return *trying ? few : 0;
}

/* --- what was measured ----------------------------------------------------------------------- */

void pace_saw(struct draft_pace *p, int kind, int depth, bool right)
{
    struct draft_rate *r = &p->rates[kind][depth];
    r->right = r->right * RATE_DECAY + right;
    r->tried = r->tried * RATE_DECAY + 1;
    r->prior *= RATE_DECAY;
}

void pace_fed(struct draft_pace *p, int rows, double ns, bool trying)
{
    blend(&p->feed, ns / rows);
    if (trying)
        p->lost_ns += ns;
}

void pace_round(struct draft_pace *p, const struct draft_round *r)
{
    if (p->fixed)
        return;
    blend(&p->steps[r->rows], r->ns);
    if (r->levels > 0)
        blend(&p->draft, r->draft_ns / r->levels);
    /* A round counts as what is expected, if it is the first of its kind, and no spikes do. */
    const double step = pace_step_ns(p, r->base);
    const double expected = pace_step_ns(p, r->rows) + r->levels * pace_draft_ns(p, r->base);
    const bool first =
        p->steps[r->rows].n < TIME_KNOWN || (r->levels > 0 && p->draft.n < TIME_KNOWN);
    const double took =
        first && expected > 0 ? expected : fmin(r->ns + r->draft_ns, MOST_SPIKE * expected);
    p->n_drafting = r->rows > r->base ? p->n_drafting + 1 : 0;
    p->elapsed_ns += took;
    if (r->rows > r->base || r->levels > 0)
        p->lost_ns = fmax(p->lost_ns + took - r->tokens * step / r->base, -WON_STEPS * step);
}
