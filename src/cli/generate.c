#include "cli/generate.h"

#include <math.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/token_record.h"
#include "show/paragraph.h"
#include "json/write.h"

/* --- memory ---------------------------------------------------------------------------------- */

/* Bytes of a text that are on their way at most: see text/stream.h. */
static size_t most_held(const struct generation *g)
{
    size_t longest = 0;
    for (int i = 0; i < g->n_stops; i++)
        longest = g->stops[i].len > longest ? g->stops[i].len : longest;
    return longest + 3 + tokenizer_longest(g->schedule.tokenizer);
}

static void take_shaded(struct generation *g, struct arena *a)
{
    const int n = g->ink == HEATMAP_PLAIN ? 0 : g->schedule.n_slots;
    const size_t cap = most_held(g);
    g->shaded = arena_take(a, (uint64_t)n, sizeof *g->shaded);
    for (int i = 0; i < n; i++) {
        unsigned char *levels = arena_take(a, cap, 1);
        if (g->shaded)
            g->shaded[i] = (struct shaded_text){.levels = levels, .cap = cap};
    }
}

static void take_generation(struct generation *g, struct arena *a)
{
    take_shaded(g, a);
    g->prompt_logits = arena_take(a, (uint64_t)g->schedule.n_vocab, sizeof *g->prompt_logits);
    g->top = arena_take(a, (uint64_t)g->most_top, sizeof *g->top);
    g->begun = arena_take(a, (uint64_t)g->schedule.n_slots, sizeof *g->begun);
}

/* Rounds there can be at most. */
static size_t count_rounds(const struct generation *g)
{
    const int room = session_cap(g->schedule.session) - g->n_tokens;
    const int most = g->n < room || g->schedule.shifts ? g->n : room;
    const uint64_t n = (uint64_t)most * (uint64_t)g->n_samples;
    if (g->n_samples == 0)
        return SCHEDULE_MAX_ROUNDS;
    return n < SCHEDULE_MAX_ROUNDS ? (size_t)n : SCHEDULE_MAX_ROUNDS;
}

void generate_set_records(struct generation *g, int n_top)
{
    g->records = n_top > 0;
    g->n_top = n_top < g->most_top ? n_top : g->most_top;
    g->schedule.wants_logprobs = g->records || g->ink != HEATMAP_PLAIN;
}

enum status generate_create(struct generation *g, struct err *e)
{
    take_generation(g, &g->arena);
    TRY(arena_allocate(&g->arena, "the generation's buffers", e));
    take_generation(g, &g->arena);
    TRY(turns_create(&g->turns, g->out, e));
    generate_set_records(g, g->n_top);
    g->schedule.cap_rounds = count_rounds(g);
    return schedule_create(&g->schedule, e);
}

void generate_free(struct generation *g)
{
    schedule_free(&g->schedule);
    turns_free(&g->turns);
    arena_free(&g->arena);
}

/* --- beginnings ------------------------------------------------------------------------------ */

/* A round begins: samples that can be begun are, unless all is to end. The first sample takes the
 * prompt, for which the others wait if they share it. */
static enum status begin_samples(struct generation *g, struct err *e)
{
    struct schedule *s = &g->schedule;
    struct slot *p;
    const bool written = output_flush(g->out);
    TRY(turns_check(&g->turns, e));
    s->interrupted = written && progress_stop(NULL);
    if (!written || s->interrupted) {
        schedule_end(s, STATUS_OK);
        return STATUS_OK;
    }
    while (g->n_begun < g->n_samples && (g->n_begun == 0 || !g->shares || g->has_prompt) &&
           turns_has_room(&g->turns, (uint64_t)g->n_begun) && (p = schedule_vacant(s))) {
        const uint64_t number = (uint64_t)g->n_begun;
        struct output *out = turns_output(&g->turns, number);
        const struct request request = {.number = number,
                                        .tokens = g->tokens,
                                        .n_tokens = g->n_tokens,
                                        .goes_on = g->goes_on,
                                        .logits = g->has_prompt ? g->prompt_logits : NULL,
                                        .n = g->n,
                                        .seed = g->seed,
                                        .stream = number,
                                        .stops = g->stops,
                                        .n_stops = g->n_stops};
        if (!g->records) {
            if (number > 0 && !g->goes_on)
                output_puts(out, "---\n");
            if (g->echo)
                printable_put(out, g->prompt);
            output_flush(g->out);
        }
        g->begun[p->sequence] = false;
        if (g->ink != HEATMAP_PLAIN)
            g->shaded[p->sequence].len = 0;
        g->n_begun++;
        TRY(schedule_begin(s, p, &request, e));
    }
    return STATUS_OK;
}

