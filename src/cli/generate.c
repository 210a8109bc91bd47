#include "cli/generate.h"

#include <math.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/token_record.h"
#include "show/printable.h"
#include "json/write.h"

/* --- the schedule's client ------------------------------------------------------------------- */

/* What stands before a sample's text. */
static void begin_sample(struct generation *g, int sample)
{
    struct output *out = turns_output(&g->turns, (uint64_t)sample);
    if (g->records)
        return;
    if (sample > 0 && !g->goes_on)
        output_puts(out, "---\n");
    if (g->echo)
        printable_put(out, g->prompt);
    output_flush(g->out);
}

/* The first sample takes the prompt, for which the others wait if they share it. */
static enum status next_sample(void *arg, struct place *p, int wait_ms, enum supply *supply,
                               struct err *e)
{
    struct generation *g = arg;
    (void)wait_ms;
    (void)e;
    *supply = g->n_begun == g->n_samples ? SUPPLY_END : SUPPLY_LATER;
    if (*supply == SUPPLY_END || (g->shares && g->n_begun > 0 && !g->has_prompt) ||
        !turns_has_room(&g->turns, (uint64_t)g->n_begun))
        return STATUS_OK;
    *supply = SUPPLY_TEXT;
    g->begun[p->sequence] = false;
    if (g->ink != HEATMAP_PLAIN)
        g->shaded[p->sequence].len = 0;
    begin_sample(g, g->n_begun);
    p->request = (struct request){.number = (uint64_t)g->n_begun,
                                  .tokens = g->tokens,
                                  .n_tokens = g->n_tokens,
                                  .goes_on = g->goes_on,
                                  .logits = g->shares && g->has_prompt ? g->prompt_logits : NULL,
                                  .n = g->n,
                                  .seed = g->seed,
                                  .stream = (uint64_t)g->n_begun,
                                  .stops = g->stops,
                                  .n_stops = g->n_stops};
    g->n_begun++;
    return STATUS_OK;
}

static void keep_prompt(void *arg, const struct place *p, const float *logits)
{
    struct generation *g = arg;
    (void)p;
    memcpy(g->prompt_logits, logits, (size_t)g->schedule.n_vocab * sizeof *logits);
    g->has_prompt = true;
}

static void print_record(struct generation *g, const struct place *p, const struct made *m)
{
    struct output *out = turns_output(&g->turns, p->request.number);
    score_top(m->logits, g->schedule.n_vocab, m->log_sum, g->n_top, g->top);
    struct json j;
    json_init(&j, out, 0);
    const struct token_record record = {.sample = (int)p->request.number,
                                        .position = (int)g->n_before + g->n_tokens + p->n_made,
                                        .id = m->token,
                                        .predicted = true,
                                        .logprob = (double)m->logits[m->token] - m->log_sum,
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
static void shade(struct generation *g, const struct place *p, const struct made *m)
{
    const struct tokenizer *t = g->schedule.tokenizer;
    const struct heatmap_scale scale = generate_scale();
    const double probability = exp((double)m->logits[m->token] - m->log_sum);
    if (!tokenizer_is_special(t, m->token))
        shaded_text_push(&g->shaded[p->sequence], tokenizer_bytes(t, m->token).len,
                         heatmap_level(&scale, probability));
}

/* Text goes out; where it is the beginning of all, without the space that a tokenizer puts there.
 */
static void print_text(struct generation *g, const struct place *p, struct text ready)
{
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

/* Sends a token on its way: as a record, or as text if it is text. */
static enum status print_made(void *arg, const struct place *p, const struct made *m, struct err *e)
{
    struct generation *g = arg;
    (void)e;
    if (g->records) {
        print_record(g, p, m);
        return STATUS_OK;
    }
    if (g->ink != HEATMAP_PLAIN)
        shade(g, p, m);
    print_text(g, p, m->ready);
    return STATUS_OK;
}

/* Of those that are abandoned only the one that was being printed, the last, leaves what it has. */
static enum status end_sample(void *arg, const struct place *p, enum text_end end, struct text rest,
                              struct err *e)
{
    struct generation *g = arg;
    const uint64_t number = p->request.number;
    (void)e;
    if (end == END_ABANDONED && number != g->turns.front) {
        turns_drop(&g->turns, number);
        return STATUS_OK;
    }
    if (!g->records) {
        print_text(g, p, rest);
        output_puts(turns_output(&g->turns, number), "\n");
    }
    turns_close(&g->turns, number);
    if (end == END_ABANDONED || number >= g->last) {
        g->last = number;
        g->end = end;
        g->last_made = p->n_made;
    }
    return STATUS_OK;
}

static enum status fail_sample(void *arg, const struct place *p, const struct err *why,
                               struct err *e)
{
    (void)arg;
    (void)p;
    *e = *why;
    return STATUS_FAILED;
}

static enum status end_round(void *arg, bool *stop, struct err *e)
{
    struct generation *g = arg;
    *stop = !output_flush(g->out);
    return turns_check(&g->turns, e);
}

static const struct schedule_client client = {.next = next_sample,
                                              .prefilled = keep_prompt,
                                              .made = print_made,
                                              .ended = end_sample,
                                              .failed = fail_sample,
                                              .round = end_round,
                                              .stop = progress_stop};

/* --- from outside ---------------------------------------------------------------------------- */

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
    const int n = g->ink == HEATMAP_PLAIN ? 0 : g->schedule.n_places;
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
    g->begun = arena_take(a, (uint64_t)g->schedule.n_places, sizeof *g->begun);
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
    g->schedule.client = &client;
    g->schedule.arg = g;
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

enum status generate_run(struct generation *g, struct err *e)
{
    const enum status s = schedule_run(&g->schedule, e);
    output_flush(g->out);
    return s;
}

enum status generate_more(struct generation *g, struct err *e)
{
    const int begun = g->n_begun;
    g->n_samples = begun + 1;
    g->end = END_ABANDONED;
    g->last_made = 0;
    TRY(generate_run(g, e));
    if (g->n_begun == begun) /* a signal came first */
        return STATUS_OK;
    g->goes_on = true;
    g->echo = false;
    g->n_before += (uint64_t)g->n_tokens + (uint64_t)g->last_made;
    return STATUS_OK;
}
