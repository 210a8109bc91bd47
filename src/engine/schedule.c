#include "engine/schedule.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/logits.h"

/* How long to wait for a text when there is nothing else to do, before the client may stop. */
#define WAIT_MS 100

/* --- memory ---------------------------------------------------------------------------------- */

static void take_schedule(struct schedule *s, struct arena *a)
{
    const uint64_t n = (uint64_t)s->n_places, n_text = (uint64_t)session_cap(s->session) + 1;
    s->places = arena_take(a, n, sizeof *s->places);
    for (int i = 0; i < s->n_places; i++) {
        int32_t *text = arena_take(a, n_text, sizeof *text);
        if (s->places)
            s->places[i].text = text;
    }
    s->prefills = arena_take(a, n, sizeof(struct place *));
    s->picks = arena_take(a, n, sizeof(struct place *));
    const uint64_t decoding = n * (uint64_t)s->n_together;
    s->wants = arena_take(a, n, sizeof *s->wants);
    s->rows = arena_take(a, decoding + (uint64_t)session_block(s->session), sizeof *s->rows);
    s->logits = arena_take(a, decoding * (uint64_t)s->n_vocab, sizeof *s->logits);
    s->times.rounds = arena_take(a, s->cap_rounds, sizeof *s->times.rounds);
}

enum status schedule_create(struct schedule *s, struct err *e)
{
    assert(s->n_keep >= 0 && s->n_keep <= schedule_most_kept(session_cap(s->session)));
    s->longest_token = tokenizer_longest(s->tokenizer);
    s->n_together = 1 + (s->drafter ? s->drafter->pace.most : 0);
    take_schedule(s, &s->arena);
    TRY(arena_allocate(&s->arena, "the schedule", e));
    take_schedule(s, &s->arena);
    for (int i = 0; i < s->n_places; i++)
        s->places[i].sequence = i;
    return STATUS_OK;
}

void schedule_free(struct schedule *s)
{
    for (int i = 0; s->places && i < s->n_places; i++)
        stream_free(&s->places[i].stream);
    arena_free(&s->arena);
    s->places = NULL;
}

/* --- texts begin ----------------------------------------------------------------------------- */

/* The place's tokens are to be fed, but for those in the cache. */
static void fill_place(struct schedule *s, struct place *p)
{
    p->n_fed = session_len(s->session, p->sequence);
    p->fills = true;
    s->prefills[s->n_prefills++] = p;
}

/* Tokens that can be made before the context is full: the last one need not be fed. */
static int room_of(const struct schedule *s, const struct place *p)
{
    return session_cap(s->session) - p->len + 1;
}

/* Of them those that are wanted. */
static int tokens_left(const struct schedule *s, const struct place *p)
{
    const int wanted = p->request.n - p->n_made, room = room_of(s, p);
    return wanted < room ? wanted : room;
}

/* Tokens of a full context that go on behind those that are kept. */
static int last_half(int n_ctx)
{
    return n_ctx > 1 ? n_ctx / 2 : 1;
}

int schedule_most_kept(int n_ctx)
{
    return n_ctx - last_half(n_ctx);
}

int schedule_room(const struct schedule *s, int place)
{
    const int cap = session_cap(s->session);
    return s->shifts ? last_half(cap) : cap - s->places[place].len;
}

/* The place has a new text. */
static void start_text(struct schedule *s, struct place *p)
{
    const struct request *r = &p->request;
    assert(r->n_tokens >= 1 && r->n_tokens <= session_cap(s->session));
    session_rewind(s->session, p->sequence, r->logits ? r->n_tokens : 0);
    sampler_reset(s->sampler, p->sequence, r->seed, r->stream);
    memcpy(p->text, r->tokens, (size_t)r->n_tokens * sizeof *p->text);
    p->len = r->n_tokens;
    p->n_again = 0;
}

/* Of the text stay the first tokens and the last n; these are to be fed behind those again. */
static void cut_text(struct schedule *s, struct place *p, int n)
{
    memmove(p->text + s->n_keep, p->text + p->len - n, (size_t)n * sizeof *p->text);
    p->len = s->n_keep + n;
    p->n_again = p->len;
    session_rewind(s->session, p->sequence, s->n_keep);
    s->times.n_shifts++;
}

/* Its text goes on; where there is no room left it is shifted first, as while it is made. At least
 * the last token is to be fed, for the logits behind it. */
