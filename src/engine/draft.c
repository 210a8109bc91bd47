#include "engine/schedule.h"

#include <math.h>

#include "base/figures.h"

/* Copies looked at. */
#define MOST_COPIES 32

/* Rows that a slot may be behind and still draft at once: what it was right about, and the token
 * that followed. */
#define STEP_ROWS 2

/* --- copies ---------------------------------------------------------------------------------- */

int copy_find(const int32_t *text, int n, int *length)
{
    int found = 0, n_copies = 0;
    *length = COPY_LEAST - 1;
    for (int at = n - 1; at >= COPY_LEAST && n_copies < MOST_COPIES && *length < COPY_MOST; at--) {
        const int most = MIN(at, COPY_MOST);
        int same = 0; /* tokens before `at` that are those at the end */
        while (same < most && text[at - 1 - same] == text[n - 1 - same])
            same++;
        n_copies += same >= COPY_LEAST;
        if (same > *length) {
            *length = same;
            found = at;
        }
    }
    return found;
}

/* --- pace ------------------------------------------------------------------------------------ */

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
    ARENA_TAKE(p->steps, a, n_rows + 1);
}

double pace_share(const struct draft_pace *p, int kind, int depth)
{
    double share = 1, rate = FIRST_SHARE;
    for (int i = 0; i <= depth; i++) {
        const struct draft_rate *r = &p->rates[kind][i];
        const double prior = PRIOR_TRIED * (1 - r->tried * (1 - RATE_DECAY)); /* decays, too */
        rate = (r->right + prior * rate) / (r->tried + prior);
        share *= rate;
    }
    return share;
}

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

int pace_choose(const struct draft_pace *p, int base, const struct draft_level *levels, int n,
                double level_ns, int lag, bool *trying)
{
    *trying = false;
    if (p->fixed || n == 0)
        return n;
    const double step = pace_step_ns(p, base), allowed = LOST_SHARE * p->elapsed_ns;
    if (step == 0 || p->n_drafting >= LOOK_AFTER)
        return 0;
    double tokens = base, best_rate = LEAST_GAIN * base / step, few_ns = 0;
    int rows = base, best = 0;
    for (int i = 0; i < n && rows + levels[i].rows <= p->n_rows; i++) {
        rows += levels[i].rows;
        tokens += levels[i].share * levels[i].rows;
        const double ns = pace_step_ns(p, rows) + (i + 1) * level_ns;
        if (tokens / ns > best_rate) {
            best_rate = tokens / ns;
            best = i + 1;
        }
        if (i < TRY_LEVELS)
            few_ns = ns;
    }
    if (best > 0)
        return p->lost_ns <= allowed + LOST_STEPS * step ? best : 0;
    const double cost = few_ns - step + lag * p->feed.ns;
    *trying = fmax(p->lost_ns, 0) + cost <= allowed;
    return !*trying ? 0 : MIN(n, TRY_LEVELS);
}

