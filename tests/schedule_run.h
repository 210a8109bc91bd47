/*
 * schedule_run - texts decoded by a schedule, with and without drafts, and all that comes out
 * of them as one number a text: tokens, the bits of their logits, bytes, the end.
 */
#ifndef TESTS_SCHEDULE_RUN_H
#define TESTS_SCHEDULE_RUN_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/schedule.h"
#include "model/model.h"
#include "support.h"

#define RUN_TEXTS  24
#define RUN_TOKENS 64

/* What is decoded. */
struct schedule_texts {
    const struct model *model;
    const struct tokenizer *tokenizer;
    struct sampler_params sampler;
    enum storage kv_storage;
    int n_ctx;
    int n_texts;
    bool goes_on; /* the slot has their beginning */
    bool shares;  /* all have the first one's prompt: in the cache once */
    bool shifts;  /* full contexts go on */
    int n_keep;
    int32_t prompts[RUN_TEXTS][RUN_TOKENS];
    int n_prompt[RUN_TEXTS], n[RUN_TEXTS];
    uint64_t seed;
    const struct text *stops;
    int n_stops;
    bool ignore_eos;
};

/* How. */
struct schedule_ways {
    int n_slots, n_threads, block;
    bool drafts;
    const struct model *draft; /* NULL: lookup */
    int draft_n;
    bool fixed;
    void (*see)(const struct event *event); /* gets each token; may be NULL */
};

/* What came out. */
struct schedule_seen {
    uint64_t hash[RUN_TEXTS]; /* of all its events */
    int n_sampled[RUN_TEXTS];
    enum text_end end[RUN_TEXTS];
    uint64_t n_drafted, n_right, n_steps, n_decoded, n_shifts;
};

static inline void seen_bytes(uint64_t *hash, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++) /* FNV-1a */
        *hash = (*hash ^ b[i]) * 0x100000001b3u;
}

/* Everything of a run; closed in every case. */
struct schedule_run {
    struct pool *pool;
    struct session *session, *guesses;
    struct sampler *sampler;
    struct drafter drafter;
    struct schedule schedule;
};

static inline enum status open_drafter(struct schedule_run *r, const struct schedule_texts *t,
                                       const struct schedule_ways *w, struct err *e)
{
    struct session_params p = {.n_sequences = w->n_slots, .kv_storage = t->kv_storage};
    r->drafter = (struct drafter){.sampler = r->sampler,
                                  .pool = r->pool,
                                  .n_slots = w->n_slots,
                                  .n_vocab = t->model->config.n_vocab,
                                  .end = t->ignore_eos ? -1 : tokenizer_eos(t->tokenizer),
                                  .pace = {.most = w->draft_n, .fixed = w->fixed, .cost = 0.2}};
    if (w->draft) {
        p.n_ctx = t->n_ctx < w->draft->config.n_ctx ? t->n_ctx : w->draft->config.n_ctx;
        p.n_shared = t->shares && t->n_prompt[0] <= p.n_ctx ? t->n_prompt[0] : 0;
        TRY(session_create(w->draft, &p, r->pool, &r->guesses, e));
        r->drafter.session = r->guesses;
        r->drafter.n_shared = p.n_shared;
    }
    TRY(drafter_create(&r->drafter, e));
    r->schedule.drafter = &r->drafter;
    return STATUS_OK;
}

static inline enum status open_run(struct schedule_run *r, const struct schedule_texts *t,
                                   const struct schedule_ways *w, struct err *e)
{
    const struct sampler_sizes sizes = {t->model->config.n_vocab, t->n_ctx, 2 * w->n_slots,
                                        w->n_threads};
    const struct session_params p = {.n_sequences = w->n_slots,
                                     .n_ctx = t->n_ctx,
                                     .n_shared = t->shares ? t->n_prompt[0] : 0,
                                     .kv_storage = t->kv_storage,
                                     .block = w->block};
    TRY(pool_create(w->n_threads, &r->pool, e));
    TRY(session_create(t->model, &p, r->pool, &r->session, e));
    TRY(sampler_create(&t->sampler, &sizes, &r->sampler, e));
    r->schedule = (struct schedule){.session = r->session,
                                    .sampler = r->sampler,
                                    .pool = r->pool,
                                    .tokenizer = t->tokenizer,
                                    .n_slots = w->n_slots,
                                    .n_vocab = t->model->config.n_vocab,
                                    .ignore_eos = t->ignore_eos,
                                    .wants_logprobs = true,
                                    .shifts = t->shifts,
                                    .n_keep = t->n_keep,
                                    .cap_rounds = 16};
    if (w->drafts)
        TRY(open_drafter(r, t, w, e));
    return schedule_create(&r->schedule, e);
}