static void extend_text(struct schedule *s, struct place *p)
{
    const struct request *r = &p->request;
    const int cap = session_cap(s->session);
    assert(!r->logits && p->len >= 1 && r->n_tokens <= schedule_room(s, p->sequence));
    if (p->len + r->n_tokens > cap)
        cut_text(s, p, last_half(cap) - r->n_tokens);
    session_rewind(s->session, p->sequence, p->len); /* drafted tokens may stand behind it */
    if (r->n_tokens > 0)
        memcpy(p->text + p->len, r->tokens, (size_t)r->n_tokens * sizeof *p->text);
    p->len += r->n_tokens;
    session_rewind(s->session, p->sequence, p->len - 1);
}

static enum status begin_text(struct schedule *s, struct place *p, struct err *e)
{
    const struct request *r = &p->request;
    TRY(stream_start(&p->stream, r->stops, r->n_stops, s->longest_token, e));
    if (r->goes_on)
        extend_text(s, p);
    else
        start_text(s, p);
    for (int i = 0; i < r->n_tokens; i++)
        sampler_accept(s->sampler, p->sequence, r->tokens[i]);
    if (s->drafter)
        drafter_begin(s->drafter, p->sequence, p->text, p->len);
    p->at_end = false;
    p->n_made = 0;
    p->logprob = 0;
    p->logits = r->logits;
    if (!r->logits)
        fill_place(s, p);
    p->busy = true;
    s->n_busy++;
    return STATUS_OK;
}

static enum status fill_places(struct schedule *s, struct err *e)
{
    for (int i = 0; i < s->n_places && s->n_busy < s->n_places && !s->supply_ended; i++) {
        struct place *p = &s->places[i];
        enum supply supply;
        if (p->busy)
            continue;
        TRY(s->client->next(s->arg, p, s->n_busy ? 0 : WAIT_MS, &supply, e));
        if (supply == SUPPLY_LATER)
            break;
        s->supply_ended = supply == SUPPLY_END;
        if (supply == SUPPLY_TEXT)
            TRY(begin_text(s, p, e));
    }
    return STATUS_OK;
}

/* --- texts end ------------------------------------------------------------------------------- */

static void free_place(struct schedule *s, struct place *p)
{
    p->busy = false;
    p->fills = false;
    p->logits = NULL;
    s->n_busy--;
}

static enum status end_text(struct schedule *s, struct place *p, enum text_end end, struct err *e)
{
    free_place(s, p);
    return s->client->ended(s->arg, p, end, stream_finish(&p->stream), e);
}

/* The one that has the highest number; NULL: none. */
static struct place *last_busy(const struct schedule *s)
{
    struct place *last = NULL;
    for (int i = 0; i < s->n_places; i++) {
        struct place *p = &s->places[i];
        if (p->busy && (!last || p->request.number > last->request.number))
            last = p;
    }
    return last;
}

/* What fails now is behind what ended them. */
static void abandon_texts(struct schedule *s)
{
    s->n_prefills = 0;
    for (struct place *p; (p = last_busy(s));)
        (void)end_text(s, p, END_ABANDONED, NULL);
}

/* --- a step ---------------------------------------------------------------------------------- */

/* What a round fed, and how long that took. */
struct round {
    int n_texts;         /* that decoded */
    int n_rows;          /* of these, drafted tokens among them */
    int n_prompt;        /* rows of prompts */
    uint64_t prompts_ns; /* that went to prompts, the draft's included */
};

static bool decodes(const struct place *p)
{
    return p->busy && !p->fills && !p->logits;
}

/* Guesses for every place that decodes. A text's last token need not be verified. */
static enum status draft_tokens(struct schedule *s, struct round *round, struct err *e)
{
    const uint64_t fed = s->drafter->feed_ns;
    int n = 0;
    for (int i = 0; i < s->n_places; i++) {
        const struct place *p = &s->places[i];
        const int left = tokens_left(s, p);
        if (decodes(p))
            s->wants[n++] =
                (struct draft_want){i, (left < s->n_together ? left : s->n_together) - 1};
    }
    if (n > 0)
        TRY(drafter_propose(s->drafter, s->wants, n, n, e));
    round->prompts_ns += s->drafter->feed_ns - fed;
    return STATUS_OK;
}

static void put_row(struct schedule *s, const struct place *p, int n, int32_t token, int ahead)
{
    s->rows[n] = (struct batch_row){.token = token,
                                    .sequence = p->sequence,
                                    .position = p->len - 1 + ahead,
                                    .wants_logits = true};
}

