#include "engine/schedule.h"

#include "base/figures.h"

/* --- memory ---------------------------------------------------------------------------------- */

static void take_schedule(struct schedule *s, struct arena *a)
{
    const uint64_t n = s->n_slots, n_text = session_cap(s->session) + 1;
    const uint64_t decoding = n * s->n_together;
    ARENA_TAKE(s->slots, a, n);
    int32_t *texts = arena_take(a, n * n_text, sizeof *texts);
    for (int i = 0; s->slots && i < s->n_slots; i++) {
        s->slots[i].sequence = i;
        s->slots[i].text = texts + i * n_text;
    }
    ARENA_TAKE(s->prefills, a, n);
    ARENA_TAKE(s->rows, a, decoding + session_block(s->session));
    ARENA_TAKE(s->logits, a, decoding * s->n_vocab);
    ARENA_TAKE(s->times.rounds, a, s->cap_rounds);
}

/* Tokens of a full context that go on behind those that are kept. */
static int last_half(int n_ctx)
{
    return MAX(n_ctx / 2, 1);
}

enum status schedule_create(struct schedule *s, struct err *e)
{
    const int cap = session_cap(s->session), most_kept = cap - last_half(cap);
    s->n_keep = MIN(s->n_keep, most_kept);
    s->longest_token = tokenizer_longest(s->tokenizer);
    s->n_together = 1 + (s->drafter ? s->drafter->pace.most : 0);
    take_schedule(s, &s->arena);
    TRY(arena_allocate(&s->arena, "the schedule", e));
    take_schedule(s, &s->arena);
    return STATUS_OK;
}

void schedule_free(struct schedule *s)
{
    for (int i = 0; s->slots && i < s->n_slots; i++)
        stream_free(&s->slots[i].stream);
    arena_free(&s->arena);
    s->slots = NULL;
}

/* --- texts begin ----------------------------------------------------------------------------- */

int schedule_room(const struct schedule *s, int slot)
{
    const int cap = session_cap(s->session), left = cap - s->slots[slot].len;
    return s->shifts ? MAX(left, last_half(cap)) : left;
}

/* The slot's tokens are to be fed, but for those in the cache. */
static void prefill_slot(struct schedule *s, struct slot *p)
{
    p->n_fed = session_len(s->session, p->sequence);
    p->state = SLOT_PREFILLS;
    s->prefills[s->n_prefills++] = p;
}

/* Of the text stay the first tokens and the last n; these are to be fed behind those again. */
static void cut_text(struct schedule *s, struct slot *p, int n)
{
    memmove(p->text + s->n_keep, p->text + p->len - n, n * sizeof *p->text);
    p->len = s->n_keep + n;
    s->times.n_fed_again += n;
    session_rewind(s->session, p->sequence, s->n_keep);
    s->times.n_shifts++;
}

struct slot *schedule_vacant(struct schedule *s)
{
    for (int i = 0; i < s->n_slots; i++)
        if (s->slots[i].state == SLOT_VACANT)
            return &s->slots[i];
    return NULL;
}

enum status schedule_begin(struct schedule *s, struct slot *p, const struct request *r,
                           struct err *e)
{
    const int cap = session_cap(s->session);
    int n_same = r->goes_on ? p->len : r->logits ? r->n_tokens : 0; /* as before */
    TRY(stream_start(&p->stream, r->stops, r->n_stops, s->longest_token, e));
    p->request = *r;
    if (!r->goes_on) {
        assert(r->n_tokens >= 1 && r->n_tokens <= cap);
        sampler_reset(s->sampler, p->sequence, r->seed, r->stream);
        p->len = 0;
    } else {
        assert(!r->logits && p->len >= 1 && r->n_tokens <= schedule_room(s, p->sequence));
        /* Where there is no room left it is shifted first, as while it is decoded. */
        if (p->len + r->n_tokens > cap) {
            cut_text(s, p, last_half(cap) - r->n_tokens);
            n_same = s->n_keep;
        }
    }
    session_rewind(s->session, p->sequence, n_same); /* drafted tokens may stand behind it */
    for (int i = 0; i < r->n_tokens; i++) {
        p->text[p->len++] = r->tokens[i];
        sampler_accept(s->sampler, p->sequence, r->tokens[i]);
    }
    if (r->goes_on) /* at least the last token is to be fed, for the logits behind it */
        session_rewind(s->session, p->sequence, p->len - 1);
    if (s->drafter)
        drafter_begin(s->drafter, p->sequence, p->text, p->len, n_same);
    p->at_end = false;
    p->n_sampled = 0;
    p->logprob = 0;
    p->logits = r->logits;
    p->state = SLOT_DECODES;
    if (!r->logits)
        prefill_slot(s, p);
    s->n_busy++;
    return STATUS_OK;
}

