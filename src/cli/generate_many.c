#include "cli/generate_many.h"

#include <limits.h>
#include <stdlib.h>

#include "cli/input.h"
#include "cli/signals.h"
#include "text/vocab.h"
#include "json/write.h"

/* Memory that a long text may leave to those after it. */
#define MOST_TEXT_KEPT ((size_t)1 << 20)

/* How long to wait for a prompt before looking whether all is over. */
#define WAIT_MS 100

/* What a line is made of, beside its slot in the schedule. */
struct many_slot {
    struct prompt prompt;
    int32_t *tokens; /* of the prompt */
    size_t cut;      /* that --truncate took from them */
    struct id_list sampled;
    struct bytes text;
};

static const char *const end_names[] = {
    [END_LENGTH] = "length", [END_STOP] = "stop", [END_EOS] = "eos", [END_CONTEXT] = "context"};

/* --- memory ---------------------------------------------------------------------------------- */

enum status generate_many_create(struct generation_many *g, struct err *e)
{
    const size_t n = (size_t)g->schedule.n_slots;
    TRY(turns_create(&g->turns, g->out, e));
    g->slots = calloc(n, sizeof *g->slots);
    if (!g->slots)
        return err_no_memory(e, "the prompts", n * sizeof *g->slots);
    g->schedule.wants_logprobs = true;
    g->schedule.cap_rounds = SCHEDULE_MAX_ROUNDS;
    return schedule_create(&g->schedule, e);
}

void generate_many_free(struct generation_many *g)
{
    for (int i = 0; g->slots && i < g->schedule.n_slots; i++) {
        prompt_free(&g->slots[i].prompt);
        bytes_free(&g->slots[i].text);
        free(g->slots[i].tokens);
        free(g->slots[i].sampled.ids);
    }
    free(g->slots);
    schedule_free(&g->schedule);
    turns_free(&g->turns);
}

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

static void print_line(struct generation_many *g, const struct slot *p, enum text_end end)
{
    const struct many_slot *m = &g->slots[p->sequence];
    const struct text text = bytes_text(&m->text);
    const bool whole = m->prompt.text.len == 0;
    const size_t added = whole ? tokenizer_added(g->schedule.tokenizer, text) : 0;
    struct json j;
    begin_line(&j, turns_output(&g->turns, p->request.number), &m->prompt);
    json_text(&j, "text", (struct text){text.data + added, text.len - added});
    json_begin_array(&j, "tokens");
    for (int i = 0; i < p->n_sampled; i++)
        json_int(&j, NULL, m->sampled.ids[i]);
    json_end(&j);
    json_int(&j, "n", p->n_sampled);
    json_string(&j, "finish", end_names[end]);
    json_u64(&j, "seed", p->request.seed);
    json_double(&j, "logprob", p->logprob);
    if (m->cut > 0)
        json_u64(&j, "cut", m->cut);
    end_line(g, &j, p->request.number);
    g->n_done++;
    g->n_cut += m->cut > 0;
}

/* --- texts ----------------------------------------------------------------------------------- */

/* Makes a prompt a request. STATUS_USAGE: it cannot be one. */
static enum status fill_request(struct generation_many *g, struct many_slot *m,
                                struct request *request, struct err *e)
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
    *request = (struct request){.number = prompt->index,
                                .tokens = m->tokens,
                                .n_tokens = (int)n_tokens,
                                .n = prompt->n,
                                .seed = prompt->seed,
                                .stops = prompt->stops,
                                .n_stops = prompt->n_stops};
    return STATUS_OK;
}

/* A prompt was read for a slot: its text begins, or its line says why it cannot. */
static enum status begin_prompt_text(struct generation_many *g, struct slot *p, struct err *e)
{
    struct many_slot *m = &g->slots[p->sequence];
    struct request request;
    struct err why;
    g->n_begun++;
    if (!m->prompt.refused) {
        const enum status s = fill_request(g, m, &request, &why);
        if (s == STATUS_USAGE) {
            prompt_refuse(&m->prompt, &why);
        } else if (s != STATUS_OK) {
            *e = why;
            return s;
        }
    }
    if (m->prompt.refused) {
        print_refused(g, m->prompt.index, &m->prompt);
        return STATUS_OK;
    }
    if (m->text.cap > MOST_TEXT_KEPT)
        bytes_free(&m->text);
    m->text.len = 0;
    m->sampled.len = 0;
    return schedule_begin(&g->schedule, p, &request, e);
}

/* A round begins: prompts are read as long as there are slots for them, and waited for only if
 * nothing else is to be done. When no more can be read, those that were go on. */
static enum status begin_prompts(struct generation_many *g, struct err *e)
{
    struct schedule *s = &g->schedule;
    struct slot *p;
    progress_show_texts(g->progress, g->n_done + g->n_errors, g->n_begun, s->times.n_sampled,
                        lines_share(&g->prompts->lines));
    TRY(turns_check(&g->turns, e));
    while (output_flush(g->out) && !g->read && !signals_interrupted() &&
           turns_has_room(&g->turns, g->n_begun) && (p = schedule_vacant(s))) {
        enum lines_state state;
        g->reading = prompts_next(g->prompts, s->n_busy ? 0 : WAIT_MS, &state,
                                  &g->slots[p->sequence].prompt, &g->reading_error);
        g->read = g->reading != STATUS_OK || state == LINES_END;
        if (!g->read && state == LINES_LINE)
            TRY(begin_prompt_text(g, p, e));
        else if (s->n_busy > 0)
            break;
    }
    s->interrupted = !g->out->failed && signals_interrupted();
    if (g->out->failed || s->interrupted)
        schedule_end(s, STATUS_OK);
    return STATUS_OK;
}

static enum status keep_token(struct generation_many *g, const struct event *event, struct err *e)
{
    struct many_slot *m = &g->slots[event->slot->sequence];
    TRY(id_list_add(&m->sampled, event->token, e));
    return bytes_put(&m->text, event->ready)
               ? STATUS_OK
               : err_no_memory(e, "a text", m->text.len + event->ready.len);
}

static enum status end_prompt(struct generation_many *g, const struct event *event, struct err *e)
{
    const struct slot *p = event->slot;
    struct many_slot *m = &g->slots[p->sequence];
    const bool abandoned = event->end == END_ABANDONED;
    if (!abandoned && bytes_put(&m->text, event->ready)) {
        print_line(g, p, event->end);
        return STATUS_OK;
    }
    turns_drop(&g->turns, p->request.number);
    return abandoned ? STATUS_OK : err_no_memory(e, "a text", m->text.len + event->ready.len);
}

enum status generate_many_run(struct generation_many *g, struct err *e)
{
    struct schedule *s = &g->schedule;
    for (struct event event; schedule_next(s, &event, e);) {
        const struct slot *p = event.slot;
        enum status status = STATUS_OK;
        switch (event.kind) {
        case EVENT_ROUND:
            status = begin_prompts(g, e);
            break;
        case EVENT_SAMPLED:
            status = keep_token(g, &event, e);
            break;
        case EVENT_ENDED:
            status = end_prompt(g, &event, e);
            break;
        case EVENT_FAILED:
            prompt_refuse(&g->slots[p->sequence].prompt, e);
            print_refused(g, p->request.number, &g->slots[p->sequence].prompt);
            break;
        }
        if (status != STATUS_OK)
            schedule_end(s, status);
    }
    progress_end(g->progress);
    output_flush(g->out);
    if (s->status != STATUS_OK || g->reading == STATUS_OK)
        return s->status;
    *e = g->reading_error;
    return g->reading;
}