/* A row for every place that has a token to feed, and for each that is drafted behind it. */
static void put_decoding_rows(struct schedule *s, struct round *round)
{
    int n = 0;
    for (int i = 0; i < s->n_places; i++) {
        struct place *p = &s->places[i];
        const int32_t *drafted = NULL;
        if (!decodes(p))
            continue;
        const int n_drafted = s->drafter ? drafter_drafted(s->drafter, i, &drafted) : 0;
        p->logits = s->logits + (size_t)n * (size_t)s->n_vocab;
        put_row(s, p, n++, p->token, 0);
        for (int t = 0; t < n_drafted; t++)
            put_row(s, p, n++, drafted[t], t + 1);
        round->n_texts++;
    }
    round->n_rows = n;
}

/* Rows of a prompt from row n on, up to `end`; returns the row behind them. */
static int put_prompt_rows(struct schedule *s, struct place *p, int n, int end)
{
    for (; n < end && p->n_fed < p->len; n++, p->n_fed++) {
        s->rows[n] = (struct batch_row){.token = p->text[p->n_fed],
                                        .sequence = p->sequence,
                                        .position = p->n_fed,
                                        .wants_logits = p->n_fed == p->len - 1};
        s->times.n_fed_again += p->n_fed < p->n_again;
    }
    return n;
}

/* Rows of prompts behind the n_decoding others, until the last of the step's blocks is full. Those
 * that come to an end get the logits behind the others'. */
static int put_prefill_rows(struct schedule *s, int n_decoding)
{
    const int block = session_block(s->session);
    const int end = n_decoding + block - n_decoding % block;
    int n = n_decoding, done = 0;
    while (done < s->n_prefills && n < end) {
        struct place *p = s->prefills[done];
        n = put_prompt_rows(s, p, n, end);
        if (p->n_fed < p->len)
            break;
        p->logits = s->logits + (size_t)(n_decoding + done++) * (size_t)s->n_vocab;
    }
    return n;
}

/* Takes the places off the queue whose prompts are fed. */
static void end_prefills(struct schedule *s)
{
    int left = 0;
    for (int i = 0; i < s->n_prefills; i++) {
        struct place *p = s->prefills[i];
        p->fills = !p->logits;
        if (p->fills)
            s->prefills[left++] = p;
        else if (s->client->prefilled && p->n_made == 0)
            s->client->prefilled(s->arg, p, p->logits);
    }
    s->n_prefills = left;
}

static enum status feed_rows(struct schedule *s, struct round *round, struct err *e)
{
    if (s->drafter)
        TRY(draft_tokens(s, round, e));
    put_decoding_rows(s, round);
    const int n = put_prefill_rows(s, round->n_rows);
    if (n == 0)
        return STATUS_OK;
    round->n_prompt = n - round->n_rows;
    const uint64_t start = clock_ns();
    TRY(session_step(s->session, s->rows, n, s->logits, e));
    const uint64_t ns = clock_ns() - start;
    round->prompts_ns += (uint64_t)((double)ns * round->n_prompt / n);
    s->times.prefill_ns += round->prompts_ns;
    s->times.n_prefilled += (uint64_t)round->n_prompt;
    end_prefills(s);
    return STATUS_OK;
}

/* --- picks ----------------------------------------------------------------------------------- */

static void pick_token(struct schedule *s, struct place *p, int thread)
{
    p->picked = sampler_pick(s->sampler, p->sequence, thread, p->logits, &p->token, NULL);
    if (p->picked == STATUS_OK && s->wants_logprobs)
        p->picked = logits_log_sum(p->logits, s->n_vocab, &p->log_sum, NULL);
}

static void pick_share(void *arg, int thread)
{
    struct schedule *s = arg;
    int begin, end;
    pool_share(s->n_picks, thread, pool_n_threads(s->pool), &begin, &end);
    for (int i = begin; i < end; i++)
        pick_token(s, s->picks[i], thread);
}

/* One by one, each thread has the others to wait for. */
static void pick_all(struct schedule *s)
{
    if (s->n_picks > 1)
        pool_run(s->pool, pick_share, s);
    else if (s->n_picks == 1)
        pick_token(s, s->picks[0], 0);
}

static enum status fail_text(struct schedule *s, struct place *p, struct err *e)
{
    struct err why;
    (void)logits_check(p->logits, s->n_vocab, &why);
    TRY(s->client->failed(s->arg, p, &why, e));
    free_place(s, p);
    return STATUS_OK;
}

/* Goes on to the logits after the token that was picked, if it was drafted. */
static void follow_draft(struct schedule *s, struct place *p)
{
    if (s->drafter && drafter_accept(s->drafter, p->sequence, p->token)) {
        p->logits += s->n_vocab;
        s->times.n_decoded++;
        return;
    }
    p->logits = NULL;
    session_rewind(s->session, p->sequence, p->len - 1);
}

