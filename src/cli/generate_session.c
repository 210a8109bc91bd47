#include "cli/generate_session.h"

#include "cli/editor.h"
#include "cli/signals.h"

#include <unistd.h>

/* Makes g->prompt, added to the text so far, the job's tokens: behind a text without begin-of-text,
 * and none of an empty prompt. STATUS_USAGE if there is no room for them; the failures of
 * tokens_of_text. */
static enum status add_prompt(struct generation *g, struct err *e)
{
    struct job *job = g->job;
    const struct schedule *s = &g->schedule;
    const int cap = session_cap(s->session), len = s->slots[0].len;
    const int64_t room = len == 0 ? cap : schedule_room(s, 0);
    free(job->tokens);
    job->tokens = NULL;
    job->n_tokens = 0;
    if (g->prompt.len > 0)
        TRY(tokenizer_reads_text(s->tokenizer, e));
    if (len == 0)
        TRY(tokens_of_prompt(s->tokenizer, g->prompt, &job->tokens, &job->n_tokens, e));
    else if (g->prompt.len > 0)
        TRY(tokens_of_text(s->tokenizer, g->prompt, false, &job->tokens, &job->n_tokens, e));
    if ((int64_t)job->n_tokens <= room)
        return STATUS_OK;
    return err_usage(
        e, "the text has %d tokens, the context %d: no room for %zu more; shorten what is added",
        len, cap, job->n_tokens);
}

/* --- lines ----------------------------------------------------------------------------------- */

struct interactive {
    struct generation *g; /* without samples */
    struct lines lines;
    struct editor *editor; /* NULL: lines are read as they come */
    bool over;
};

/* One text more; the next one goes on with it, without an echo. Ctrl-C ends the answer, all other
 * signals the session. */
static enum status answer(struct interactive *t, struct err *e)
{
    struct generation *g = t->g;
    g->n_texts = g->n_begun + 1;
    g->end = END_ABANDONED;
    g->last_sampled = 0;
    const enum status s = generation_run(g, e);
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        return s;
    if (g->n_begun == g->n_texts) { /* no signal came first */
        g->goes_on = true;
        g->echo = false;
    }
    t->over = g->out->failed;
    return signals_forgive() ? STATUS_OK : s;
}

/* A line that begins with a slash. */
static enum status run_command(struct interactive *t, struct text line, struct err *e)
{
    struct generation *g = t->g;
    if (text_is(line, "/reset")) {
        g->schedule.slots[0].len = 0;
        g->goes_on = false;
        log_info(&g->o->common, "the next line begins a text");
    } else if (text_is(line, "/quit")) {
        t->over = true;
    } else if (text_is(line, "/help")) {
        fputs("  /reset   forget the text so far; the random numbers begin again\n"
              "  /quit    end the session\n"
              "  //text   a text that begins with one slash\n",
              stderr);
    } else {
        return err_usage(e, "unknown command '%.*s'; /help lists them", (int)MIN(line.len, 60),
                         line.data);
    }
    return STATUS_OK;
}

/* Answers a line, or runs its command. What fails is reported, and the session goes on. */
static enum status handle_line(struct interactive *t, struct text line, bool too_long,
                               struct err *e)
{
    const bool is_text = !text_starts_with(line, "/") || text_starts_with(line, "//");
    enum status s;
    if (too_long) {
        s = err_usage(e, "a line has more than %zu bytes", LINE_MAX_BYTES);
    } else if (is_text) {
        text_cut(&line, text_starts_with(line, "/"));
        t->g->prompt = line;
        s = add_prompt(t->g, e);
        if (s == STATUS_OK)
            return answer(t, e);
    } else {
        s = run_command(t, line, e);
    }
    if (s == STATUS_OK || s == STATUS_NO_MEMORY)
        return s;
    log_error("%s", e->text);
    return STATUS_OK;
}

/* A line that is typed. Ctrl-C clears it; where there is nothing to clear it ends the session. */
static enum status type_line(struct editor *editor, struct text *line, enum lines_state *state,
                             struct err *e)
{
    enum editor_end end;
    do
        TRY(editor_read(editor, "> ", &end, line, e));
    while (end == EDITOR_CANCELLED && line->len > 0);
    *state = end == EDITOR_LINE ? LINES_LINE : LINES_END;
    return end == EDITOR_CANCELLED ? STATUS_INTERRUPTED : STATUS_OK;
}

/* Waits for the next line, LINES_LONG or the end. */
static enum status next_line(struct interactive *t, struct text *line, enum lines_state *state,
                             struct err *e)
{
    if (t->editor)
        return type_line(t->editor, line, state, e);
    for (*state = LINES_LATER; *state == LINES_LATER;) {
        if (signals_interrupted())
            return STATUS_INTERRUPTED;
        TRY(lines_next(&t->lines, WAIT_MS, state, line, e));
    }
    return STATUS_OK;
}

/* --- the session ----------------------------------------------------------------------------- */

/* Whether somebody types lines, in a terminal in which they can be edited. */
static bool is_typed(const struct generation *g)
{
    const char *term = environment("TERM");
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && !g->o->common.quiet && term &&
           !str_is(term, "dumb");
}

enum status generation_session(struct generation *g, bool begins, struct err *e)
{
    struct editor editor = {.line.len = 0};
    struct interactive t = {.g = g, .editor = is_typed(g) ? &editor : NULL};
    if (t.editor)
        fputs("A session: each line continues the text so far and is answered. /help lists\n"
              "commands; Ctrl-C stops an answer or clears the line, Ctrl-D ends the session.\n",
              stderr);
    enum status s = lines_open(&t.lines, "-", LINE_MAX_BYTES, e);
    if (s == STATUS_OK && begins)
        s = answer(&t, e);
    /* To the end of the input, /quit, or a signal at the prompt. */
    while (s == STATUS_OK && !t.over) {
        enum lines_state state = LINES_END;
        struct text line;
        s = next_line(&t, &line, &state, e);
        t.over = state == LINES_END;
        if (s == STATUS_INTERRUPTED)
            log_info(&g->o->common, "interrupted: the session ends");
        else if (s == STATUS_OK && !t.over)
            s = handle_line(&t, line, state == LINES_LONG, e);
    }
    lines_close(&t.lines);
    editor_free(&editor);
    return s;
}
