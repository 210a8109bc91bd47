#include "cli/generate.h"

#include <unistd.h>

#include "base/limits.h"
#include "base/rng.h"
#include "cli/signals.h"
#include "formats/json_write.h"
#include "show/paragraph.h"

/* Texts that are held for each slot: a text that ends before an earlier one waits to be printed,
 * while its slot goes on with another. */
#define TEXTS_PER_SLOT 4

/* Positions that the cache of -i has at first: at least as many as a step has rows. */
#define FIRST_CTX 128

/* The sequences that share a step where nobody says how many. */
#define BATCH_AUTO 16

/* --- memory ---------------------------------------------------------------------------------- */

/* Takes the memory for texts; the schedule has its session and sampler already. */
static enum status take_memory(struct generation *g, struct err *e)
{
    const struct generate_options *o = g->o;
    struct schedule *s = &g->schedule;
    const uint64_t rounds = (uint64_t)o->n * o->samples; /* at most, of what is no long list */
    g->cap_texts = TEXTS_PER_SLOT * s->n_slots;
    TRY_ZEROED(g->stops, o->stops.n + 1, "the stop texts", e);
    TRY_ZEROED(g->texts, g->cap_texts, "the texts under way", e);
    for (int i = 0; i < o->stops.n; i++)
        g->stops[i] = text_of(o->stops.items[i]);
    s->wants_logprobs = g->o->format == FORMAT_JSON;
    s->cap_rounds = o->prompts || o->common.interactive ? SCHEDULE_MAX_ROUNDS
                                                        : MIN(rounds, SCHEDULE_MAX_ROUNDS);
    return schedule_create(s, e);
}

static void free_text(struct generated *t)
{
    free(t->sampled.ids);
    free(t->line_tokens);
    bytes_free(&t->made);
    *t = (struct generated){.number = 0};
}

void generation_free(struct generation *g)
{
    for (int i = 0; g->texts && i < g->cap_texts; i++)
        free_text(&g->texts[i]);
    free(g->texts);
    free(g->stops);
    schedule_free(&g->schedule);
    sampler_free(g->schedule.sampler);
}

static struct generated *text_of_number(const struct generation *g, uint64_t number)
{
    return &g->texts[number % g->cap_texts];
}

/* --- the list -------------------------------------------------------------------------------- */

/* Gives the tokens of a prompt, for `cap` positions in which n more tokens are to follow. One that
 * is too long is cut by --truncate until those n have room, but to no less than half of the
 * positions. */
static enum status encode_prompt(const struct generation *g, struct text prompt, int cap, int n,
                                 int32_t **ids, size_t *n_ids, struct err *e)
{
    TRY(tokenizer_encode_prompt(g->job->checkpoint.tokenizer, prompt, ids, n_ids, e));
    return job_fit_tokens(g->job, "prompt", cap, cap - MIN(n, cap / 2), *ids, n_ids, e);
}

/* Marks a text that cannot be made, with the reason. */
static void refuse_text(struct generated *t, const struct err *why)
{
    t->refused = t->whole = true;
    t->error = *why;
    err_in(&t->error, STATUS_BAD_FILE, "line %" PRIu64, t->line);
}

/* Cuts the next line that is not empty off *left, and counts it and the empty lines before it in
 * *n_lines. False: there is none. */
static bool next_line(struct text *left, uint64_t *n_lines, struct text *line)
{
    *line = text_span("", 0);
    for (; line->len == 0 && left->len > 0; ++*n_lines)
        *line = text_cut_line(left);
    return line->len > 0;
}

/* Fills in a text from the next line of --prompts that is not empty; a line that cannot be run is
 * refused. STATUS_NO_MEMORY. */
