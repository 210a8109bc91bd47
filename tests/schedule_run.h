/*
 * schedule_run - texts decoded by a schedule, with and without drafts, and all that the client sees
 * of them as one number a text: tokens, the bits of their logits, bytes, the end.
 */
#ifndef TESTS_SCHEDULE_RUN_H
#define TESTS_SCHEDULE_RUN_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/schedule.h"
#include "model/model.h"

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
    bool shares; /* all have the first one's prompt: in the cache once */
    bool shifts; /* full contexts go on */
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
    int n_places, n_threads, block;
    bool drafts;
    const struct model *draft; /* NULL: lookup */
    int draft_n;
    bool fixed;
    const struct schedule_client *client; /* NULL: run_client */
};

/* What came out. */
struct schedule_seen {
    uint64_t hash[RUN_TEXTS]; /* of what the client was given */
    int n_made[RUN_TEXTS];
    enum text_end end[RUN_TEXTS];
    uint64_t n_drafted, n_right, n_steps, n_decoded, n_shifts;
};

struct schedule_client_state {
    const struct schedule_texts *texts;
    struct schedule_seen *seen;
    struct schedule *schedule;
    int n_begun;
    float *prompt_logits;
    bool has_prompt;
};

static inline void seen_bytes(uint64_t *hash, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++) /* FNV-1a */
        *hash = (*hash ^ b[i]) * 0x100000001b3u;
}

static inline enum status run_next(void *arg, struct place *p, int wait_ms, enum supply *supply,
                                   struct err *e)
{
    struct schedule_client_state *c = arg;
    const struct schedule_texts *t = c->texts;
    const int i = c->n_begun, prompt = t->shares ? 0 : i;
    (void)wait_ms;
    (void)e;
    *supply = i == t->n_texts ? SUPPLY_END : SUPPLY_LATER;
    if (i == t->n_texts || (t->shares && i > 0 && !c->has_prompt))
        return STATUS_OK;
    *supply = SUPPLY_TEXT;
    p->request = (struct request){.number = (uint64_t)i,
                                  .tokens = t->prompts[prompt],
                                  .n_tokens = t->n_prompt[prompt],
                                  .logits = t->shares && i > 0 ? c->prompt_logits : NULL,
                                  .n = t->n[i],
                                  .seed = t->seed,
                                  .stream = (uint64_t)i,
                                  .stops = t->stops,
                                  .n_stops = t->n_stops};
    c->n_begun++;
    return STATUS_OK;
}

static inline void run_prefilled(void *arg, const struct place *p, const float *logits)
{
    struct schedule_client_state *c = arg;
    (void)p;
    memcpy(c->prompt_logits, logits, (size_t)c->schedule->n_vocab * sizeof *logits);
    c->has_prompt = true;
}

static inline enum status run_made(void *arg, const struct place *p, const struct made *m,
                                   struct err *e)
{
    struct schedule_client_state *c = arg;
    uint64_t *hash = &c->seen->hash[p->request.number];
    (void)e;
    seen_bytes(hash, &m->token, sizeof m->token);
    seen_bytes(hash, m->logits, (size_t)c->schedule->n_vocab * sizeof *m->logits);
    seen_bytes(hash, &m->log_sum, sizeof m->log_sum);
    seen_bytes(hash, m->ready.data, m->ready.len);
    return STATUS_OK;
}

static inline enum status run_ended(void *arg, const struct place *p, enum text_end end,
                                    struct text rest, struct err *e)
{
    struct schedule_client_state *c = arg;
    const uint64_t i = p->request.number;
    (void)e;
    seen_bytes(&c->seen->hash[i], rest.data, rest.len);
    c->seen->n_made[i] = p->n_made;
    c->seen->end[i] = end;
    return STATUS_OK;
}

static inline enum status run_failed(void *arg, const struct place *p, const struct err *why,
                                     struct err *e)
{
    struct schedule_client_state *c = arg;
    (void)e;
    seen_bytes(&c->seen->hash[p->request.number], why->text, strlen(why->text));
    c->seen->n_made[p->request.number] = p->n_made;
    c->seen->end[p->request.number] = END_ABANDONED;
    return STATUS_OK;
}

static inline enum status run_round_end(void *arg, bool *stop, struct err *e)
{
    (void)arg;
    (void)stop;
    (void)e;
    return STATUS_OK;
}

static inline bool run_stop(void *arg)
{
    (void)arg;
    return false;
}

static const struct schedule_client run_client = {run_next,   run_prefilled, run_made, run_ended,
                                                  run_failed, run_round_end, run_stop};

/* Everything of a run; closed in every case. */
struct schedule_run {
    struct pool *pool;
    struct session *session, *guesses;
    struct sampler *sampler;
    struct drafter drafter;
    struct schedule schedule;
    struct schedule_client_state client;
};

static inline enum status open_drafter(struct schedule_run *r, const struct schedule_texts *t,
                                       const struct schedule_ways *w, struct err *e)
{
    struct session_params p = {.n_sequences = w->n_places, .kv_storage = t->kv_storage};
    r->drafter = (struct drafter){.sampler = r->sampler,
                                  .pool = r->pool,
                                  .n_places = w->n_places,
                                  .n_vocab = t->model->config.n_vocab,
                                  .cap = t->n_ctx,
                                  .end = t->ignore_eos ? -1 : tokenizer_eos(t->tokenizer),
                                  .cost = 0.2,
                                  .pace = {.most = w->draft_n, .fixed = w->fixed}};
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
    const struct sampler_sizes sizes = {t->model->config.n_vocab, t->n_ctx, 2 * w->n_places,
                                        w->n_threads};
    const struct session_params p = {.n_sequences = w->n_places,
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
                                    .n_places = w->n_places,
                                    .n_vocab = t->model->config.n_vocab,
                                    .ignore_eos = t->ignore_eos,
                                    .wants_logprobs = true,
                                    .shifts = t->shifts,
                                    .n_keep = t->n_keep,
                                    .cap_rounds = 16,
                                    .client = w->client ? w->client : &run_client,
                                    .arg = &r->client};
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

/* Decodes all texts one way. */
static inline enum status run_schedule(const struct schedule_texts *t,
                                       const struct schedule_ways *w, struct schedule_seen *seen,
                                       struct err *e)
{
    struct schedule_run r = {.pool = NULL};
    *seen = (struct schedule_seen){.n_drafted = 0};
    r.client = (struct schedule_client_state){.texts = t, .seen = seen, .schedule = &r.schedule};
    r.client.prompt_logits = malloc((size_t)t->model->config.n_vocab * sizeof(float));
    enum status s = r.client.prompt_logits ? open_run(&r, t, w, e) : STATUS_NO_MEMORY;
    if (s == STATUS_OK)
        s = schedule_run(&r.schedule, e);
    seen->n_drafted = r.drafter.n_drafted;
    seen->n_right = r.drafter.n_right;
    seen->n_steps = r.schedule.times.n_steps;
    seen->n_decoded = r.schedule.times.n_decoded;
    seen->n_shifts = r.schedule.times.n_shifts;
    close_run(&r);
    free(r.client.prompt_logits);
    return s;
}

/* Whether two runs gave the client the same. */
static inline bool same_texts(const struct schedule_seen *a, const struct schedule_seen *b, int n)
{
    const size_t count = (size_t)n;
    return memcmp(a->hash, b->hash, count * sizeof *a->hash) == 0 &&
           memcmp(a->n_made, b->n_made, count * sizeof *a->n_made) == 0 &&
           memcmp(a->end, b->end, count * sizeof *a->end) == 0;
}

#endif
