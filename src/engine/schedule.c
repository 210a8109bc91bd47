#include "engine/schedule.h"

#include "base/times.h"

/* --- memory ---------------------------------------------------------------------------------- */

static void take_schedule(struct schedule *s, struct arena *a)
{
    const uint64_t n = s->n_slots, n_text = s->n_ctx + 1;
    ARENA_TAKE(s->slots, a, n);
    int32_t *texts = arena_take(a, n * n_text, sizeof *texts);
    if (s->slots)
        for (int i = 0; i < s->n_slots; i++) {
            s->slots[i].sequence = i;
            s->slots[i].text = texts + i * n_text;
        }
    ARENA_TAKE(s->prefills, a, n);
    ARENA_TAKE(s->rows, a, n + session_block(s->session));
    ARENA_TAKE(s->logits, a, n * s->n_vocab);
    ARENA_TAKE(s->times.rounds, a, s->cap_rounds);
}

/* How many tokens of a full context go on behind those that are kept. */
static int last_half(int n_ctx)
{
    return MAX(n_ctx / 2, 1);
}

enum status schedule_create(struct schedule *s, struct err *e)
{
    s->n_ctx = s->n_ctx ? s->n_ctx : session_cap(s->session);
    s->n_keep = MIN(s->n_keep, s->n_ctx - last_half(s->n_ctx));
    s->longest_token = tokenizer_longest(s->tokenizer);
    take_schedule(s, &s->arena);
    TRY(arena_allocate(&s->arena, "the schedule", e));
    take_schedule(s, &s->arena);
    return STATUS_OK;
}

void schedule_free(struct schedule *s)
{
    if (s->slots)
        for (int i = 0; i < s->n_slots; i++)
            stream_free(&s->slots[i].stream);
    arena_free(&s->arena);
    s->slots = NULL;
}

/* --- texts begin ----------------------------------------------------------------------------- */

int schedule_room(const struct schedule *s, int slot)
{
    const int left = s->n_ctx - s->slots[slot].len;
    return s->shifts ? MAX(left, last_half(s->n_ctx)) : left;
}

/* Lets the slot's tokens be fed, but for those in the cache. */
static void prefill_slot(struct schedule *s, struct slot *p)
{
    p->n_fed = session_len(s->session, p->sequence);
    p->state = SLOT_PREFILLS;
    s->prefills[s->n_prefills++] = p;
}

