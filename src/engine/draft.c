#include "engine/draft.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"

/* Rows that a place may be behind and still draft at once: what it was right about, and the token
 * that followed. */
#define STEP_ROWS 2

/* --- memory ---------------------------------------------------------------------------------- */

/* Rows of a step of the model. */
static uint64_t verified_rows(const struct drafter *d)
{
    return (uint64_t)d->n_places * ((uint64_t)d->pace.most + 1);
}

static void take_drafter(struct drafter *d, struct arena *a)
{
    const uint64_t n = (uint64_t)d->n_places;
    struct draft_place counted;
    d->places = arena_take(a, n, sizeof *d->places);
    d->active = arena_take(a, n, sizeof(struct draft_place *));
    d->levels = arena_take(a, DRAFT_KINDS * DRAFT_MOST, sizeof *d->levels);
    for (int i = 0; i < d->n_places; i++) {
        struct draft_place *p = d->places ? &d->places[i] : &counted;
        p->text = arena_take(a, (uint64_t)d->cap + 1, sizeof *p->text);
        if (!d->session)
            ngrams_take(&p->copies, a, d->cap + 1);
    }
    pace_take(&d->pace, a, (int)verified_rows(d));
    if (!d->session)
        return;
    d->rows = arena_take(a, STEP_ROWS * n, sizeof *d->rows);
    d->logits = arena_take(a, n * (uint64_t)d->n_vocab, sizeof *d->logits);
}

size_t drafter_bytes(const struct drafter *d)
{
    struct drafter counted = *d;
    counted.arena = (struct arena){0};
    counted.places = NULL;
    take_drafter(&counted, &counted.arena);
    return counted.arena.overflow ? SIZE_MAX : counted.arena.used;
}

enum status drafter_create(struct drafter *d, struct err *e)
{
    assert(d->pace.most >= 1 && d->pace.most <= DRAFT_MOST);
    take_drafter(d, &d->arena);
    TRY(arena_allocate(&d->arena, "the drafts", e));
    take_drafter(d, &d->arena);
    pace_start(&d->pace, d->cost);
    return STATUS_OK;
}

void drafter_free(struct drafter *d)
{
    arena_free(&d->arena);
}

/* --- texts ----------------------------------------------------------------------------------- */

static int place_number(const struct drafter *d, const struct draft_place *p)
{
    return (int)(p - d->places);
}

/* Tokens of the place that the draft has not seen. */
static int lag_of(const struct drafter *d, const struct draft_place *p)
{
    return d->session ? p->len - session_len(d->session, place_number(d, p)) : 0;
}

void drafter_begin(struct drafter *d, int place, const int32_t *tokens, int n)
{
    struct draft_place *p = &d->places[place];
    int same = 0;
    assert(n <= d->cap);
    if (d->session) { /* what it has seen of another text may be the beginning of this one */
        const int seen = session_len(d->session, place);
        while (same < seen && same < n && p->text[same] == tokens[same])
            same++;
        session_rewind(d->session, place, same);
    } else {
        ngrams_reset(&p->copies);
    }
    memcpy(p->text, tokens, (size_t)n * sizeof *tokens);
    p->len = n;
    p->n_drafted = 0;
    for (int i = 0; i < n && !d->session; i++)
        ngrams_add(&p->copies, p->text, i);
}

bool drafter_accept(struct drafter *d, int place, int32_t token)
{
    struct draft_place *p = &d->places[place];
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
            session_rewind(d->session, place, p->len);
    }
    p->text[p->len++] = token;
    if (!d->session)
        ngrams_add(&p->copies, p->text, p->len - 1);
    return right;
}

static void put_drafted(struct drafter *d, struct draft_place *p, int32_t token)
{
    p->text[p->len + p->n_drafted++] = token;
    d->n_drafted++;
}

/* --- lookup ---------------------------------------------------------------------------------- */

/* Longer copies are right more often. */
static int kind_of_copy(int length)
{
    return length < 3 ? 0 : length < 5 ? 1 : length < 9 ? 2 : length < 17 ? 3 : 4;
}

/* Levels stay in order of their shares. */
static void add_level(struct drafter *d, double share)
{
    int i = d->n_levels;
    for (int l = 0; l < d->n_levels; l++) {
        if (d->levels[l].share == share) {
            d->levels[l].rows++;
            return;
        }
    }
    for (; i > 0 && d->levels[i - 1].share < share; i--)
        d->levels[i] = d->levels[i - 1];
    d->levels[i] = (struct draft_level){share, 1};
    d->n_levels++;
}

