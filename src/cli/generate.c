#include "cli/generate.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/figures.h"
#include "base/stats.h"
#include "cli/common.h"
#include "cli/input.h"
#include "cli/signals.h"
#include "formats/json_write.h"
#include "show/paragraph.h"
#include "show/report.h"

/* Memory that a long text may leave to those after it. */
#define MOST_TEXT_KEPT ((size_t)1 << 20)

/* How long to wait for a line before looking whether all is over. */
#define WAIT_MS 100

/* --- memory ---------------------------------------------------------------------------------- */

/* Counts or takes the buffers, see base/mem.h. */
static void take_generation(struct generation *g, struct arena *a)
{
    const struct schedule *s = &g->schedule;
    const int n_shaded = g->ink == HEATMAP_PLAIN ? 0 : s->n_slots;
    size_t held = 0; /* bytes of a text that are on their way at most: see text/stream.h */
    for (int i = 0; i < g->o->stops.n; i++)
        held = g->stops[i].len > held ? g->stops[i].len : held;
    held += 3 + tokenizer_longest(s->tokenizer);
    g->texts = arena_take(a, (uint64_t)s->n_slots, sizeof *g->texts);
    for (int i = 0; i < n_shaded; i++) {
        unsigned char *levels = arena_take(a, held, 1);
        if (g->texts)
            g->texts[i].shaded = (struct shaded_text){.levels = levels, .cap = held};
    }
    g->prompt_logits = arena_take(a, g->shares ? (uint64_t)s->n_vocab : 0, sizeof(float));
    g->top = arena_take(a, (uint64_t)g->most_top, sizeof *g->top);
}

void generation_set_records(struct generation *g, int n_top)
{
    g->n_top = n_top < g->most_top ? n_top : g->most_top;
    g->schedule.wants_logprobs = g->o->prompts || g->n_top > 0 || g->ink != HEATMAP_PLAIN;
}

enum status generation_create(struct generation *g, struct err *e)
{
    const uint64_t rounds = (uint64_t)g->o->n * (uint64_t)g->n_samples; /* at most, if known */
    take_generation(g, &g->arena);
    TRY(arena_allocate(&g->arena, "the generation's buffers", e));
    take_generation(g, &g->arena);
    TRY(turns_create(&g->turns, g->out, e));
    generation_set_records(g, g->o->logprobs);
    g->schedule.cap_rounds = SCHEDULE_MAX_ROUNDS;
    if (g->n_samples > 0 && rounds < SCHEDULE_MAX_ROUNDS)
        g->schedule.cap_rounds = (size_t)rounds;
    return schedule_create(&g->schedule, e);
}

void generation_free(struct generation *g)
{
    for (int i = 0; g->texts && i < g->schedule.n_slots; i++) {
        prompt_free(&g->texts[i].prompt);
        bytes_free(&g->texts[i].text);
        free(g->texts[i].tokens);
        free(g->texts[i].sampled.ids);
    }
    schedule_free(&g->schedule);
    sampler_free(g->schedule.sampler);
    draft_close(&g->draft);
    turns_free(&g->turns);
    arena_free(&g->arena);
    prompts_close(&g->prompts);
    free(g->stops);
}

/* --- records --------------------------------------------------------------------------------- */

struct likely_token {
    int id;
    struct text text;
    double logprob;
};

/* The members of one token; text that is not UTF-8 comes with its "bytes": [0-255, ...]. */
static void put_token(struct json *j, const struct tokenizer *t, int id, double logprob)
{
    static const struct report_field fields[] = {
        {"id", NULL, MEMBER(likely_token, id)},
        {"text", NULL, MEMBER(likely_token, text), .bytes = true},
        {"logprob", NULL, MEMBER(likely_token, logprob)},
    };
    const struct likely_token token = {id, tokenizer_bytes(t, id), logprob};
    report_members(j, fields, REPORT_LENGTH(fields), &token);
}