static inline void close_run(struct schedule_run *r)
{
    schedule_free(&r->schedule);
    drafter_free(&r->drafter);
    sampler_free(r->sampler);
    session_free(r->guesses);
    session_free(r->session);
    pool_free(r->pool);
}

/* What an event says of its text. */
static inline void see_event(const struct event *event, int n_vocab, struct schedule_seen *seen,
                             const struct err *e)
{
    const struct slot *p = event->slot;
    const uint64_t i = p->request.number;
    if (event->kind == EVENT_SAMPLED) {
        seen_bytes(&seen->hash[i], &event->token, sizeof event->token);
        seen_bytes(&seen->hash[i], event->logits, (size_t)n_vocab * sizeof *event->logits);
        seen_bytes(&seen->hash[i], &event->log_sum, sizeof event->log_sum);
    }
    seen_bytes(&seen->hash[i], event->ready.data, event->ready.len);
    if (event->kind == EVENT_ENDED) {
        if (event->end == END_FAILED)
            seen_bytes(&seen->hash[i], e->text, strlen(e->text));
        seen->n_sampled[i] = p->n_sampled;
        seen->end[i] = event->end;
    }
}

/* Decodes all texts in a schedule that is open; those that share a prompt get its logits as the
 * first text has them, in prompt_logits [n_vocab]. */
static inline enum status run_texts(struct schedule *s, const struct schedule_texts *t,
                                    const struct schedule_ways *w, float *prompt_logits,
                                    struct schedule_seen *seen, struct err *e)
{
    struct slot *p;
    int i = 0;
    bool has_prompt = false;
    for (struct event event; schedule_next(s, &event, e);) {
        if (t->shares && prompt_logits && !has_prompt && event.logits) {
            memcpy(prompt_logits, event.logits, (size_t)s->n_vocab * sizeof *prompt_logits);
            has_prompt = true;
        }
        if (event.kind != EVENT_ROUND)
            see_event(&event, s->n_vocab, seen, e);
        if (event.kind == EVENT_SAMPLED && w->see)
            w->see(&event);
        while (event.kind == EVENT_ROUND && i < t->n_texts &&
               (i == 0 || !t->shares || has_prompt) && (p = schedule_vacant(s))) {
            const int prompt = t->shares ? 0 : i;
            const struct request request = {.number = (uint64_t)i,
                                            .tokens = t->prompts[prompt],
                                            .n_tokens = t->n_prompt[prompt],
                                            .goes_on = t->goes_on,
                                            .logits = has_prompt ? prompt_logits : NULL,
                                            .n = t->n[i],
                                            .seed = t->seed,
                                            .stream = (uint64_t)i,
                                            .stops = t->stops,
                                            .n_stops = t->n_stops};
            TRY(schedule_begin(s, p, &request, e));
            i++;
        }
    }
    return s->status;
}

/* Decodes all texts one way. */
static inline enum status run_schedule(const struct schedule_texts *t,
                                       const struct schedule_ways *w, struct schedule_seen *seen,
                                       struct err *e)
{
    struct schedule_run r = {.pool = NULL};
    float *prompt_logits = malloc((size_t)t->model->config.n_vocab * sizeof(float));
    *seen = (struct schedule_seen){.n_drafted = 0};
    enum status s = prompt_logits ? open_run(&r, t, w, e) : STATUS_NO_MEMORY;
    if (s == STATUS_OK)
        s = run_texts(&r.schedule, t, w, prompt_logits, seen, e);
    seen->n_drafted = r.drafter.n_drafted;
    seen->n_right = r.drafter.n_right;
    seen->n_steps = r.schedule.times.n_steps;
    seen->n_decoded = r.schedule.times.n_decoded;
    seen->n_shifts = r.schedule.times.n_shifts;
    close_run(&r);
    free(prompt_logits);
    return s;
}

/* Whether two runs gave the same. */
static inline bool same_texts(const struct schedule_seen *a, const struct schedule_seen *b, int n)
{
    const size_t count = (size_t)n;
    return memcmp(a->hash, b->hash, count * sizeof *a->hash) == 0 &&
           memcmp(a->n_sampled, b->n_sampled, count * sizeof *a->n_sampled) == 0 &&
           memcmp(a->end, b->end, count * sizeof *a->end) == 0;
}

#endif