/* Keeps the first n_keep tokens of the text and its last n, which are fed again behind them. */
static void cut_text(struct schedule *s, struct slot *p, int n)
{
    memmove(p->text + s->n_keep, p->text + p->len - n, n * sizeof *p->text);
    p->len = s->n_keep + n;
    p->n_again = p->len;
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

/* A slot that has all tokens of a prompt but the last in the cache; NULL: there is none. */
static const struct slot *find_prompt(const struct schedule *s, const int32_t *tokens, int n)
{
    for (const struct slot *p = s->slots; n > 1 && p < s->slots + s->n_slots; p++)
        if (session_len(s->session, p->sequence) >= n - 1 &&
            memcmp(p->text, tokens, (n - 1) * sizeof *tokens) == 0)
            return p;
    return NULL;
}

enum status schedule_begin(struct schedule *s, struct slot *p, const struct request *r,
                           struct err *e)
{
    const struct slot *has_prompt = NULL;
    TRY(stream_start(&p->stream, r->stops, r->n_stops, s->longest_token, e));
    p->request = *r;
    if (!r->goes_on) {
        assert(r->n_tokens >= 1 && r->n_tokens <= s->n_ctx);
        sampler_reset(s->sampler, p->sequence, r->seed, r->stream);
        p->len = p->n_again = 0;
        has_prompt = find_prompt(s, r->tokens, r->n_tokens);
        if (has_prompt && has_prompt != p)
            session_copy(s->session, has_prompt->sequence, p->sequence, r->n_tokens - 1);
        else
            session_rewind(s->session, p->sequence, has_prompt ? r->n_tokens - 1 : 0);
    } else {
        assert(p->len >= 1 && r->n_tokens <= schedule_room(s, p->sequence));
        /* Where there is no room left it is shifted first, as while it is decoded. */
        if (p->len + r->n_tokens > s->n_ctx)
            cut_text(s, p, last_half(s->n_ctx) - r->n_tokens);
    }
    for (int i = 0; i < r->n_tokens; i++) {
        p->text[p->len++] = r->tokens[i];
        sampler_accept(s->sampler, p->sequence, r->tokens[i]);
    }
    if (r->goes_on) /* at least the last token is to be fed, for the logits behind it */
        session_rewind(s->session, p->sequence, p->len - 1);
    p->n_sampled = 0;
    p->logprob = 0;
    p->logits = NULL;
    p->state = SLOT_DECODES; /* the prompt's last token is fed as one that was sampled */
    if (!has_prompt)
        prefill_slot(s, p);
    s->n_busy++;
    return STATUS_OK;
}

/* --- a step ---------------------------------------------------------------------------------- */

/* One step of the model: a row for every slot that has a token to feed, *n_decoding of them, and
 * rows of prompts until the last of the step's blocks is full. Prompts that come to an end get the
 * logits behind the others', and leave the queue. */
static enum status feed_rows(struct schedule *s, int *n_decoding, struct err *e)
{
    struct schedule_times *t = &s->times;
    int n = 0, done = 0;
    for (int i = 0; i < s->n_slots; i++) {
        struct slot *p = &s->slots[i];
        p->logits = NULL;
        if (p->state != SLOT_DECODES)
            continue;
        p->logits = s->logits + (size_t)n * s->n_vocab;
        s->rows[n++] = (struct batch_row){p->text[p->len - 1], i, p->len - 1, .wants_logits = true};
    }
    *n_decoding = n;
    /* The end of the block in which they leave room. */
    const int block = session_block(s->session), end = (n / block + 1) * block;
    for (; done < s->n_prefills && n < end; done++) {
        struct slot *p = s->prefills[done];
        const int first = p->n_fed;
        for (; n < end && p->n_fed < p->len; n++, p->n_fed++)
            s->rows[n] = (struct batch_row){p->text[p->n_fed], p->sequence, p->n_fed,
                                            .wants_logits = p->n_fed == p->len - 1};
        t->n_fed_again += MAX(MIN(p->n_fed, p->n_again) - first, 0);
        if (p->n_fed < p->len)
            break;
        p->state = SLOT_DECODES;
        p->logits = s->logits + (size_t)(*n_decoding + done) * s->n_vocab;
    }
    s->n_prefills -= done;
    memmove(s->prefills, s->prefills + done, s->n_prefills * sizeof *s->prefills);
    const int n_prefill = n - *n_decoding;
    const uint64_t start = clock_ns();
    TRY(session_step(s->session, s->rows, n, s->logits, e));
    t->prefill_ns += (uint64_t)((double)(clock_ns() - start) * n_prefill / n);
    t->n_prefilled += n_prefill;
    return STATUS_OK;
}

static void sample_range(void *arg, int thread)
{
    struct schedule *s = arg;
    for (int i = thread; i < s->n_slots; i += s->n_sampling) {
        struct slot *p = &s->slots[i];
        if (!p->logits || p->request.n == 0)
            continue;
        p->sampled = sampler_pick(s->sampler, i, thread, p->logits, &p->token, NULL);
        if (p->sampled == STATUS_OK && s->wants_logprobs)
            p->sampled = logits_log_sum(p->logits, s->n_vocab, &p->log_sum, NULL);
    }
}

/* A token for each slot that has logits and wants one, by the threads that share them. */
static void sample(struct schedule *s)
{
    int n = 0;
    for (int i = 0; i < s->n_slots; i++)
        n += s->slots[i].logits != NULL;
    struct pool *pool = n > 1 ? s->pool : NULL; /* for one alone threads would only wait */
    s->n_sampling = pool_n_threads(pool);
    pool_run(pool, sample_range, s);
}

static void end_text(struct slot *p, enum text_end end)
{
    p->state = SLOT_ENDED;
    p->end = end;
}

/* A text that has logits gets the token that was sampled from them, or ends. */
static void take_token(struct schedule *s, struct slot *p)
{
    p->has_token = false;
    p->ready = text_of("");

    /* A text ends without a token where none is wanted, there is none, or it says so. */
    const bool is_done = p->request.n == 0, failed = !is_done && p->sampled != STATUS_OK;
    if (is_done || failed || (!s->ignore_eos && tokenizer_ends(s->tokenizer, p->token))) {
        end_text(p, is_done ? END_LENGTH : failed ? END_FAILED : END_EOS);
        return;
    }

    /* Else it has one more, for the next step. */
    p->has_token = true;
    if (!tokenizer_is_special(s->tokenizer, p->token))
        p->ready = stream_push(&p->stream, tokenizer_bytes(s->tokenizer, p->token));
    sampler_accept(s->sampler, p->sequence, p->token);
    p->logprob += (double)p->logits[p->token] - p->log_sum;
    p->text[p->len++] = p->token;
    p->n_sampled++;
    s->times.n_sampled++;

    /* It may be the text's last: all that were wanted are there, a stop string is complete, or the
     * context has no room to feed it. */
    const bool complete = p->n_sampled == p->request.n, full = p->len > s->n_ctx;
    if (p->stream.stopped || complete || (full && !s->shifts)) {
        end_text(p, p->stream.stopped ? END_STOP : complete ? END_LENGTH : END_CONTEXT);
    } else if (full) {
        cut_text(s, p, last_half(s->n_ctx));
        prefill_slot(s, p);
    }
}

enum status schedule_round(struct schedule *s, struct err *e)
{
    struct schedule_times *t = &s->times;
    const uint64_t start = clock_ns(), prefill_ns = t->prefill_ns;
    int n_decoding;
    if (s->n_busy == 0)
        return STATUS_OK;
    TRY(feed_rows(s, &n_decoding, e));
    sample(s);
    for (int i = 0; i < s->n_slots; i++)
        if (s->slots[i].logits)
            take_token(s, &s->slots[i]);

    const uint64_t now = clock_ns(), ns = now - start - (t->prefill_ns - prefill_ns);
    if (t->n_sampled > 0 && !t->first_token_at)
        t->first_token_at = now;
    if (n_decoding == 0)
        return STATUS_OK;
    t->n_decoded += n_decoding;
    t->decode_ns += ns;
    if (t->n_rounds < s->cap_rounds)
        t->rounds[t->n_rounds++] = ns;
    return STATUS_OK;
}

struct text schedule_finish(struct schedule *s, struct slot *p)
{
    int kept = 0;
    for (int i = 0; i < s->n_prefills; i++)
        if (s->prefills[i] != p)
            s->prefills[kept++] = s->prefills[i];
    s->n_prefills = kept;
    s->n_busy -= p->state != SLOT_VACANT;
    p->state = SLOT_VACANT;
    p->logits = NULL;
    return stream_finish(&p->stream);
}

enum status schedule_failure(const struct schedule *s, const struct slot *p, struct err *e)
{
    return session_explain(s->session, logits_check(p->logits, s->n_vocab, e), NULL, e);
}