static enum status next_of_lines(struct generation *g, struct generated *t, struct err *e)
{
    next_line(&g->lines, &g->n_lines, &t->prompt);
    t->line = g->n_lines;
    t->seed = rng_derive(g->job->seed, g->n_begun);
    const enum status s =
        encode_prompt(g, t->prompt, g->schedule.n_ctx, g->o->n, &t->line_tokens, &t->n_tokens, e);
    t->tokens = t->line_tokens;
    if (s != STATUS_BAD_FILE && s != STATUS_USAGE)
        return s;
    refuse_text(t, e);
    return STATUS_OK;
}

static enum status next_text(struct generation *g, struct generated *t, struct err *e)
{
    *t = (struct generated){.number = g->n_begun};
    if (g->o->prompts)
        return next_of_lines(g, t, e);
    t->prompt = g->prompt;
    t->tokens = g->job->tokens;
    t->n_tokens = g->job->n_tokens;
    t->seed = g->job->seed;
    t->stream = g->o->common.interactive ? 0 : g->n_begun;
    return STATUS_OK;
}

/* --- printing -------------------------------------------------------------------------------- */

/* Prints a line of JSON: a whole text, or why there is none. */
static void print_json(struct generation *g, const struct generated *t)
{
    static const char *const end_names[] = {
        [END_LENGTH] = "length", [END_STOP] = "stop", [END_EOS] = "eos", [END_CONTEXT] = "context"};
    struct json j;
    json_init(&j, g->job->out, 0);
    json_begin_object(&j, NULL);
    json_u64(&j, "index", t->number);
    json_text(&j, "prompt", t->prompt);
    if (t->refused) {
        json_text(&j, "error", text_of(t->error.text));
    } else {
        json_text(&j, "text", bytes_text(&t->made));
        json_ints(&j, "tokens", t->sampled.ids, t->n_sampled);
        json_int(&j, "n", t->n_sampled);
        json_text(&j, "finish", text_of(end_names[t->end]));
        json_u64(&j, "seed", t->seed);
        json_double(&j, "logprob", t->logprob);
    }
    json_end(&j);
    output_puts(g->job->out, "\n");
}

/* Prints what has been made of a text since the last call; the first call prints the prompt before
 * it. */
static void print_text(struct generation *g, struct generated *t)
{
    if (t->refused) {
        log_error(t->error.text);
        return;
    }
    if (!t->printed) {
        if (g->n_done > 0 && !g->o->common.interactive)
            output_puts(g->job->out, "---\n");
        if (g->echo)
            printable_put(g->job->out, t->prompt);
        t->printed = true;
    }
    printable_put(g->job->out, bytes_text(&t->made));
    t->made.len = 0;
    if (t->whole)
        output_puts(g->job->out, "\n");
}

/* Prints the next text of the list: all of it, or, where texts stream, what there is. */
static void print_next(struct generation *g)
{
    struct generated *t = text_of_number(g, g->n_printed);
    if (g->o->format == FORMAT_JSON)
        print_json(g, t);
    else
        print_text(g, t);
}

/* Counts the next text of the list, which is over, and makes room for another. */
static void pass_text(struct generation *g)
{
    struct generated *t = text_of_number(g, g->n_printed++);
    g->n_done += t->whole && !t->refused;
    g->n_refused += t->refused;
    free_text(t);
}

/* Prints in the order of the list the texts that are whole, or, where texts stream, what there is.
 */
static void print_texts(struct generation *g)
{
    bool whole = true;
    while (whole && g->n_printed < g->n_begun) {
        whole = text_of_number(g, g->n_printed)->whole;
        if (whole || g->streams)
            print_next(g);
        if (whole)
            pass_text(g);
    }
    output_flush(g->job->out);
}

/* --- the stages of a round ------------------------------------------------------------------- */

static enum status begin_text(struct generation *g, struct slot *p, const struct generated *t,
                              struct err *e)
{
    const struct request request = {.number = t->number,
                                    .tokens = t->tokens,
                                    .n_tokens = t->n_tokens,
                                    .goes_on = g->goes_on,
                                    .n = g->o->n,
                                    .seed = t->seed,
                                    .stream = t->stream,
                                    .stops = g->stops,
                                    .n_stops = g->o->stops.n};
    return schedule_begin(&g->schedule, p, &request, e);
}

