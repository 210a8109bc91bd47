#include "cli/generate.h"

#include "base/limits.h"
#include "base/rng.h"
#include "cli/signals.h"
#include "formats/json_write.h"
#include "show/heatmap.h"

/* --- texts in order -------------------------------------------------------------------------- */

static void forget(struct text_queue *t, struct bytes *held)
{
    t->n_held -= held->len;
    held->len = 0;
}

static bool hold_bytes(struct output *o, const char *bytes, size_t len)
{
    struct text_queue *t = (struct text_queue *)o;
    const bool held = bytes_put(t->to, text_span(bytes, len));
    if (held)
        t->n_held += len;
    else
        forget(t, t->to);
    return held;
}

/* Where the text of this number is written, until pass_on. */
static struct output *output_of(struct generation *g, uint64_t number)
{
    g->queue.to = &g->queue.ring[number % TEXTS_AHEAD].held;
    return &g->queue.holder;
}

/* What was written goes out if all texts before it are complete; once it is complete, those that
 * waited for it follow. */
static void pass_on(struct generation *g, uint64_t number, bool complete)
{
    struct text_queue *t = &g->queue;
    output_flush(&t->holder);
    t->ring[number % TEXTS_AHEAD].complete = complete;
    for (;; t->front++) {
        struct queued_text *first = &t->ring[t->front % TEXTS_AHEAD];
        output_put(g->out, bytes_text(&first->held));
        forget(t, &first->held);
        if (!first->complete)
            return;
        bytes_free(&first->held);
        first->complete = false;
    }
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Counts or takes the buffers, see base/mem.h. */
static void take_generation(struct generation *g, struct arena *a)
{
    const struct schedule *s = &g->schedule;
    g->stops = arena_take(a, g->o->stops.n, sizeof *g->stops);
    g->texts = arena_take(a, s->n_slots, sizeof *g->texts);
    g->prompt_logits = arena_take(a, g->shares ? s->n_vocab : 0, sizeof(float));
    g->top = arena_take(a, g->most_top, sizeof *g->top);
    g->queue.ring = arena_take(a, TEXTS_AHEAD, sizeof *g->queue.ring);
}

void generation_set_records(struct generation *g, int n_top)
{
    g->n_top = MIN(n_top, g->most_top);
    g->schedule.wants_logprobs = g->o->prompts || g->n_top > 0 || g->ink != HEATMAP_PLAIN;
}

enum status generation_create(struct generation *g, struct err *e)
{
    const uint64_t rounds = (uint64_t)g->o->n * g->n_samples; /* at most, if known */
    take_generation(g, &g->arena);
    g->n = g->o->n;
    TRY(arena_allocate(&g->arena, "the generation's buffers", e));
    take_generation(g, &g->arena);
    output_init(&g->queue.holder, hold_bytes);
    g->queue.holder.terminal = g->out->terminal;
    for (int i = 0; i < g->o->stops.n; i++)
        g->stops[i] = text_of(g->o->stops.items[i]);
    g->prompts.stops = g->stops;
    generation_set_records(g, g->o->logprobs);
    g->schedule.cap_rounds =
        g->n_samples > 0 && rounds < SCHEDULE_MAX_ROUNDS ? rounds : SCHEDULE_MAX_ROUNDS;
    return schedule_create(&g->schedule, e);
}

void generation_free(struct generation *g)
{
    if (g->texts)
        for (int i = 0; i < g->schedule.n_slots; i++) {
            prompt_free(&g->texts[i].prompt);
            bytes_free(&g->texts[i].text);
            free(g->texts[i].tokens);
            free(g->texts[i].sampled.ids);
        }
    if (g->queue.ring)
        for (int i = 0; i < TEXTS_AHEAD; i++)
            bytes_free(&g->queue.ring[i].held);
    schedule_free(&g->schedule);
    sampler_free(g->schedule.sampler);
    arena_free(&g->arena);
    prompts_close(&g->prompts);
}

/* --- records --------------------------------------------------------------------------------- */

struct likely_token {
    int id;
    struct text text;
    double logprob;
};

/* Text that is not UTF-8 comes with its "bytes": [0-255, ...]. */
static void put_token(const struct generation *g, struct json *j, int id, double logprob)
{
    static const struct report_field fields[] = {
        {"id", NULL, MEMBER(likely_token, id)},
        {"text", NULL, MEMBER(likely_token, text), .bytes = true},
        {"logprob", NULL, MEMBER(likely_token, logprob)},
    };
    const struct likely_token token = {id, tokenizer_bytes(g->schedule.tokenizer, id), logprob};
    report_members(j, fields, LENGTH(fields), 0, &token);
}

/* A JSON line of --logprobs: one token, and the likeliest ones in its place. */
static void print_token(struct generation *g, const struct event *event)
{
    const struct slot *p = event->slot;
    struct json j;
    json_init(&j, output_of(g, p->request.number), 0);
    json_begin_object(&j, NULL);
    json_u64(&j, "sample", p->request.number);
    json_u64(&j, "position", g->n_before + g->job->n_tokens + p->n_sampled - 1);
    put_token(g, &j, event->token, (double)event->logits[event->token] - event->log_sum);
    json_begin_array(&j, "top");
    score_top(event->logits, g->schedule.n_vocab, event->log_sum, g->n_top, g->top);
    for (int i = 0; i < g->n_top; i++) {
        const struct token_score *likely = &g->top[i];
        json_begin_object(&j, NULL);
        put_token(g, &j, likely->id, likely->logprob);
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
    output_puts(j.out, "\n");
}

static bool put_quoted(struct bytes *row, struct text token)
{
    bool room = bytes_put(row, text_of("'"));
    while (token.len > 0)
        room &= bytes_put(row, text_of(printable_next(&token).text));
    return room && bytes_put(row, text_of("'"));
}

/* The same for somebody at a session's terminal: 'token'  log-probability  'likely' -1.234, ... */
static enum status print_token_row(struct generation *g, const struct event *event, struct err *e)
{
    const struct tokenizer *t = g->schedule.tokenizer;
    struct output *out = output_of(g, event->slot->request.number);
    struct bytes token = {.len = 0}, likely = {.len = 0};
    bool room = put_quoted(&token, tokenizer_bytes(t, event->token));
    score_top(event->logits, g->schedule.n_vocab, event->log_sum, g->n_top, g->top);
    for (int i = 0; i < g->n_top; i++) {
        char tail[32];
        chars_printf(tail, " %.3f%s", g->top[i].logprob, i + 1 < g->n_top ? ", " : "");
        room &= put_quoted(&likely, tokenizer_bytes(t, g->top[i].id));
        room &= bytes_put(&likely, text_of(tail));
    }
    struct text rest = bytes_text(&likely);
    const int width = 14, indent = width + 11;
    const int gap = MAX(width - (int)text_columns(bytes_text(&token)), 0);
    output_put(out, bytes_text(&token));
    output_printf(out, "%*s %8.4f  ", gap, "",
                  (double)event->logits[event->token] - event->log_sum);
    while (rest.len > 0) {
        output_put(out, paragraph_line(&rest, MAX(g->out->columns - indent, 30), true));
        output_printf(out, "\n%*s", rest.len > 0 ? indent : 0, "");
    }
    bytes_free(&token);
    bytes_free(&likely);
    return room ? STATUS_OK : err_no_memory(e, "a row of likely tokens", likely.len);
}

/* A JSON line of --prompts: the text that has ended, or (event NULL) why there is none. */
static void print_line(struct generation *g, const struct generated *text,
                       const struct event *event)
{
    static const char *const end_names[] = {
        [END_LENGTH] = "length", [END_STOP] = "stop", [END_EOS] = "eos", [END_CONTEXT] = "context"};
    const struct prompt *prompt = &text->prompt;
    struct json j;
    json_init(&j, output_of(g, prompt->index), 0);
    json_begin_object(&j, NULL);
    json_u64(&j, "index", prompt->index);
    if (prompt->id_kind == PROMPT_ID_STRING)
        json_text(&j, "id", prompt->id);
    else
        json_literal(&j, "id", prompt->id_kind ? prompt->id : text_of("null"));
    if (prompt->has_text)
        json_text(&j, "prompt", prompt->text);
    if (event) {
        const struct slot *p = event->slot;
        struct text made = bytes_text(&text->text);
        if (prompt->text.len == 0)
            text_cut(&made, tokenizer_added(g->schedule.tokenizer, made));
        json_text(&j, "text", made);
        json_begin_array(&j, "tokens");
        for (int i = 0; i < p->n_sampled; i++)
            json_int(&j, NULL, text->sampled.ids[i]);
        json_end(&j);
        json_int(&j, "n", p->n_sampled);
        json_string(&j, "finish", end_names[event->end]);
        if (p->request.seed < RNG_EXACT_SEEDS) {
            json_u64(&j, "seed", p->request.seed);
        } else {
            char seed[24];
            chars_printf(seed, "%" PRIu64, p->request.seed);
            json_string(&j, "seed", seed);
        }
        json_double(&j, "logprob", p->logprob);
        g->n_done++;
    } else {
        json_string(&j, "error", prompt->error.text);
        g->n_refused++;
    }
    json_end(&j);
    output_puts(j.out, "\n");
    pass_on(g, prompt->index, true);
}

/* --- beginnings ------------------------------------------------------------------------------ */

/* The next sample begins, the first with the prompt. */
static enum status begin_sample(struct generation *g, struct slot *p, struct err *e)
{
    const struct request request = {.number = g->n_begun,
                                    .tokens = g->job->tokens,
                                    .n_tokens = g->job->n_tokens,
                                    .goes_on = g->goes_on,
                                    .logits = g->has_prompt ? g->prompt_logits : NULL,
                                    .n = g->n,
                                    .seed = g->job->seed,
                                    .stream = g->o->talks ? 0 : g->n_begun,
                                    .stops = g->stops,
                                    .n_stops = g->o->stops.n};
    if (g->n_top == 0) {
        struct output *out = output_of(g, g->n_begun);
        if (g->n_begun > 0 && !g->o->talks)
            output_puts(out, "---\n");
        if (g->echo)
            printable_put(out, g->prompt);
        pass_on(g, g->n_begun, false);
    }
    g->texts[p->sequence].begun = false;
    g->n_begun++;
    return schedule_begin(&g->schedule, p, &request, e);
}

enum status generation_tokens(const struct generation *g, struct text prompt, int cap, int n,
                              int32_t **ids, size_t *n_ids, struct err *e)
{
    const struct common_options *o = &g->o->common;
    const struct tokenizer *t = g->job->checkpoint.tokenizer;
    TRY(tokens_of_prompt(t, prompt, o->truncate ? INT_MAX : cap, ids, n_ids, e));
    if (*n_ids > (size_t)cap)
        tokens_truncate(o, tokenizer_adds_bos(t), cap - MIN(n, cap / 2), *ids, n_ids);
    if (*n_ids > (size_t)cap)
        return err_usage(
            e,
            "the prompt has %zu tokens, the context only %d: shorten the prompt%s or --truncate it",
            *n_ids, cap, cap < g->job->checkpoint.model->config.n_ctx ? ", raise -c" : "");
    return STATUS_OK;
}

/* The text of a line of --prompts begins. STATUS_USAGE: it cannot. */
static enum status begin_prompt(struct generation *g, struct slot *p, struct generated *text,
                                struct err *e)
{
    const struct prompt *prompt = &text->prompt;
    const int cap = session_cap(g->schedule.session);
    size_t n;
    bytes_free(&text->text); /* a long one leaves no memory to those after it */
    free(text->tokens);
    text->tokens = NULL;
    text->sampled.len = 0;
    TRY(generation_tokens(g, prompt->text, cap, prompt->n, &text->tokens, &n, e));
    const struct request request = {.number = prompt->index,
                                    .tokens = text->tokens,
                                    .n_tokens = n,
                                    .n = prompt->n,
                                    .seed = prompt->seed,
                                    .stops = prompt->stops,
                                    .n_stops = prompt->n_stops};
    return schedule_begin(&g->schedule, p, &request, e);
}

/* A round begins: texts are begun as long as there are slots for them, and room for what is to be
 * held of them, unless all is to end. The one that is to be written next may always begin. */
static enum status begin_texts(struct generation *g, struct err *e)
{
    struct schedule *s = &g->schedule;
    progress_show_texts(&g->job->progress, g->n_done + g->n_refused, g->n_begun, s->times.n_sampled,
                        lines_share(&g->prompts.lines));
    if (g->queue.holder.failed)
        return err_no_memory(e, "a text that waits for those before it", g->queue.n_held);
    while (output_flush(g->out) && !g->read && !signals_interrupted()) {
        const uint64_t ahead = g->n_begun - g->queue.front;
        const bool has_room = ahead < TEXTS_AHEAD && g->queue.n_held < TEXTS_BYTES;
        struct slot *p = has_room || ahead == 0 ? schedule_vacant(s) : NULL;
        /* Samples wait for the first one's prompt if they share it. */
        const bool waits = g->n_begun > 0 && g->shares && !g->has_prompt;
        if (!p || (!g->o->prompts && (waits || g->n_begun == (uint64_t)g->n_samples)))
            break;
        if (!g->o->prompts) {
            TRY(begin_sample(g, p, e));
            continue;
        }
        /* The text of the next line, or its record says why it cannot begin; lines that are yet to
         * come are waited for while nothing else is to be done. */
        struct generated *text = &g->texts[p->sequence];
        const bool idle = s->n_busy == 0;
        enum lines_state state;
        g->reading =
            prompts_next(&g->prompts, idle ? WAIT_MS : 0, &state, &text->prompt, &g->read_error);
        g->read = g->reading != STATUS_OK || state == LINES_END;
        if (g->read || (state == LINES_LATER && !idle))
            break;
        if (state == LINES_LATER)
            continue;
        g->n_begun++;
        if (!text->prompt.refused) {
            const enum status status = begin_prompt(g, p, text, e);
            if (status == STATUS_OK)
                continue;
            if (status != STATUS_USAGE)
                return status;
            prompt_refuse(&text->prompt, e);
        }
        print_line(g, text, NULL);
    }
    s->interrupted = !g->out->failed && signals_interrupted();
    if (g->out->failed || s->interrupted)
        schedule_end(s, STATUS_OK);
    return STATUS_OK;
}

/* --- tokens and ends ------------------------------------------------------------------------- */

/* Text on the shade of its token's probability, control characters as they are. */
static void put_shaded(struct output *out, enum heatmap_ink ink, int level, struct text text)
{
    while (text.len > 0) {
        const bool control = (unsigned char)text.data[0] < ' ';
        size_t n = 1;
        while (n < text.len && ((unsigned char)text.data[n] < ' ') == control)
            n++;
        if (!control)
            heatmap_put_shade(out, ink, level);
        printable_put(out, text_cut(&text, n));
        if (!control)
            heatmap_put_shade(out, ink, 0);
    }
}

/*
 * A text has a token more, or has ended. A line's bytes are kept until it is complete; a sample is
 * recorded or printed, without the space that a tokenizer puts at the beginning of all. Of texts
 * that are cut short only a sample that was being printed, the last to end, leaves what it has. Of
 * lines what failed refuses its own only.
 */
static enum status go_on(struct generation *g, const struct event *event, struct err *e)
{
    const uint64_t number = event->slot->request.number;
    const bool lines = g->o->prompts, ends = event->kind == EVENT_ENDED;
    const bool failed = ends && event->end == END_FAILED;
    struct generated *text = &g->texts[event->slot->sequence];
    struct text ready = event->ready;
    if (failed && lines) {
        prompt_refuse(&text->prompt, e);
        print_line(g, text, NULL);
        return STATUS_OK;
    }
    if (ends && event->end >= END_FAILED && (lines || number != g->queue.front)) {
        output_of(g, number);
        forget(&g->queue, g->queue.to);
        pass_on(g, number, true);
    } else if (lines) {
        if (!ends)
            TRY(id_list_add(&text->sampled, event->token, e));
        if (!bytes_put(&text->text, ready))
            return err_no_memory(e, "a text", text->text.len + ready.len);
        if (ends)
            print_line(g, text, event);
    } else {
        if (g->n_top > 0 && !ends && g->o->talks && g->out->terminal) {
            TRY(print_token_row(g, event, e));
        } else if (g->n_top > 0 && !ends) {
            print_token(g, event);
        } else if (g->n_top == 0) {
            if (!text->begun && g->prompt.len == 0 && !g->goes_on)
                text_cut(&ready, tokenizer_added(g->schedule.tokenizer, ready));
            text->begun |= event->ready.len > 0;
            if (!ends && g->ink != HEATMAP_PLAIN) {
                const struct heatmap_scale scale = heatmap_scale(1, false);
                const double logprob = (double)event->logits[event->token] - event->log_sum;
                unsigned char level;
                heatmap_levels(&scale, &(float){exp(logprob)}, 1, &level);
                text->level = level > 0 ? level : 1;
            }
            put_shaded(output_of(g, number), g->ink, text->level, ready);
            output_puts(&g->queue.holder, ends ? "\n" : "");
        }
        if (ends) {
            g->end = event->end;
            g->last_sampled = event->slot->n_sampled;
        }
        pass_on(g, number, ends && !failed);
    }
    return failed ? STATUS_FAILED : STATUS_OK;
}

enum status generation_run(struct generation *g, struct err *e)
{
    struct schedule *s = &g->schedule;
    for (struct event event; schedule_next(s, &event, e);) {
        if (g->shares && !g->has_prompt && event.logits) { /* the first event of the first text */
            memcpy(g->prompt_logits, event.logits, s->n_vocab * sizeof *event.logits);
            g->has_prompt = true;
        }
        const enum status status =
            event.kind == EVENT_ROUND ? begin_texts(g, e) : go_on(g, &event, e);
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
    const int cap = session_cap(g->schedule.session), n = g->last_sampled;
    const char *what = g->end == END_EOS         ? "end of text"
                       : g->end == END_STOP      ? "stop text found"
                       : g->schedule.interrupted ? "interrupted"
                                                 : NULL;
    if (g->out->failed)
        return;
    if (g->end == END_CONTEXT)
        say(&g->o->common, "context full (%d token%s): stopped after %d of %d; %sshift goes on",
            cap, plural(cap), n, g->n, g->o->talks ? "/" : "--");
    else if (what)
        say(&g->o->common, "%s after %d token%s", what, n, plural(n));
}

static struct figure rate(uint64_t n, uint64_t ns)
{
    return figure_rate(ns ? n * 1e9 / ns : 0);
}

void generation_report(struct generation *g)
{
    const struct schedule *s = &g->schedule;
    const struct schedule_times *t = &s->times;
    const uint64_t n = t->n_prefilled - t->n_fed_again;
    char prompts[128] = "prompt       ", times[160] = "";
    if (g->out->failed) /* and program_run says why, if that is to be said */
        return;
    if (g->o->prompts && s->interrupted)
        say(&g->o->common, "interrupted after %" PRIu64 " prompt%s", g->n_done, plural(g->n_done));
    if (g->o->common.quiet)
        return;
    if (g->o->prompts)
        chars_printf(prompts, "prompts      %" PRIu64 " done, %" PRIu64 " error%s; ", g->n_done,
                     g->n_refused, plural(g->n_refused));
    notice_summary("%s%" PRIu64 " token%s, %s tokens/s", prompts, n, plural(n),
                   rate(t->n_prefilled, t->prefill_ns).text);
    if (t->first_token_at)
        notice_summary("first token  %s after start%s",
                       figure_duration(t->first_token_at - g->job->start_ns - g->waited_ns).text,
                       g->o->talks ? ", without the time for typing" : "");
    if (t->n_rounds > 0) {
        stats_sort(t->rounds, t->n_rounds);
        chars_printf(times, ", %s tokens/s; p50 %.0f µs, p99 %.0f µs per %s",
                     rate(t->n_decoded, t->decode_ns).text,
                     stats_percentile(t->rounds, t->n_rounds, 0.5) / 1e3,
                     stats_percentile(t->rounds, t->n_rounds, 0.99) / 1e3,
                     s->n_slots > 1 ? "step" : "token");
    }
    notice_summary("decoded      %" PRIu64 " token%s%s", t->n_sampled, plural(t->n_sampled), times);
    if (t->n_shifts > 0)
        notice_summary("shifts       %" PRIu64 ", %" PRIu64 " tokens fed again", t->n_shifts,
                       t->n_fed_again);
    if (s->n_slots > 1)
        notice_summary("batch        %d sequences", s->n_slots);
    notice_summary("seed         %" PRIu64, g->job->seed);
    notice_summary("peak memory  %s", figure_bytes(peak_memory()).text);
}