/* Nothing is drafted here: a text's last token of a context has none behind it. */
static void shift_text(struct schedule *s, struct place *p)
{
    cut_text(s, p, last_half(session_cap(s->session)));
    p->logits = NULL;
    if (s->drafter)
        drafter_begin(s->drafter, p->sequence, p->text, p->len);
    fill_place(s, p);
}

static enum status take_pick(struct schedule *s, struct place *p, struct err *e)
{
    if (p->picked != STATUS_OK)
        return fail_text(s, p, e);
    if (!s->ignore_eos && p->token == tokenizer_eos(s->tokenizer)) {
        p->at_end = true;
        return end_text(s, p, END_EOS, e);
    }
    struct made m = {.token = p->token, .logits = p->logits, .log_sum = p->log_sum};
    if (!tokenizer_is_special(s->tokenizer, p->token))
        m.ready = stream_push(&p->stream, tokenizer_bytes(s->tokenizer, p->token));
    TRY(s->client->made(s->arg, p, &m, e));
    sampler_accept(s->sampler, p->sequence, p->token);
    p->logprob += (double)p->logits[p->token] - p->log_sum;
    p->text[p->len++] = p->token;
    p->n_made++;
    s->times.n_made++;
    follow_draft(s, p);
    if (p->stream.stopped)
        return end_text(s, p, END_STOP, e);
    if (p->n_made == p->request.n)
        return end_text(s, p, END_LENGTH, e);
    if (room_of(s, p) > 0)
        return STATUS_OK;
    if (!s->shifts)
        return end_text(s, p, END_CONTEXT, e);
    shift_text(s, p);
    return STATUS_OK;
}

/* All that have logits; those that want no token end without one. */
static enum status find_picks(struct schedule *s, struct err *e)
{
    s->n_picks = 0;
    for (int i = 0; i < s->n_places; i++) {
        struct place *p = &s->places[i];
        if (p->logits && p->request.n > 0)
            s->picks[s->n_picks++] = p;
        else if (p->logits)
            TRY(end_text(s, p, END_LENGTH, e));
    }
    return STATUS_OK;
}

/* A token of each, and one more as long as it was drafted. */
static enum status take_tokens(struct schedule *s, struct err *e)
{
    TRY(find_picks(s, e));
    while (s->n_picks > 0) {
        pick_all(s);
        for (int i = 0; i < s->n_picks; i++)
            TRY(take_pick(s, s->picks[i], e));
        TRY(find_picks(s, e));
    }
    return STATUS_OK;
}

/* --- rounds ---------------------------------------------------------------------------------- */

static void note_round(struct schedule *s, const struct round *round, int n_tokens, uint64_t ns)
{
    struct schedule_times *t = &s->times;
    if (round->n_texts == 0)
        return;
    t->n_steps += (uint64_t)round->n_texts;
    t->n_decoded += (uint64_t)round->n_texts;
    t->decode_ns += ns;
    if (t->n_rounds < s->cap_rounds)
        t->rounds[t->n_rounds++] = ns;
    if (s->drafter && round->n_prompt == 0)
        drafter_measured(s->drafter, round->n_texts, round->n_rows, n_tokens, ns);
}

static enum status run_round(struct schedule *s, uint64_t *before, bool *stop, struct err *e)
{
    struct round round = {.n_texts = 0};
    const uint64_t made = s->times.n_made;
    TRY(feed_rows(s, &round, e));
    TRY(take_tokens(s, e));
    TRY(s->client->round(s->arg, stop, e));
    const uint64_t now = clock_ns();
    if (s->times.n_made > 0 && !s->times.first_token_at)
        s->times.first_token_at = now;
    note_round(s, &round, (int)(s->times.n_made - made), now - *before - round.prompts_ns);
    *before = now;
    return STATUS_OK;
}

static enum status run_rounds(struct schedule *s, struct err *e)
{
    bool stop = false;
    uint64_t before = clock_ns();
    while (!stop) {
        s->interrupted = s->client->stop(s->arg);
        if (s->interrupted)
            break;
        TRY(fill_places(s, e));
        if (s->n_busy == 0 && s->supply_ended)
            break;
        TRY(run_round(s, &before, &stop, e));
    }
    return STATUS_OK;
}

enum status schedule_run(struct schedule *s, struct err *e)
{
    s->supply_ended = false;
    const enum status status = run_rounds(s, e);
    abandon_texts(s);
    return status;
}