/* Begins texts of the list as long as there are slots for them, and prints the prompt of a text
 * that streams, and refused lines. Samples copy the first one's prompt in the cache, so they begin
 * once it is there. */
static enum status begin_texts(struct generation *g, struct err *e)
{
    struct schedule *s = &g->schedule;
    struct slot *p;
    while (g->n_begun < g->n_texts && g->n_begun - g->n_printed < (uint64_t)g->cap_texts &&
           (g->o->prompts || s->n_prefills == 0) && (p = schedule_vacant(s)) &&
           !signals_interrupted()) {
        struct generated *t = text_of_number(g, g->n_begun);
        TRY(next_text(g, t, e));
        if (!t->refused)
            TRY(begin_text(g, p, t, e));
        if (!t->refused && (g->o->prompts || g->o->common.interactive || g->n_begun == 0))
            g->n_prompt += t->n_tokens;
        g->n_begun++;
    }
    print_texts(g);
    return STATUS_OK;
}

/* Adds bytes to a text. A text without a prompt does not begin with the space that a tokenizer puts
 * before every text. */
static enum status add_bytes(struct generation *g, struct generated *t, struct text bytes,
                             struct err *e)
{
    if (!t->begun && t->prompt.len == 0 && !g->goes_on)
        text_cut(&bytes, tokenizer_added(g->schedule.tokenizer, bytes));
    t->begun |= bytes.len > 0;
    if (!bytes_put(&t->made, bytes))
        return err_no_memory(e, "a text", t->made.len + bytes.len);
    return STATUS_OK;
}

/* Ends a text. A failure refuses a line of --prompts, and ends the run of any other text. */
static enum status end_text(struct generation *g, struct slot *p, struct generated *t,
                            struct err *e)
{
    if (p->end == END_FAILED) {
        const enum status s = schedule_failure(&g->schedule, p, e);
        if (t->line == 0)
            return s;
        refuse_text(t, e);
    }
    g->end = t->end = p->end;
    g->last_sampled = t->n_sampled = p->n_sampled;
    t->logprob = p->logprob;
    t->whole = true;
    return add_bytes(g, t, schedule_finish(&g->schedule, p), e);
}

/* Adds to each text what the round made of it. */
static enum status collect_tokens(struct generation *g, struct err *e)
{
    struct schedule *s = &g->schedule;
    for (struct slot *p = s->slots; p < s->slots + s->n_slots; p++) {
        if (!p->logits)
            continue;
        struct generated *t = text_of_number(g, p->request.number);
        if (p->has_token && g->o->format == FORMAT_JSON)
            TRY(id_list_add(&t->sampled, p->token, e));
        TRY(add_bytes(g, t, p->ready, e));
        if (p->state == SLOT_ENDED)
            TRY(end_text(g, p, t, e));
    }
    return STATUS_OK;
}

/* --- before the run -------------------------------------------------------------------------- */

/* Creates what the schedule borrows: the sampler, and the job's session with at most n_texts
 * sequences, as many as --batch or the memory allows. */
static enum status start_schedule(struct generation *g, struct session_params *params, int n_texts,
                                  struct err *e)
{
    const struct generate_options *o = g->o;
    struct job *job = g->job;
    struct schedule *s = &g->schedule;
    struct sampler_params sampler = o->sampler;
    const int wanted = MIN(o->n_batch ? o->n_batch : BATCH_AUTO, n_texts);
    params->n_sequences = wanted;
    if (!o->n_batch)
        TRY(job_fit_sequences(job, params, wanted, e));
    s->n_ctx = params->n_ctx;
    if (o->common.interactive)
        params->n_ctx = MIN(params->n_ctx, FIRST_CTX);
    TRY(job_start_session(job, params, s->n_ctx, CACHE_ADVICE, e));
    s->session = job->session;
    s->pool = job->pool;
    s->n_slots = params->n_sequences;
    if (o->greedy)
        sampler.temperature = 0;
    log_verbose(&o->common,
                "sampler: repetition penalty %g over %d, temperature %g, top-k %d, top-p %g, min-p "
                "%g, draw",
                sampler.repeat_penalty, sampler.repeat_last_n, sampler.temperature, sampler.top_k,
                sampler.top_p, sampler.min_p);
    const struct sampler_sizes sizes = {.n_vocab = s->n_vocab,
                                        .n_ctx = s->n_ctx,
                                        .n_sequences = s->n_slots,
                                        .n_threads = job->n_threads};
    return sampler_create(&sampler, &sizes, &s->sampler, e);
}