/* --- a step ---------------------------------------------------------------------------------- */

/* Tokens that can be sampled before the context is full: the last one need not be fed. */
static int room_of(const struct schedule *s, const struct slot *p)
{
    return session_cap(s->session) - p->len + 1;
}

/* One step of the model: a row for every slot that has a token to feed, one for each that is
 * drafted behind it, and prompts until the last of the step's blocks is full. Those that come to an
 * end get the logits behind the others', and leave the queue. */
static enum status feed_rows(struct schedule *s, struct err *e)
{
    struct schedule_round *round = &s->round;
    *round = (struct schedule_round){.sampled_before = s->times.n_sampled};
    if (s->drafter) {
        /* Guesses for every slot that decodes. A text's last token need not be verified. */
        const uint64_t fed = s->drafter->feed_ns;
        for (int i = 0; i < s->n_slots; i++) {
            const struct slot *p = &s->slots[i];
            const int left = MIN(p->request.n - p->n_sampled, room_of(s, p));
            s->drafter->slots[i].wanted = p->state == SLOT_DECODES && !p->logits ? left - 1 : -1;
        }
        TRY(drafter_propose(s->drafter, e));
        round->prompts_ns += s->drafter->feed_ns - fed;
    }
    for (int i = 0; i < s->n_slots; i++) {
        struct slot *p = &s->slots[i];
        if (p->state != SLOT_DECODES || p->logits)
            continue;
        const int n_drafted = s->drafter ? s->drafter->slots[i].n_drafted : 0;
        p->logits = s->logits + (size_t)round->n_rows * s->n_vocab;
        for (int at = p->len - 1; at < p->len + n_drafted; at++)
            s->rows[round->n_rows++] = (struct batch_row){p->text[at], i, at, .wants_logits = true};
        round->n_texts++;
    }
    const int block = session_block(s->session), first = round->n_rows;
    const int end = first + block - first % block;
    int n = first, done = 0;
    for (; done < s->n_prefills && n < end; done++) {
        struct slot *p = s->prefills[done];
        for (; n < end && p->n_fed < p->len; n++, p->n_fed++)
            s->rows[n] = (struct batch_row){p->text[p->n_fed], p->sequence, p->n_fed,
                                            .wants_logits = p->n_fed == p->len - 1};
        if (p->n_fed < p->len)
            break;
        p->state = SLOT_DECODES;
        p->logits = s->logits + (size_t)(first + done) * s->n_vocab;
    }
    round->n_prompt = n - first;
    s->n_prefills -= done;
    memmove(s->prefills, s->prefills + done, s->n_prefills * sizeof *s->prefills);
    if (n == 0) /* all have the logits of a prompt that they share */
        return STATUS_OK;
    const uint64_t start = clock_ns();
    TRY(session_step(s->session, s->rows, n, s->logits, e));
    const uint64_t ns = clock_ns() - start;
    round->prompts_ns += (uint64_t)((double)ns * round->n_prompt / n);
    s->times.prefill_ns += round->prompts_ns;
    s->times.n_prefilled += round->n_prompt;
    return STATUS_OK;
}

/* --- tokens ---------------------------------------------------------------------------------- */

/* A token for each slot that is to have one, by the threads that share them. */
static void sample_share(void *arg, int thread)
{
    struct schedule *s = arg;
    for (int i = thread; i < s->n_slots; i += s->n_sampling) {
        struct slot *p = &s->slots[i];
        if (p->pick != PICK_TOKEN)
            continue;
        p->sampled = sampler_pick(s->sampler, i, thread, p->logits, &p->token, NULL);
        if (p->sampled == STATUS_OK && s->wants_logprobs)
            p->sampled = logits_log_sum(p->logits, s->n_vocab, &p->log_sum, NULL);
    }
}

/* The text's end, as p->end says, is the event. */
static void end_text(struct schedule *s, struct slot *p, struct event *event)
{
    event->kind = EVENT_ENDED;
    event->ready = stream_finish(&p->stream);
    event->end = p->end;
    p->state = SLOT_VACANT;
    p->pick = PICK_NONE;
    p->logits = NULL;
    s->n_busy--;
}