/* Copies go on into what they drafted themselves. */
static void copy_tokens(struct drafter *d, struct draft_place *p, int from, int n)
{
    for (int i = 0; i < n && p->text[from + i] != d->end; i++)
        put_drafted(d, p, p->text[from + i]);
}

static void look_up(struct drafter *d, const struct draft_want *wants, int n, int base)
{
    bool trying;
    d->n_levels = 0;
    for (int i = 0; i < n; i++) {
        struct draft_place *p = &d->places[wants[i].place];
        int length;
        const int from = ngrams_find(&p->copies, p->text, p->len, &length);
        p->wanted = from > 0 ? wants[i].most : 0;
        if (p->wanted == 0)
            continue;
        p->kind = kind_of_copy(length);
        copy_tokens(d, p, from, p->wanted);
        for (int t = 0; t < p->n_drafted; t++)
            add_level(d, pace_share(&d->pace, p->kind, t));
    }
    const int kept = pace_choose(&d->pace, base, d->levels, d->n_levels, 0, 0, &trying);
    const double least = kept > 0 ? d->levels[kept - 1].share : 2;
    for (int i = 0; i < n; i++) {
        struct draft_place *p = &d->places[wants[i].place];
        while (p->n_drafted > 0 && pace_share(&d->pace, p->kind, p->n_drafted - 1) < least) {
            p->n_drafted--;
            d->n_drafted--;
        }
    }
}

/* --- a model --------------------------------------------------------------------------------- */

/* Picks the next token of a place's draft; a draft that has no logits, or ends the text, ends. */
static void pick_drafted(struct drafter *d, struct draft_place *p, int thread)
{
    const int slot = d->n_places + place_number(d, p);
    int token;
    if (sampler_pick(d->sampler, slot, thread, p->logits, &token, NULL) != STATUS_OK ||
        token == d->end) {
        p->logits = NULL;
        return;
    }
    sampler_accept(d->sampler, slot, token);
    p->text[p->len + p->n_drafted++] = token;
}

static void pick_share(void *arg, int thread)
{
    struct drafter *d = arg;
    int begin, end;
    pool_share(d->n_active, thread, pool_n_threads(d->pool), &begin, &end);
    for (int i = begin; i < end; i++)
        pick_drafted(d, d->active[i], thread);
}

static void pick_all(struct drafter *d)
{
    if (d->n_active > 1)
        pool_run(d->pool, pick_share, d);
    else
        pick_drafted(d, d->active[0], 0);
}

/* Drops those that draft no more. */
static void keep_active(struct drafter *d)
{
    int kept = 0;
    for (int i = 0; i < d->n_active; i++) {
        struct draft_place *p = d->active[i];
        if (p->logits && p->n_drafted < p->wanted)
            d->active[kept++] = p;
    }
    d->n_active = kept;
}

/* Rows of what each has and the draft has not seen, the last of which wants logits. */
static enum status step_active(struct drafter *d, struct err *e)
{
    int n = 0;
    for (int i = 0; i < d->n_active; i++) {
        struct draft_place *p = d->active[i];
        const int place = place_number(d, p), end = p->len + p->n_drafted;
        for (int t = session_len(d->session, place); t < end; t++)
            d->rows[n++] = (struct batch_row){.token = p->text[t],
                                              .sequence = place,
                                              .position = t,
                                              .wants_logits = t == end - 1};
        p->logits = d->logits + (size_t)i * (size_t)d->n_vocab;
    }
    return session_step(d->session, d->rows, n, d->logits, e);
}

/* Tokens are drafted one by one, for all places at once. */
static enum status draft_levels(struct drafter *d, struct err *e)
{
    const int n = d->n_active;
    for (int i = 0; i < n; i++) {
        const int place = place_number(d, d->active[i]);
        sampler_copy(d->sampler, place, d->n_places + place);
    }
    for (d->n_levels = 0; d->n_active > 0; d->n_levels++) {
        TRY(step_active(d, e));
        pick_all(d);
        keep_active(d);
    }
    return STATUS_OK;
}

/* Feeds a place's next n tokens to its sequence. */
static enum status feed(struct drafter *d, int place, int n, bool trying, struct err *e)
{
    const int32_t *tokens = d->places[place].text + session_len(d->session, place);
    const uint64_t start = clock_ns();
    TRY(session_feed(d->session, place, tokens, n, NULL, e));
    const uint64_t ns = clock_ns() - start;
    pace_fed(&d->pace, n, (double)ns, trying);
    d->feed_ns += trying ? 0 : ns;
    return STATUS_OK;
}

/* What all have in common is sequence 0's, whose place has the first text that a schedule begins.
 * At most *left rows; *done: it is all there. */
