#include "engine/own_text.h"

#include "engine/schedule.h"

/* Texts that are written side by side, and bytes of their caches, at most. */
#define MOST_SLOTS 32
#define MOST_CACHE ((size_t)1 << 30)

static enum status write_texts(const struct own_text *t, struct schedule *s, int32_t *tokens,
                               struct err *e)
{
    const uint64_t all = (uint64_t)t->n * t->length;
    int32_t first = tokenizer_bos(t->tokenizer); /* the token that a text begins with */
    int32_t *ids;
    size_t n;
    int begun = 0;
    if (first < 0) {
        TRY(tokenizer_encode(t->tokenizer, text_of("\n"), false, &ids, &n, e));
        first = n > 0 ? ids[n - 1] : 0;
        free(ids);
    }
    TRY(schedule_create(s, e));
    while (begun < t->n || s->n_busy > 0) {
        callbacks_progress(&t->callbacks, s->times.n_sampled, all);
        if (callbacks_stop(&t->callbacks))
            return STATUS_INTERRUPTED;
        for (struct slot *p; begun < t->n && (p = schedule_vacant(s)); begun++) {
            const struct request r = {.number = begun,
                                      .tokens = &first,
                                      .n_tokens = 1,
                                      .n = t->length - 1,
                                      .seed = t->seed,
                                      .stream = begun};
            TRY(schedule_begin(s, p, &r, e));
        }
        TRY(schedule_round(s, e));
        for (struct slot *p = s->slots; p < s->slots + s->n_slots; p++) {
            if (p->state != SLOT_ENDED)
                continue;
            if (p->end == END_FAILED)
                return schedule_failure(s, p, e);
            memcpy(tokens + p->request.number * t->length, p->text, t->length * sizeof *tokens);
            schedule_finish(s, p);
        }
    }
    return STATUS_OK;
}

static enum status write_cached(const struct own_text *t, enum cache_type cached, int32_t *tokens,
                                struct err *e)
{
    const int n_vocab = t->model->config.n_vocab, n_threads = pool_n_threads(t->pool);
    struct session_params params = {.n_sequences = MIN(t->n, MOST_SLOTS),
                                    .n_ctx = t->length,
                                    .kv_type = kv_type_of(cached),
                                    .kernels = t->kernels};
    struct session_memory memory;
    TRY(session_plan(t->model, &params, n_threads, &memory, e));
    for (; memory.kv_bytes > MOST_CACHE && params.n_sequences > 1; memory.kv_bytes /= 2)
        params.n_sequences /= 2;
    const int n_slots = params.n_sequences;
    const struct sampler_params plain = {.temperature = 1, .top_p = 1, .repeat_penalty = 1};
    const struct sampler_sizes sizes = {n_vocab, t->length, n_slots, n_threads};
    struct schedule s = {.pool = t->pool,
                         .tokenizer = t->tokenizer,
                         .n_slots = n_slots,
                         .n_vocab = n_vocab,
                         .ignore_eos = true};
    enum status status = session_create(t->model, &params, t->pool, &s.session, e);
    if (status == STATUS_OK)
        status = sampler_create(&plain, &sizes, &s.sampler, e);
    if (status == STATUS_OK)
        status = write_texts(t, &s, tokens, e);
    schedule_free(&s);
    sampler_free(s.sampler);
    session_free(s.session);
    return status;
}

enum status own_text_write(const struct own_text *t, int32_t *tokens, struct err *e)
{
    const enum status s = write_cached(t, CACHE_F16, tokens, e);
    /* Logits that are not finite may come from keys and values that are too large for F16. */
    return s == STATUS_FAILED ? write_cached(t, CACHE_F32, tokens, e) : s;
}
