#include "cli/generate.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/input.h"
#include "cli/signals.h"
#include "cli/token_record.h"
#include "engine/logits.h"
#include "show/json.h"

/* Tokens that one sample can have at most: the last one need not be fed. */
static int sample_room(const struct generation *g)
{
    const int room = session_cap(g->session) - g->n_tokens + 1;
    return g->n < room ? g->n : room;
}

enum status generate_create(struct generation *g, struct err *e)
{
    const int room = sample_room(g);
    const uint64_t steps = (uint64_t)(room > 1 ? room - 1 : 0) * (uint64_t)g->n_samples;
    g->cap_times = steps < GENERATE_MAX_TIMES ? (size_t)steps : GENERATE_MAX_TIMES;
    const size_t logits_bytes = (size_t)g->n_vocab * sizeof *g->prompt_logits;
    const size_t top_bytes = (size_t)g->n_top * sizeof *g->top;
    const size_t times_bytes = g->cap_times * sizeof *g->times;
    g->prompt_logits = malloc(logits_bytes);
    g->top = malloc(top_bytes + 1);
    g->times = malloc(times_bytes + 1);
    if (!g->prompt_logits || !g->top || !g->times)
        return err_no_memory(e, "the generation's buffers", logits_bytes + top_bytes + times_bytes);
    return stream_create(&g->stream, g->stops, g->n_stops, longest_token(g->tokenizer), e);
}

void generate_free(struct generation *g)
{
    stream_free(&g->stream);
    sampler_free(g->sampler);
    free(g->prompt_logits);
    free(g->top);
    free(g->times);
}

/* Feeds the prompt block by block, so that an interrupt is noticed between blocks. */
static enum status feed_prompt(struct generation *g, struct err *e)
{
    const uint64_t start = clock_ns();
    const int block = session_block(g->session);
    while (g->n_prefilled < g->n_tokens && !signals_interrupted()) {
        const int left = g->n_tokens - g->n_prefilled;
        const int n = left < block ? left : block;
        TRY(session_feed(g->session, 0, g->tokens + g->n_prefilled, n, NULL, e));
        g->n_prefilled += n;
    }
    g->prefill_ns = clock_ns() - start;
    if (g->n_prefilled == g->n_tokens)
        memcpy(g->prompt_logits, session_logits(g->session),
               (size_t)g->n_vocab * sizeof *g->prompt_logits);
    return STATUS_OK;
}

static enum status print_record(struct generation *g, int sample, int token, const float *logits,
                                struct err *e)
{
    double log_sum = 0;
    TRY(logits_log_sum(logits, g->n_vocab, &log_sum, e));
    score_top(logits, g->n_vocab, log_sum, g->n_top, g->top);
    struct json j;
    json_init(&j, g->out, 0);
    const struct token_record record = {.sample = sample,
                                        .position = g->n_tokens + g->last_made,
                                        .id = token,
                                        .predicted = true,
                                        .logprob = (double)logits[token] - log_sum,
                                        .top = g->top,
                                        .n_top = g->n_top,
                                        .with_top = true};
    token_record_json(&j, g->tokenizer, &record);
    output_puts(g->out, "\n");
    return STATUS_OK;
}

/* Sends a token on its way: as a record, or as text if it is text. */
static enum status emit(struct generation *g, int sample, int token, const float *logits,
                        struct err *e)
{
    enum status s = STATUS_OK;
    struct text ready = {NULL, 0};
    if (!tokenizer_is_special(g->tokenizer, token))
        ready = stream_push(&g->stream, tokenizer_bytes(g->tokenizer, token));
    if (g->records)
        s = print_record(g, sample, token, logits, e);
    else
        output_put(g->out, ready);
    if (!output_flush(g->out))
        g->end = END_OUTPUT;
    else if (g->stream.stopped)
        g->end = END_STOP;
    g->last_made++;
    g->n_made++;
    return s;
}

static void note_time(struct generation *g, uint64_t ns)
{
    g->step_ns += ns;
    g->n_steps++;
    if (g->n_times < g->cap_times)
        g->times[g->n_times++] = ns;
}

/* One sample's tokens; the session holds the prompt. g->end says why it ended. */
static enum status make_tokens(struct generation *g, int sample, struct err *e)
{
    const int room = sample_room(g);
    const int eos = g->ignore_eos ? -1 : tokenizer_eos(g->tokenizer);
    const float *logits = g->prompt_logits;
    uint64_t before = 0;
    g->end = room < g->n ? END_CONTEXT : END_COUNT;
    while (g->last_made < room) {
        if (signals_interrupted()) {
            g->end = END_INTERRUPTED;
            break;
        }
        int token;
        TRY(sampler_pick(g->sampler, 0, 0, logits, &token, e));
        if (token == eos) {
            g->end = END_EOS;
            break;
        }
        const enum status s = emit(g, sample, token, logits, e);
        const uint64_t now = clock_ns();
        if (!g->first_token_at)
            g->first_token_at = now;
        if (before)
            note_time(g, now - before);
        if (s != STATUS_OK || g->end == END_OUTPUT || g->end == END_STOP)
            return s;
        if (g->last_made == room)
            break;
        before = now;
        sampler_accept(g->sampler, 0, token);
        const int32_t next = token;
        TRY(session_feed(g->session, 0, &next, 1, NULL, e));
        logits = session_logits(g->session);
    }
    return STATUS_OK;
}

static enum status make_sample(struct generation *g, int sample, struct err *e)
{
    session_rewind(g->session, 0, g->n_tokens);
    sampler_reset(g->sampler, 0, g->seed, (uint64_t)sample);
    for (int i = 0; i < g->n_tokens; i++)
        sampler_accept(g->sampler, 0, g->tokens[i]);
    g->last_made = 0;
    const enum status s = make_tokens(g, sample, e);
    const struct text rest = stream_finish(&g->stream);
    if (!g->records) {
        output_put(g->out, rest);
        output_puts(g->out, "\n");
        output_flush(g->out);
    }
    return s;
}

static void begin_sample(struct generation *g, int sample)
{
    if (g->records)
        return;
    if (sample > 0)
        output_puts(g->out, "---\n");
    if (g->echo)
        output_put(g->out, g->prompt);
    output_flush(g->out);
}

enum status generate_run(struct generation *g, struct err *e)
{
    begin_sample(g, 0);
    TRY(feed_prompt(g, e));
    if (g->n_prefilled < g->n_tokens) {
        g->end = END_INTERRUPTED;
        if (!g->records)
            output_puts(g->out, "\n");
        return STATUS_OK;
    }
    for (int sample = 0; sample < g->n_samples; sample++) {
        if (sample > 0)
            begin_sample(g, sample);
        TRY(make_sample(g, sample, e));
        if (g->end == END_INTERRUPTED || g->end == END_OUTPUT)
            break;
    }
    return STATUS_OK;
}