/* A JSON line of --logprobs: one token, and the likeliest ones in its place. */
static void print_token(struct generation *g, const struct event *event)
{
    const struct slot *p = event->slot;
    const struct tokenizer *t = g->schedule.tokenizer;
    struct json j;
    json_init(&j, turns_output(&g->turns, p->request.number), 0);
    json_begin_object(&j, NULL);
    json_u64(&j, "sample", p->request.number);
    json_u64(&j, "position", g->n_before + g->job->n_tokens + (uint64_t)p->n_sampled - 1);
    put_token(&j, t, event->token, (double)event->logits[event->token] - event->log_sum);
    json_begin_array(&j, "top");
    score_top(event->logits, g->schedule.n_vocab, event->log_sum, g->n_top, g->top);
    for (int i = 0; i < g->n_top; i++) {
        json_begin_object(&j, NULL);
        put_token(&j, t, g->top[i].id, g->top[i].logprob);
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
    output_puts(j.out, "\n");
}

/* A JSON line of --prompts: the text that has ended, or (event NULL) why there is none. */
static void print_line(struct generation *g, const struct generated *text,
                       const struct event *event)
{
    static const char *const end_names[] = {
        [END_LENGTH] = "length", [END_STOP] = "stop", [END_EOS] = "eos", [END_CONTEXT] = "context"};
    const struct prompt *prompt = &text->prompt;
    struct json j;
    json_init(&j, turns_output(&g->turns, prompt->index), 0);
    json_begin_object(&j, NULL);
    json_u64(&j, "index", prompt->index);
    if (prompt->id_kind == PROMPT_ID_STRING)
        json_text(&j, "id", prompt->id);
    else if (prompt->id_kind == PROMPT_ID_NUMBER)
        json_literal(&j, "id", prompt->id);
    else
        json_null(&j, "id");
    if (prompt->has_text)
        json_text(&j, "prompt", prompt->text);
    if (event) {
        const struct slot *p = event->slot;
        const struct text made = bytes_text(&text->text);
        const bool whole = prompt->text.len == 0;
        const size_t added = whole ? tokenizer_added(g->schedule.tokenizer, made) : 0;
        json_text(&j, "text", (struct text){made.data + added, made.len - added});
        json_begin_array(&j, "tokens");
        for (int i = 0; i < p->n_sampled; i++)
            json_int(&j, NULL, text->sampled.ids[i]);
        json_end(&j);
        json_int(&j, "n", p->n_sampled);
        json_string(&j, "finish", end_names[event->end]);
        json_u64(&j, "seed", p->request.seed);
        json_double(&j, "logprob", p->logprob);
        if (text->cut > 0)
            json_u64(&j, "cut", text->cut);
        g->n_done++;
        g->n_cut += text->cut > 0;
    } else {
        json_string(&j, "error", prompt->error.text);
        g->n_refused++;
    }
    json_end(&j);
    output_puts(j.out, "\n");
    turns_close(&g->turns, prompt->index);
}

/* --- beginnings ------------------------------------------------------------------------------ */

/* The next sample begins; *none: there is none yet, or no more. The first takes the prompt, for
 * which the others wait if they share it. */
static enum status begin_sample(struct generation *g, struct slot *p, bool *none, struct err *e)
{
    struct generated *text = &g->texts[p->sequence];
    const struct request request = {.number = g->n_begun,
                                    .tokens = g->job->tokens,
                                    .n_tokens = (int)g->job->n_tokens,
                                    .goes_on = g->goes_on,
                                    .logits = g->has_prompt ? g->prompt_logits : NULL,
                                    .n = g->o->n,
                                    .seed = g->job->seed,
                                    .stream = g->n_begun,
                                    .stops = g->stops,
                                    .n_stops = g->o->stops.n};
    *none = g->n_begun == (uint64_t)g->n_samples || (g->n_begun > 0 && g->shares && !g->has_prompt);
    if (*none)
        return STATUS_OK;
    if (g->n_top == 0) {
        struct output *out = turns_output(&g->turns, g->n_begun);
        if (g->n_begun > 0 && !g->goes_on)
            output_puts(out, "---\n");
        if (g->echo)
            printable_put(out, g->prompt);
        output_flush(out);
    }
    text->begun = false;
    text->shaded.len = 0;
    g->n_begun++;
    return schedule_begin(&g->schedule, p, &request, e);
}

/* Makes a line of --prompts a request. STATUS_USAGE: it cannot be one. */
static enum status fill_request(struct generation *g, struct generated *text,
                                struct request *request, struct err *e)
{
    const struct prompt *prompt = &text->prompt;
    const struct tokenizer *t = g->schedule.tokenizer;
    const enum truncation truncate = (enum truncation)g->o->truncate;
    const int cap = session_cap(g->schedule.session);
    size_t n;
    free(text->tokens);
    text->tokens = NULL;
    TRY(tokens_of_prompt(t, prompt->text, truncate ? INT_MAX : cap, &text->tokens, &n, e));
    text->cut = tokens_truncate(t, truncate, cap, prompt->n, text->tokens, &n);
    TRY(check_prompt_length(n, cap, g->job->checkpoint.model->config.n_ctx, e));
    *request = (struct request){.number = prompt->index,
                                .tokens = text->tokens,
                                .n_tokens = (int)n,
                                .n = prompt->n,
                                .seed = prompt->seed,
                                .stops = prompt->stops,
                                .n_stops = prompt->n_stops};
    return STATUS_OK;
}

/* The text of the next line begins, or its record says why it cannot; *none: there is no line, or
 * none yet while other texts are to be gone on with. */
static enum status begin_line(struct generation *g, struct slot *p, bool *none, struct err *e)
{
    struct generated *text = &g->texts[p->sequence];
    const bool idle = g->schedule.n_busy == 0;
    struct request request;
    enum lines_state state;
    g->reading =
        prompts_next(&g->prompts, idle ? WAIT_MS : 0, &state, &text->prompt, &g->read_error);
    g->read = g->reading != STATUS_OK || state == LINES_END;
    *none = g->read || (state == LINES_LATER && !idle);
    if (g->read || state == LINES_LATER)
        return STATUS_OK;
    g->n_begun++;
    if (!text->prompt.refused) {
        if (text->text.cap > MOST_TEXT_KEPT)
            bytes_free(&text->text);
        text->text.len = 0;
        text->sampled.len = 0;
        const enum status s = fill_request(g, text, &request, e);
        if (s == STATUS_OK)
            return schedule_begin(&g->schedule, p, &request, e);
        if (s != STATUS_USAGE)
            return s;
        prompt_refuse(&text->prompt, e);
    }
    print_line(g, text, NULL);
    return STATUS_OK;
}

/* A round begins: texts are begun as long as there are slots for them, unless all is to end. */
static enum status begin_texts(struct generation *g, struct err *e)
{
    struct schedule *s = &g->schedule;
    struct slot *p;
    progress_show_texts(&g->job->progress, g->n_done + g->n_refused, g->n_begun, s->times.n_sampled,
                        lines_share(&g->prompts.lines));
    TRY(turns_check(&g->turns, e));
    for (bool none = g->read; output_flush(g->out) && !none && !signals_interrupted() &&
                              turns_has_room(&g->turns, g->n_begun) && (p = schedule_vacant(s));)
        TRY(g->o->prompts ? begin_line(g, p, &none, e) : begin_sample(g, p, &none, e));
    s->interrupted = !g->out->failed && signals_interrupted();
    if (g->out->failed || s->interrupted)
        schedule_end(s, STATUS_OK);
    return STATUS_OK;
}

/* --- tokens and ends ------------------------------------------------------------------------- */

/* Text goes out; where it is the beginning of all, without the space that a tokenizer puts there.
 */
static void print_text(struct generation *g, const struct event *event)
{
    const struct slot *p = event->slot;
    const struct text ready = event->ready;
    struct generated *text = &g->texts[p->sequence];
    if (ready.len == 0)
        return;
    const bool first = !text->begun && g->prompt.len == 0 && !g->goes_on;
    const size_t added = first ? tokenizer_added(g->schedule.tokenizer, ready) : 0;
    struct output *out = turns_output(&g->turns, p->request.number);
    text->begun = true;
    if (g->ink == HEATMAP_PLAIN)
        printable_put(out, (struct text){ready.data + added, ready.len - added});
    else
        shaded_text_put(&text->shaded, out, g->ink, ready, added);
}

/* The bytes of a line's text are kept until it is complete. */
static enum status keep_text(struct generated *text, struct text ready, struct err *e)
{
    return bytes_put(&text->text, ready) ? STATUS_OK
                                         : err_no_memory(e, "a text", text->text.len + ready.len);
}

/* A text has a token more: it is kept, recorded or printed, whichever its form is. */
static enum status add_token(struct generation *g, const struct event *event, struct err *e)
{
    const struct tokenizer *t = g->schedule.tokenizer;
    struct generated *text = &g->texts[event->slot->sequence];
    if (g->o->prompts) {
        TRY(id_list_add(&text->sampled, event->token, e));
        return keep_text(text, event->ready, e);
    }
    if (g->n_top > 0) {
        print_token(g, event);
        return STATUS_OK;
    }
    if (g->ink != HEATMAP_PLAIN && !tokenizer_is_special(t, event->token)) {
        const struct heatmap_scale scale = heatmap_scale(1, false);
        const double probability = exp((double)event->logits[event->token] - event->log_sum);
        shaded_text_push(&text->shaded, tokenizer_bytes(t, event->token).len,
                         heatmap_level(&scale, probability));
    }
    print_text(g, event);
    return STATUS_OK;
}

/* Of texts that are abandoned only a sample that was being printed, the last to end, leaves what it
 * has. */
static enum status end_text(struct generation *g, const struct event *event, struct err *e)
{
    const struct slot *p = event->slot;
    struct generated *text = &g->texts[p->sequence];
    const uint64_t number = p->request.number;
    const bool abandoned = event->end == END_ABANDONED, line = g->o->prompts != NULL;
    enum status s = STATUS_OK;
    if (line && !abandoned)
        s = keep_text(text, event->ready, e);
    if (s != STATUS_OK || (abandoned && (line || number != g->turns.front))) {
        turns_drop(&g->turns, number);
        return s;
    }
    if (line) {
        print_line(g, text, event);
        return STATUS_OK;
    }
    if (g->n_top == 0) {
        print_text(g, event);
        output_puts(turns_output(&g->turns, number), "\n");
    }
    turns_close(&g->turns, number);
    if (abandoned || number >= g->last) {
        g->last = number;
        g->end = event->end;
        g->last_sampled = p->n_sampled;
    }
    return STATUS_OK;
}

enum status generation_run(struct generation *g, struct err *e)
{
    struct schedule *s = &g->schedule;
    for (struct event event; schedule_next(s, &event, e);) {
        enum status status = STATUS_OK;
        if (g->shares && !g->has_prompt && event.logits) { /* the first event of the first text */
            memcpy(g->prompt_logits, event.logits, (size_t)s->n_vocab * sizeof *event.logits);
            g->has_prompt = true;
        }
        switch (event.kind) {
        case EVENT_ROUND:
            status = begin_texts(g, e);
            break;
        case EVENT_SAMPLED:
            status = add_token(g, &event, e);
            break;
        case EVENT_ENDED:
            status = end_text(g, &event, e);
            break;
        case EVENT_FAILED:
            if (!g->o->prompts) {
                status = STATUS_FAILED;
                break;
            }
            prompt_refuse(&g->texts[event.slot->sequence].prompt, e);
            print_line(g, &g->texts[event.slot->sequence], NULL);
            break;
        }
        if (status != STATUS_OK)
            schedule_end(s, status);
    }
    progress_end(&g->job->progress);
    output_flush(g->out);
    if (s->status != STATUS_OK || g->reading == STATUS_OK)
        return s->status;
    *e = g->read_error;
    return g->reading;
}

/* --- report ---------------------------------------------------------------------------------- */

void generation_say_end(const struct generation *g)
{
    const struct common_options *common = &g->o->common;
    const int cap = session_cap(g->schedule.session);
    const char *what = g->end == END_EOS         ? "end of text"
                       : g->end == END_STOP      ? "stop text found"
                       : g->schedule.interrupted ? "interrupted"
                                                 : NULL;
    if (g->out->failed)
        return;
    if (g->end == END_CONTEXT)
        say(common, "context full (%d token%s): stopped after %d of %d; --shift goes on", cap,
            plural((uint64_t)cap), g->last_sampled, g->o->n);
    else if (what)
        say(common, "%s after %d token%s", what, g->last_sampled,
            plural((uint64_t)g->last_sampled));
}

static double rate(uint64_t n, uint64_t ns)
{
    return ns ? (double)n * 1e9 / (double)ns : 0;
}

static double percentile_us(const struct schedule_times *t, double p)
{
    return (double)stats_percentile(t->rounds, t->n_rounds, p) / 1000;
}

/* A step makes a token for each of its texts, and more where they were drafted. */
static void report_schedule(struct schedule *s, uint64_t start_ns)
{
    struct schedule_times *t = &s->times;
    char times[160] = "";
    if (t->first_token_at)
        notice_summary("first token  %s after start",
                       figure_duration(t->first_token_at - start_ns).text);
    if (t->n_rounds > 0) {
        stats_sort(t->rounds, t->n_rounds);
        snprintf(times, sizeof times, ", %s tokens/s; p50 %.0f µs, p99 %.0f µs per %s",
                 figure_rate(rate(t->n_decoded, t->decode_ns)).text, percentile_us(t, 0.5),
                 percentile_us(t, 0.99), s->n_slots > 1 || s->drafter ? "step" : "token");
    }
    notice_summary("decoded      %" PRIu64 " token%s%s", t->n_sampled, plural(t->n_sampled), times);
    if (t->n_shifts > 0)
        notice_summary("shifts       %" PRIu64 ", %" PRIu64 " tokens fed again", t->n_shifts,
                       t->n_fed_again);
    if (s->n_slots > 1)
        notice_summary("batch        %d sequences", s->n_slots);
}

void generation_report(struct generation *g)
{
    const struct schedule_times *t = &g->schedule.times;
    const uint64_t n = t->n_prefilled - t->n_fed_again;
    char prompts[128] = "prompt       ", cut[32] = "";
    struct rusage usage;
    if (g->out->failed) /* and program_run says why, if that is to be said */
        return;
    if (g->o->prompts && g->schedule.interrupted)
        say(&g->o->common, "interrupted after %" PRIu64 " prompt%s", g->n_done, plural(g->n_done));
    if (g->o->common.quiet)
        return;
    if (g->n_cut > 0)
        snprintf(cut, sizeof cut, ", %" PRIu64 " cut", g->n_cut);
    if (g->o->prompts)
        snprintf(prompts, sizeof prompts, "prompts      %" PRIu64 " done, %" PRIu64 " error%s%s; ",
                 g->n_done, g->n_refused, plural(g->n_refused), cut);
    notice_summary("%s%" PRIu64 " token%s, %s tokens/s", prompts, n, plural(n),
                   figure_rate(rate(t->n_prefilled, t->prefill_ns)).text);
    report_schedule(&g->schedule, g->job->start_ns);
    notice_summary("seed         %" PRIu64, g->job->seed);
    getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
    const double peak = (double)usage.ru_maxrss;
#else
    const double peak = (double)usage.ru_maxrss * 1024;
#endif
    notice_summary("peak memory  %s", figure_bytes(peak).text);
    draft_report(&g->schedule, g->n_top > 0);
}