/* What was sampled for a slot is an event; the next one is the text's end, if that is it. */
static void take_pick(struct schedule *s, struct slot *p, struct event *event, struct err *e)
{
    event->slot = p;
    event->token = p->token;
    event->logits = p->logits;
    event->log_sum = p->log_sum;
    if (p->pick == PICK_TOKEN) {
        const bool failed = p->sampled != STATUS_OK;
        p->at_end = !failed && !s->ignore_eos && p->token == tokenizer_eos(s->tokenizer);
        if (failed)
            (void)logits_check(p->logits, s->n_vocab, e);
        if (failed || p->at_end) {
            p->pick = PICK_ENDS;
            p->end = failed ? END_FAILED : END_EOS;
        }
    }
    if (p->pick == PICK_ENDS) {
        end_text(s, p, event);
        return;
    }
    event->kind = EVENT_SAMPLED;
    if (!tokenizer_is_special(s->tokenizer, p->token))
        event->ready = stream_push(&p->stream, tokenizer_bytes(s->tokenizer, p->token));

    /* The token is the text's, which goes on to the logits after it if it was drafted. */
    sampler_accept(s->sampler, p->sequence, p->token);
    p->logprob += (double)p->logits[p->token] - p->log_sum;
    p->n_sampled++;
    s->times.n_sampled++;
    const bool drafted = s->drafter && drafter_accept(s->drafter, p->sequence, p->token);
    p->text[p->len++] = p->token;
    if (drafted) {
        p->logits += s->n_vocab;
        s->times.n_decoded++;
    } else {
        p->logits = NULL;
        session_rewind(s->session, p->sequence, p->len - 1);
    }

    const bool complete = p->n_sampled == p->request.n, full = room_of(s, p) == 0;
    p->pick = PICK_NONE;
    if (p->stream.stopped || complete || (full && !s->shifts)) {
        p->pick = PICK_ENDS;
        p->end = p->stream.stopped ? END_STOP : complete ? END_LENGTH : END_CONTEXT;
    } else if (full) {
        /* Nothing is drafted here: a text's last token of a context has none behind it. */
        cut_text(s, p, last_half(session_cap(s->session)));
        p->logits = NULL;
        if (s->drafter)
            drafter_begin(s->drafter, p->sequence, p->text, p->len, s->n_keep);
        prefill_slot(s, p);
    }
}

/* --- rounds ---------------------------------------------------------------------------------- */

void schedule_end(struct schedule *s, enum status status)
{
    if (!s->over)
        s->status = status;
    s->over = true;
}

/* A token for each text that has logits, also those that were drafted, as long as they are right;
 * the end of one of which only the prompt was to be fed. How many there are. */
static int sample(struct schedule *s)
{
    int n = 0;
    for (int i = 0; i < s->n_slots; i++) {
        struct slot *p = &s->slots[i];
        p->pick = !p->logits ? PICK_NONE : p->request.n > 0 ? PICK_TOKEN : PICK_ENDS;
        p->end = END_LENGTH;
        n += p->logits != NULL;
    }
    struct pool *pool = n > 1 ? s->pool : NULL; /* for one alone threads would only wait */
    s->n_sampling = pool_n_threads(pool);
    s->next = 0;
    pool_run(pool, sample_share, s);
    return n;
}

bool schedule_next(struct schedule *s, struct event *event, struct err *e)
{
    *event = (struct event){.kind = EVENT_ROUND};
    if (!s->runs) {
        s->runs = s->feeds = true;
        s->over = false;
        s->status = STATUS_OK;
        s->round_at = clock_ns();
        return true;
    }
    if (!s->over && s->feeds) {
        const enum status status = s->n_busy > 0 ? feed_rows(s, e) : STATUS_OK;
        if (status != STATUS_OK || s->n_busy == 0)
            schedule_end(s, status);
        s->feeds = false;
        s->next = s->n_slots;
    }
    while (!s->over) {
        while (s->next < s->n_slots && s->slots[s->next].pick == PICK_NONE)
            s->next++;
        if (s->next < s->n_slots) {
            take_pick(s, &s->slots[s->next], event, e);
            return true;
        }
        if (sample(s) > 0)
            continue;
        /* What the round took; the next one begins. */
        struct schedule_times *t = &s->times;
        const struct schedule_round *round = &s->round;
        const uint64_t now = clock_ns(), ns = now - s->round_at - round->prompts_ns;
        s->feeds = true;
        s->round_at = now;
        if (t->n_sampled > 0 && !t->first_token_at)
            t->first_token_at = now;
        if (round->n_texts == 0)
            return true;
        t->n_steps += round->n_texts;
        t->n_decoded += round->n_texts;
        t->decode_ns += ns;
        if (t->n_rounds < s->cap_rounds)
            t->rounds[t->n_rounds++] = ns;
        if (s->drafter && round->n_prompt == 0)
            drafter_measured(s->drafter, round->n_rows, (int)(t->n_sampled - round->sampled_before),
                             ns);
        return true;
    }
    /* Of the texts that have not ended the one that has the highest number is abandoned. */
    struct slot *last = NULL;
    for (struct slot *p = s->slots; p < s->slots + s->n_slots; p++)
        if (p->state != SLOT_VACANT && (!last || p->request.number > last->request.number))
            last = p;
    if (last) {
        event->slot = last;
        last->end = END_ABANDONED;
        end_text(s, last, event);
        return true;
    }
    s->n_prefills = 0;
    s->runs = false;
    return false;
}