static enum status feed_shared(struct drafter *d, bool trying, int *left, bool *done, struct err *e)
{
    const int missing = d->n_shared - session_len(d->session, 0);
    const int n = missing < *left ? missing : *left;
    *done = n == missing || missing <= 0;
    if (missing <= 0)
        return STATUS_OK;
    *left -= n;
    return n > 0 ? feed(d, 0, n, trying, e) : STATUS_OK;
}

/* Feeds at most *left rows of what a place is behind, but for the last ones; *done: it can draft.
 */
static enum status catch_up(struct drafter *d, const struct draft_place *p, bool trying, int *left,
                            bool *done, struct err *e)
{
    const int missing = lag_of(d, p) - 1, n = missing < *left ? missing : *left;
    *done = missing < STEP_ROWS || n == missing;
    if (missing < STEP_ROWS || n == 0)
        return STATUS_OK;
    *left -= n;
    return feed(d, place_number(d, p), n, trying, e);
}

/* Keeps those that are not behind any more. */
static enum status catch_up_all(struct drafter *d, bool trying, struct err *e)
{
    const int n = d->n_active;
    int left = session_block(d->session);
    bool done;
    d->n_active = 0;
    TRY(feed_shared(d, trying, &left, &done, e));
    for (int i = 0; i < n && done; i++) {
        bool ready;
        TRY(catch_up(d, d->active[i], trying, &left, &ready, e));
        if (ready)
            d->active[d->n_active++] = d->active[i];
    }
    return STATUS_OK;
}

/* Those that want tokens and have room, all at the start of a round; gives the rows that they are
 * behind. */
static int find_active(struct drafter *d, const struct draft_want *wants, int n)
{
    int lag = 0;
    d->n_active = 0;
    for (int i = 0; i < n; i++) {
        struct draft_place *p = &d->places[wants[i].place];
        const int room = session_cap(d->session) - p->len + 1; /* the last is not fed */
        p->wanted = room < wants[i].most ? room : wants[i].most;
        if (p->wanted <= 0)
            continue;
        d->active[d->n_active++] = p;
        const int behind = lag_of(d, p);
        lag += behind > STEP_ROWS ? behind : 0;
    }
    return lag;
}

/* How many tokens to draft for each of the active places. */
static int choose_levels(struct drafter *d, int base, int lag, bool *trying)
{
    int most = 0;
    for (int i = 0; i < d->n_active; i++)
        most = d->active[i]->wanted > most ? d->active[i]->wanted : most;
    for (int i = 0; i < most; i++)
        d->levels[i] = (struct draft_level){pace_share(&d->pace, 0, i), d->n_active};
    return pace_choose(&d->pace, base, d->levels, most, pace_draft_ns(&d->pace, base), lag, trying);
}

static enum status draft_by_model(struct drafter *d, const struct draft_want *wants, int n,
                                  int base, struct err *e)
{
    bool trying;
    const int lag = find_active(d, wants, n);
    const int levels = d->n_active > 0 ? choose_levels(d, base, lag, &trying) : 0;
    if (levels == 0)
        return STATUS_OK;
    TRY(catch_up_all(d, trying, e));
    for (int i = 0; i < d->n_active; i++) {
        struct draft_place *p = d->active[i];
        p->wanted = p->wanted < levels ? p->wanted : levels;
        p->kind = 0;
    }
    TRY(draft_levels(d, e));
    for (int i = 0; i < n; i++)
        d->n_drafted += (uint64_t)d->places[wants[i].place].n_drafted;
    return STATUS_OK;
}

/* --- rounds ---------------------------------------------------------------------------------- */

enum status drafter_propose(struct drafter *d, const struct draft_want *wants, int n, int base,
                            struct err *e)
{
    const uint64_t start = clock_ns(), fed = d->feed_ns;
    d->n_levels = 0;
    for (int i = 0; i < n; i++) {
        d->places[wants[i].place].n_drafted = 0;
        d->places[wants[i].place].n_right = 0;
    }
    if (d->session)
        TRY(draft_by_model(d, wants, n, base, e));
    else
        look_up(d, wants, n, base);
    d->round_ns = clock_ns() - start - (d->feed_ns - fed);
    d->draft_ns += d->round_ns;
    return STATUS_OK;
}

void drafter_measured(struct drafter *d, int base, int rows, int tokens, uint64_t ns)
{
    const struct draft_round round = {.base = base,
                                      .rows = rows,
                                      .levels = d->session ? d->n_levels : 0,
                                      .tokens = tokens,
                                      .ns = (double)(ns - d->round_ns),
                                      .draft_ns = (double)d->round_ns};
    pace_round(&d->pace, &round);
}