/* --- tokens ---------------------------------------------------------------------------------- */

static void print_record(struct generation *g, const struct event *event)
{
    const struct slot *p = event->slot;
    struct output *out = turns_output(&g->turns, p->request.number);
    score_top(event->logits, g->schedule.n_vocab, event->log_sum, g->n_top, g->top);
    struct json j;
    json_init(&j, out, 0);
    const struct token_record record = {
        .sample = (int)p->request.number,
        .position = (int)g->n_before + g->n_tokens + p->n_sampled - 1,
        .id = event->token,
        .predicted = true,
        .logprob = (double)event->logits[event->token] - event->log_sum,
        .top = g->top,
        .n_top = g->n_top,
        .with_top = true};
    token_record_json(&j, g->schedule.tokenizer, &record);
    output_puts(out, "\n");
}

struct heatmap_scale generate_scale(void)
{
    return heatmap_scale(1, false);
}

/* The token's bytes are on their way. */
static void shade(struct generation *g, const struct event *event)
{
    const struct tokenizer *t = g->schedule.tokenizer;
    const struct heatmap_scale scale = generate_scale();
    const double probability = exp((double)event->logits[event->token] - event->log_sum);
    if (!tokenizer_is_special(t, event->token))
        shaded_text_push(&g->shaded[event->slot->sequence], tokenizer_bytes(t, event->token).len,
                         heatmap_level(&scale, probability));
}

/* Text goes out; where it is the beginning of all, without the space that a tokenizer puts there.
 */
static void print_text(struct generation *g, const struct event *event)
{
    const struct slot *p = event->slot;
    const struct text ready = event->ready;
    bool *begun = &g->begun[p->sequence];
    if (ready.len == 0)
        return;
    const bool first = !*begun && g->prompt.len == 0 && !g->goes_on;
    const size_t added = first ? tokenizer_added(g->schedule.tokenizer, ready) : 0;
    struct output *out = turns_output(&g->turns, p->request.number);
    *begun = true;
    if (g->ink == HEATMAP_PLAIN)
        printable_put(out, (struct text){ready.data + added, ready.len - added});
    else
        shaded_text_put(&g->shaded[p->sequence], out, g->ink, ready, added);
}

/* --- ends ------------------------------------------------------------------------------------ */

/* Of those that are abandoned only the one that was being printed, the last, leaves what it has. */
static void end_sample(struct generation *g, const struct event *event)
{
    const uint64_t number = event->slot->request.number;
    const bool abandoned = event->end == END_ABANDONED;
    if (abandoned && number != g->turns.front) {
        turns_drop(&g->turns, number);
        return;
    }
    if (!g->records) {
        print_text(g, event);
        output_puts(turns_output(&g->turns, number), "\n");
    }
    turns_close(&g->turns, number);
    if (abandoned || number >= g->last) {
        g->last = number;
        g->end = event->end;
        g->last_sampled = event->slot->n_sampled;
    }
}

enum status generate_run(struct generation *g, struct err *e)
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
            status = begin_samples(g, e);
            break;
        case EVENT_SAMPLED:
            if (g->records) {
                print_record(g, &event);
                break;
            }
            if (g->ink != HEATMAP_PLAIN)
                shade(g, &event);
            print_text(g, &event);
            break;
        case EVENT_ENDED:
            end_sample(g, &event);
            break;
        case EVENT_FAILED:
            status = STATUS_FAILED;
            break;
        }
        if (status != STATUS_OK)
            schedule_end(s, status);
    }
    output_flush(g->out);
    return s->status;
}

enum status generate_more(struct generation *g, struct err *e)
{
    const int begun = g->n_begun;
    g->n_samples = begun + 1;
    g->end = END_ABANDONED;
    g->last_sampled = 0;
    TRY(generate_run(g, e));
    if (g->n_begun == begun) /* a signal came first */
        return STATUS_OK;
    g->goes_on = true;
    g->echo = false;
    g->n_before += (uint64_t)g->n_tokens + (uint64_t)g->last_sampled;
    return STATUS_OK;
}