/* Counts the texts of --prompts before the first one begins. */
static uint64_t count_prompts(const struct generation *g)
{
    struct text left = g->lines, line;
    uint64_t n_lines = 0, n = 0;
    while (next_line(&left, &n_lines, &line))
        n++;
    return n;
}

enum status generation_open(struct generation *g, struct err *e)
{
    const struct generate_options *o = g->o;
    struct job *job = g->job;
    struct schedule *s = &g->schedule;
    const struct config *c = &job->checkpoint.model->config;
    const struct tokenizer *t = job->checkpoint.tokenizer;
    struct session_params params = job_session_params(job);
    g->begins = !o->common.interactive || o->common.prompt || o->common.file;
    TRY(job_seed(job, e));
    params.n_ctx = o->ctx ? o->ctx : c->n_ctx;
    if (params.n_ctx > c->n_ctx)
        return err_usage(e, "-c: expected at most %d, the checkpoint's context, found %d", c->n_ctx,
                         o->ctx);
    if (job->text.len > 0)
        TRY(input_needs_tokenizer(t, job->path, "generate", e));
    if (o->prompts)
        g->lines = job->text;
    else
        g->prompt = job->text;
    g->n_texts = o->prompts ? count_prompts(g) : o->common.interactive ? 0 : (uint64_t)o->samples;
    if (!o->prompts && g->begins)
        TRY(encode_prompt(g, g->prompt, params.n_ctx, o->n, &job->tokens, &job->n_tokens, e));
    if (!o->ctx && !o->prompts && !o->common.interactive) /* as many positions as the texts need */
        params.n_ctx = MIN((uint64_t)c->n_ctx, (uint64_t)job->n_tokens + o->n);
    g->streams = o->format == FORMAT_TEXT && !o->prompts && o->samples == 1;
    g->echo = !o->no_echo && g->begins;
    if (!g->streams) {
        job_callbacks(job, o->prompts ? "prompt" : "text");
        job->progress.terminal &= !isatty(STDOUT_FILENO); /* lines that come by show it, too */
    }
    s->tokenizer = t;
    s->n_vocab = c->n_vocab;
    s->shifts = o->shift || o->common.interactive;
    s->n_keep = s->shifts && tokenizer_adds_bos(t);
    TRY(start_schedule(g, &params, (int)MIN(MAX(g->n_texts, 1), BATCH_MAX), e));
    return take_memory(g, e);
}

/* --- the run --------------------------------------------------------------------------------- */

/* Whether texts are left to be made, no signal came, and somebody reads the output. */
static bool has_work(struct generation *g)
{
    g->interrupted = !g->job->out->failed && signals_interrupted();
    return !g->interrupted && !g->job->out->failed &&
           (g->n_begun < g->n_texts || g->schedule.n_busy > 0);
}

/* Lets the cache of -i, which is small at first, grow with its text. */
static enum status make_room(struct generation *g, struct err *e)
{
    const struct schedule *s = &g->schedule;
    int cap = session_cap(s->session);
    const int needed = MIN(s->slots[0].len, s->n_ctx);
    if (needed <= cap)
        return STATUS_OK;
    while (cap < needed)
        cap = MIN(2 * cap, s->n_ctx);
    return job_grow_session(g->job, cap, CACHE_ADVICE, e);
}

