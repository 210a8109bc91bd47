#include "cli/generate_many.h"

#include <limits.h>
#include <stdlib.h>

#include "cli/input.h"
#include "cli/signals.h"
#include "text/id_list.h"
#include "json/write.h"

/* Memory that a long text may leave to those after it. */
#define MOST_TEXT_KEPT ((size_t)1 << 20)

/* What a line is made of, beside its place in the schedule. */
struct many_place {
    struct prompt prompt;
    int32_t *tokens; /* of the prompt */
    size_t cut;      /* that --truncate took from them */
    struct id_list made;
    struct bytes text;
};

static const char *const end_names[] = {
    [END_LENGTH] = "length", [END_STOP] = "stop", [END_EOS] = "eos", [END_CONTEXT] = "context"};

/* --- lines ----------------------------------------------------------------------------------- */

static void begin_line(struct json *j, struct output *out, const struct prompt *prompt)
{
    json_init(j, out, 0);
    json_begin_object(j, NULL);
    json_u64(j, "index", prompt->index);
    if (prompt->id_kind == PROMPT_ID_STRING)
        json_text(j, "id", prompt->id);
    else if (prompt->id_kind == PROMPT_ID_NUMBER)
        json_literal(j, "id", prompt->id);
    else
        json_null(j, "id");
    if (prompt->has_text)
        json_text(j, "prompt", prompt->text);
}

static void end_line(struct generation_many *g, struct json *j, uint64_t number)
{
    json_end(j);
    output_puts(j->out, "\n");
    turns_close(&g->turns, number);
}

static void print_refused(struct generation_many *g, uint64_t number, const struct prompt *prompt)
{
    struct json j;
    begin_line(&j, turns_output(&g->turns, number), prompt);
    json_string(&j, "error", prompt->error.text);
    end_line(g, &j, number);
    g->n_errors++;
}

static void print_line(struct generation_many *g, const struct place *p, enum text_end end)
{
    const struct many_place *m = &g->places[p->sequence];
    const struct text text = bytes_text(&m->text);
    const bool whole = m->prompt.text.len == 0;
    const size_t added = whole ? tokenizer_added(g->schedule.tokenizer, text) : 0;
    struct json j;
    begin_line(&j, turns_output(&g->turns, p->request.number), &m->prompt);
    json_text(&j, "text", (struct text){text.data + added, text.len - added});
    json_begin_array(&j, "tokens");
    for (int i = 0; i < p->n_made; i++)
        json_int(&j, NULL, m->made.ids[i]);
    json_end(&j);
    json_int(&j, "n", p->n_made);
    json_string(&j, "finish", end_names[end]);
    json_u64(&j, "seed", p->request.seed);
    json_double(&j, "logprob", p->logprob);
    if (m->cut > 0)
        json_u64(&j, "cut", m->cut);
    end_line(g, &j, p->request.number);
    g->n_done++;
    g->n_cut += m->cut > 0;
}

/* --- the schedule's client ------------------------------------------------------------------- */

/* Makes a prompt the place's request. STATUS_USAGE: it cannot be one. */
static enum status fill_request(struct generation_many *g, struct place *p, struct many_place *m,
                                struct err *e)
{
    const struct prompt *prompt = &m->prompt;
    const int cap = session_cap(g->schedule.session);
    size_t n_tokens;
    free(m->tokens);
    m->tokens = NULL;
    TRY(tokens_of_prompt(g->schedule.tokenizer, prompt->text, g->truncate ? INT_MAX : cap,
                         &m->tokens, &n_tokens, e));
    m->cut =
        tokens_truncate(g->schedule.tokenizer, g->truncate, cap, prompt->n, m->tokens, &n_tokens);
    TRY(check_prompt_length(n_tokens, cap, g->most_ctx, e));
    p->request = (struct request){.number = prompt->index,
                                  .tokens = m->tokens,
                                  .n_tokens = (int)n_tokens,
                                  .n = prompt->n,
                                  .seed = prompt->seed,
                                  .stops = prompt->stops,
                                  .n_stops = prompt->n_stops};
    return STATUS_OK;
}

/* A prompt was read into the place; *good: it can be run. Else its line is written. */
static enum status begin_prompt_text(struct generation_many *g, struct place *p, bool *good,
                                     struct err *e)
{
    struct many_place *m = &g->places[p->sequence];
    struct err why;
    if (!m->prompt.refused) {
        const enum status s = fill_request(g, p, m, &why);
        if (s == STATUS_USAGE) {
            prompt_refuse(&m->prompt, &why);
        } else if (s != STATUS_OK) {
            *e = why;
            return s;
        }
    }
    *good = !m->prompt.refused;
    if (!*good)
        print_refused(g, m->prompt.index, &m->prompt);
    if (m->text.cap > MOST_TEXT_KEPT)
        bytes_free(&m->text);
    m->text.len = 0;
    m->made.len = 0;
    return STATUS_OK;
}