void pace_saw(struct draft_pace *p, int kind, int depth, bool right)
{
    struct draft_rate *r = &p->rates[kind][depth];
    r->right = r->right * RATE_DECAY + right;
    r->tried = r->tried * RATE_DECAY + 1;
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

/* --- memory ---------------------------------------------------------------------------------- */

static void take_drafter(struct drafter *d, struct arena *a)
{
    const uint64_t n = d->n_slots;
    ARENA_TAKE(d->slots, a, n);
    /* As many rows as the model's step can have. */
    pace_take(&d->pace, a, d->n_slots * (d->pace.most + 1));
    ARENA_TAKE(d->rows, a, d->session ? STEP_ROWS * n : 0);
    ARENA_TAKE(d->logits, a, d->session ? n * d->n_vocab : 0);
}

enum status drafter_create(struct drafter *d, struct err *e)
{
    assert(d->pace.most >= 1 && d->pace.most <= DRAFT_MOST);
    take_drafter(d, &d->arena);
    TRY(arena_allocate(&d->arena, "the drafts", e));
    take_drafter(d, &d->arena);
    return STATUS_OK;
}

void drafter_free(struct drafter *d)
{
    arena_free(&d->arena);
}

/* --- texts ----------------------------------------------------------------------------------- */

void drafter_begin(struct drafter *d, int slot, int32_t *text, int n, int n_same)
{
    struct draft_slot *p = &d->slots[slot];
    if (d->session)
        session_rewind(d->session, slot, n_same);
    p->text = text;
    p->len = n;
    p->n_drafted = 0;
}

bool drafter_accept(struct drafter *d, int slot, int32_t token)
{
    struct draft_slot *p = &d->slots[slot];
    const bool drafted = p->n_drafted > 0, right = drafted && p->text[p->len] == token;
    if (drafted)
        pace_saw(&d->pace, p->kind, p->n_right, right);
    if (right) {
        p->n_drafted--;
        p->n_right++;
        d->n_right++;
    } else {
        p->n_drafted = 0;
        if (d->session)
            session_rewind(d->session, slot, p->len);
    }
    p->len++;
    return right;
}

/* --- lookup ---------------------------------------------------------------------------------- */

static void look_up_text(struct drafter *d)
{
    memset(d->levels, 0, sizeof d->levels);
    for (int i = 0; i < d->n_slots; i++) {
        struct draft_slot *p = &d->slots[i];
        int length;
        const int from = p->wanted > 0 ? copy_find(p->text, p->len, &length) : 0;
        if (from == 0)
            continue;
        /* Longer copies are right more often. */
        p->kind = length < 3 ? 0 : length < 5 ? 1 : length < 9 ? 2 : length < 17 ? 3 : 4;
        /* Copies go on into what they drafted themselves. */
        while (p->n_drafted < p->wanted && p->text[from + p->n_drafted] != d->end) {
            struct draft_level *level = &d->levels[p->n_drafted];
            const double share = pace_share(&d->pace, p->kind, p->n_drafted);
            level->share += (share - level->share) / ++level->rows; /* of the slots, on average */
            p->text[p->len + p->n_drafted] = p->text[from + p->n_drafted];
            p->n_drafted++;
        }
    }
    int n = 0;
    while (n < d->pace.most && d->levels[n].rows > 0)
        n++;
    const int kept = pace_choose(&d->pace, d->round.base, d->levels, n, 0, 0, &d->trying);
    for (int i = 0; i < d->n_slots; i++)
        if (d->slots[i].n_drafted > kept)
            d->slots[i].n_drafted = kept;
}

/* --- a model --------------------------------------------------------------------------------- */

/* The next token of each slot that has logits, by the threads that share them; a draft whose
 * logits are not finite, or that ends the text, ends. */
static void accept_share(void *arg, int thread)
{
    struct drafter *d = arg;
    for (int i = thread; i < d->n_slots; i += d->n_sampling) {
        struct draft_slot *p = &d->slots[i];
        int token;
        if (!p->logits)
            continue;
        if (sampler_pick(d->sampler, d->n_slots + i, thread, p->logits, &token, NULL) !=
                STATUS_OK ||
            token == d->end) {
            p->wanted = p->n_drafted;
            continue;
        }
        sampler_accept(d->sampler, d->n_slots + i, token);
        p->text[p->len + p->n_drafted++] = token;
    }
}

/* Feeds a slot's text up to a position to its sequence, or as far as there is room; *done: all. */
static enum status feed(struct drafter *d, int slot, int end, bool *done, struct err *e)
{
    const int seen = session_len(d->session, slot), left = end - seen;
    const int n = MIN(left, d->room);
    *done = left <= n;
    if (n <= 0)
        return STATUS_OK;
    const uint64_t start = clock_ns();
    TRY(session_feed(d->session, slot, d->slots[slot].text + seen, n, NULL, e));
    const uint64_t ns = clock_ns() - start;
    blend(&d->pace.feed, (double)ns / n);
    if (d->trying)
        d->pace.lost_ns += ns;
    else
        d->feed_ns += ns;
    d->room -= n;
    return STATUS_OK;
}

static enum status draft_by_model(struct drafter *d, struct err *e)
{
    int n = 0, lag = 0, most = 0; /* who draft, rows that they are behind, tokens that they want */
    for (int i = 0; i < d->n_slots; i++) {
        struct draft_slot *p = &d->slots[i];
        const int room = session_cap(d->session) - p->len + 1; /* the last is not fed */
        const int behind = p->len - session_len(d->session, i);
        p->kind = 0;
        p->wanted = MIN(room, p->wanted);
        if (p->wanted <= 0)
            continue;
        n++;
        lag += behind > STEP_ROWS ? behind : 0;
        most = MAX(p->wanted, most);
    }
    for (int i = 0; i < most; i++)
        d->levels[i] = (struct draft_level){pace_share(&d->pace, 0, i), n};
    const int levels = pace_choose(&d->pace, d->round.base, d->levels, most,
                                   pace_draft_ns(&d->pace, d->round.base), lag, &d->trying);
    if (levels == 0)
        return STATUS_OK;
    /* Slots are fed what they are behind, but for the last rows of each, and those draft that are
     * not behind any more. What all have in common is sequence 0's, whose slot has the first text
     * that a schedule begins. */
    bool done;
    d->room = session_block(d->session);
    TRY(feed(d, 0, d->n_shared, &done, e));
    for (int i = 0; i < d->n_slots; i++) {
        struct draft_slot *p = &d->slots[i];
        bool ready = done && p->wanted > 0;
        if (ready && p->len - 1 - session_len(d->session, i) >= STEP_ROWS)
            TRY(feed(d, i, p->len - 1, &ready, e));
        p->wanted = !ready ? 0 : MIN(p->wanted, levels);
        if (ready)
            sampler_copy(d->sampler, i, d->n_slots + i);
    }
    /* Tokens are drafted one by one, for all slots at once: in rows of what each has and the draft
     * has not seen, the last of which wants logits. */
    for (;; d->round.levels++) {
        int n_rows = 0, n_drafting = 0;
        for (int i = 0; i < d->n_slots; i++) {
            struct draft_slot *p = &d->slots[i];
            const int end = p->len + p->n_drafted;
            const bool drafts = p->n_drafted < p->wanted;
            p->logits = drafts ? d->logits + (size_t)n_drafting * d->n_vocab : NULL;
            n_drafting += drafts;
            for (int t = session_len(d->session, i); drafts && t < end; t++)
                d->rows[n_rows++] = (struct batch_row){p->text[t], i, t, t == end - 1};
        }
        if (n_rows == 0)
            return STATUS_OK;
        TRY(session_step(d->session, d->rows, n_rows, d->logits, e));
        struct pool *pool = n_drafting > 1 ? d->pool : NULL;
        d->n_sampling = pool_n_threads(pool);
        pool_run(pool, accept_share, d);
    }
}

/* --- rounds ---------------------------------------------------------------------------------- */

enum status drafter_propose(struct drafter *d, struct err *e)
{
    const uint64_t start = clock_ns(), fed = d->feed_ns;
    d->round = (struct draft_round){0};
    for (int i = 0; i < d->n_slots; i++) {
        struct draft_slot *p = &d->slots[i];
        d->round.base += p->wanted >= 0;
        p->wanted = MIN(p->wanted, d->pace.most);
        p->n_drafted = p->n_right = 0;
    }
    if (d->round.base == 0)
        return STATUS_OK;
    if (d->session)
        TRY(draft_by_model(d, e));
    else
        look_up_text(d);
    for (int i = 0; i < d->n_slots; i++)
        d->n_drafted += d->slots[i].n_drafted;
    const uint64_t ns = clock_ns() - start - (d->feed_ns - fed);
    d->round.draft_ns = ns;
    d->draft_ns += ns;
    return STATUS_OK;
}

void drafter_measured(struct drafter *d, int rows, int tokens, uint64_t ns)
{
    d->round.rows = rows;
    d->round.tokens = tokens;
    d->round.ns = ns - d->round.draft_ns;
    pace_round(&d->pace, &d->round);
}