static enum status make_texts(struct generation *g, struct err *e)
{
    while (has_work(g)) {
        TRY(begin_texts(g, e));
        TRY(make_room(g, e));
        TRY(schedule_round(&g->schedule, e));
        TRY(collect_tokens(g, e));
        print_texts(g);
        progress_show(&g->job->progress, g->n_printed, g->n_texts);
    }
    return STATUS_OK;
}

/* Ends the texts that were cut short. A text that streams is printed as far as it is made; others
 * are dropped. */
static void abandon_texts(struct generation *g)
{
    struct schedule *s = &g->schedule;
    for (struct slot *p = s->slots; p < s->slots + s->n_slots; p++) {
        if (p->state == SLOT_VACANT)
            continue;
        struct generated *t = text_of_number(g, p->request.number);
        g->end = END_ABANDONED;
        g->last_sampled = p->n_sampled;
        const struct text rest = schedule_finish(s, p);
        t->whole = g->streams && add_bytes(g, t, rest, NULL) == STATUS_OK;
    }
    for (; g->n_printed < g->n_begun; pass_text(g))
        if (text_of_number(g, g->n_printed)->whole)
            print_next(g);
}

/* Says why a text has fewer tokens than were wanted. */
static void log_end(const struct generation *g)
{
    const struct generate_options *o = g->o;
    const int cap = g->schedule.n_ctx, n = g->last_sampled;
    const char *what = g->end == END_EOS              ? "end of text"
                       : g->end == END_STOP           ? "stop text found"
                       : g->interrupted && g->streams ? "interrupted"
                                                      : NULL; /* job_run says how many are done */
    if (g->job->out->failed || o->prompts)
        return;
    if (g->end == END_CONTEXT) {
        log_info(&o->common, "context full (%d token%s): stopped after %d of %d; --shift goes on",
                 cap, plural(cap), n, g->o->n);
    } else if (what && o->samples == 1) {
        log_info(&o->common, "%s after %d token%s", what, n, plural(n));
    }
}

enum status generation_run(struct generation *g, struct err *e)
{
    const enum status made = make_texts(g, e);
    abandon_texts(g);
    progress_end(&g->job->progress);
    output_flush(g->job->out);
    TRY(made);
    log_end(g);
    return g->interrupted ? STATUS_INTERRUPTED : STATUS_OK;
}

/* --- report ---------------------------------------------------------------------------------- */

static struct figure rate(uint64_t n, uint64_t ns)
{
    return figure_rate(ns ? n * 1e9 / ns : 0);
}

void generation_report(struct generation *g)
{
    const struct schedule *s = &g->schedule;
    const struct schedule_times *t = &s->times;
    char prompts[128] = "prompt       ", times[160] = "";
    if (g->job->out->failed || g->o->common.quiet) /* program_run says why it failed */
        return;
    if (g->o->prompts)
        chars_printf(prompts, "prompts      %" PRIu64 " done, %" PRIu64 " error%s; ", g->n_done,
                     g->n_refused, plural(g->n_refused));
    notice_summary("%s%" PRIu64 " token%s, %s tokens/s", prompts, g->n_prompt, plural(g->n_prompt),
                   rate(t->n_prefilled, t->prefill_ns).text);
    if (t->first_token_at &&
        !g->o->common.interactive) /* which would have the time for typing in it */
        notice_summary("first token  %s after start",
                       figure_duration(t->first_token_at - g->job->start_ns).text);
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
        notice_summary("shifts       %" PRIu64 ", %" PRIu64 " token%s fed again", t->n_shifts,
                       t->n_fed_again, plural(t->n_fed_again));
    if (s->n_slots > 1)
        notice_summary("batch        %d sequences", s->n_slots);
    notice_summary("seed         %" PRIu64, g->job->seed);
    notice_summary("peak memory  %s", figure_bytes(peak_memory()).text);
}