/* Passes over those that cannot be run. When no more can be read, those that were go on. */
static enum status next_prompt(void *arg, struct place *p, int wait_ms, enum supply *supply,
                               struct err *e)
{
    struct generation_many *g = arg;
    *supply = SUPPLY_LATER;
    bool good = false;
    while (!good && !signals_interrupted() && turns_has_room(&g->turns, g->n_begun) &&
           output_flush(g->out)) {
        enum lines_state state;
        struct prompt *prompt = &g->places[p->sequence].prompt;
        g->reading = prompts_next(g->prompts, wait_ms, &state, prompt, &g->reading_error);
        if (g->reading != STATUS_OK)
            state = LINES_END;
        if (state == LINES_END)
            *supply = SUPPLY_END;
        if (state != LINES_LINE)
            return STATUS_OK;
        g->n_begun++;
        TRY(begin_prompt_text(g, p, &good, e));
    }
    *supply = good ? SUPPLY_TEXT : SUPPLY_LATER;
    return STATUS_OK;
}

static enum status keep_made(void *arg, const struct place *p, const struct made *made,
                             struct err *e)
{
    struct generation_many *g = arg;
    struct many_place *m = &g->places[p->sequence];
    TRY(id_list_add(&m->made, made->token, e));
    return bytes_put(&m->text, made->ready)
               ? STATUS_OK
               : err_no_memory(e, "a text", m->text.len + made->ready.len);
}

static enum status end_prompt(void *arg, const struct place *p, enum text_end end, struct text rest,
                              struct err *e)
{
    struct generation_many *g = arg;
    struct many_place *m = &g->places[p->sequence];
    if (end == END_ABANDONED) {
        turns_drop(&g->turns, p->request.number);
        return STATUS_OK;
    }
    if (!bytes_put(&m->text, rest)) {
        turns_drop(&g->turns, p->request.number);
        return err_no_memory(e, "a text", m->text.len + rest.len);
    }
    print_line(g, p, end);
    return STATUS_OK;
}

static enum status fail_prompt(void *arg, const struct place *p, const struct err *why,
                               struct err *e)
{
    struct generation_many *g = arg;
    struct prompt *prompt = &g->places[p->sequence].prompt;
    (void)e;
    prompt_refuse(prompt, why);
    print_refused(g, p->request.number, prompt);
    return STATUS_OK;
}

static enum status end_many_round(void *arg, bool *stop, struct err *e)
{
    struct generation_many *g = arg;
    *stop = !output_flush(g->out);
    progress_show_texts(g->progress, g->n_done + g->n_errors, g->n_begun, g->schedule.times.n_made,
                        lines_share(&g->prompts->lines));
    return turns_check(&g->turns, e);
}

static const struct schedule_client many_client = {.next = next_prompt,
                                                   .made = keep_made,
                                                   .ended = end_prompt,
                                                   .failed = fail_prompt,
                                                   .round = end_many_round,
                                                   .stop = progress_stop};

/* --- from outside ---------------------------------------------------------------------------- */

enum status generate_many_create(struct generation_many *g, struct err *e)
{
    const size_t n = (size_t)g->schedule.n_places;
    TRY(turns_create(&g->turns, g->out, e));
    g->places = calloc(n, sizeof *g->places);
    if (!g->places)
        return err_no_memory(e, "the prompts", n * sizeof *g->places);
    g->schedule.client = &many_client;
    g->schedule.arg = g;
    g->schedule.wants_logprobs = true;
    g->schedule.cap_rounds = SCHEDULE_MAX_ROUNDS;
    return schedule_create(&g->schedule, e);
}

void generate_many_free(struct generation_many *g)
{
    for (int i = 0; g->places && i < g->schedule.n_places; i++) {
        prompt_free(&g->places[i].prompt);
        bytes_free(&g->places[i].text);
        free(g->places[i].tokens);
        free(g->places[i].made.ids);
    }
    free(g->places);
    schedule_free(&g->schedule);
    turns_free(&g->turns);
}

enum status generate_many_run(struct generation_many *g, struct err *e)
{
    const enum status s = schedule_run(&g->schedule, e);
    progress_end(g->progress);
    output_flush(g->out);
    if (s != STATUS_OK || g->reading == STATUS_OK)
        return s;
    *e = g->reading_error;
    return g->reading;
}
