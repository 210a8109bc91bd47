#include "cli/generate_talk.h"

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
        TRY(tokens_of_prompt(s->tokenizer, g->prompt, INT_MAX, &job->tokens, &job->n_tokens, e));
    else if (g->prompt.len > 0)
        TRY(tokens_of_text(s->tokenizer, g->prompt, false, &job->tokens, &job->n_tokens, e));
    if ((int64_t)job->n_tokens <= room)
        return STATUS_OK;
    return err_usage(
        e, "the text has %d tokens, the context %d: no room for %zu more; shorten what is added",
        len, cap, job->n_tokens);
}

/* --- answers --------------------------------------------------------------------------------- */

struct talk {
    struct generation *g; /* without samples */
    struct lines lines;
    struct editor *editor; /* NULL: lines are read as they come */
    struct bytes line;     /* of several that belong together */
    bool over, joined;     /* joined: the next line belongs to this one */
};

/* One text more; the next one goes on with it, without an echo. Ctrl-C ends the answer, all other
 * signals the session. */
static enum status answer(struct talk *t, struct err *e)
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

/* --- commands -------------------------------------------------------------------------------- */

enum { RESET, COUNT, SEED, TEMP, HELP, QUIT, N_COMMANDS };

static const struct {
    const char *name, *argument, *help;
    const char *expected; /* of the argument */
} commands[] = {
    [RESET] = {"reset", "", "forget the text so far; the random numbers begin again",
               "nothing behind it"},
    [COUNT] = {"n", "N", "tokens of an answer from now on, at most", "an integer from 0 on"},
    [SEED] = {"seed", "N", "begin the random numbers of this seed",
              "an integer from 0 to 18446744073709551615"},
    [TEMP] = {"temp", "X", "the temperature from now on; 0: always the likeliest",
              "a number from 0 on"},
    [HELP] = {"help", "", "this list", "nothing behind it"},
    [QUIT] = {"quit", "", "the end, as is that of the input", "nothing behind it"},
};

/* A line behind its slash. */
static enum status take_command(struct talk *t, const char *line, struct err *e)
{
    struct generation *g = t->g;
    const size_t len = strcspn(line, " \t");
    const char *argument = line + len + strspn(line + len, " \t");
    uint64_t seed = 0;
    double x = 0;
    int n = 0, which = 0;
    while (which < N_COMMANDS && !text_is(text_span(line, len), commands[which].name))
        which++;
    if (which == N_COMMANDS)
        return err_usage(e, "unknown command '/%.60s'; /help lists them", line);
    const struct common_options *o = &g->o->common;
    bool right = !*commands[which].argument == !*argument;
    if (which == COUNT)
        right = parse_int(argument, 0, INT_MAX, &n);
    else if (which == SEED)
        right = parse_u64(argument, &seed);
    else if (which == TEMP)
        right = parse_double(argument, &x) && x >= 0;
    if (!right)
        return err_usage(e, "/%s: expected %s, found '%.60s'", commands[which].name,
                         commands[which].expected, argument);
    switch (which) {
    case RESET:
        g->schedule.slots[0].len = 0;
        g->goes_on = false;
        say(o, "the next line begins a text");
        break;
    case COUNT:
        g->n = n;
        say(o, "answers of at most %d token%s", n, plural(n));
        break;
    case SEED:
        g->job->seed = seed;
        sampler_seed(g->schedule.sampler, 0, seed, 0);
        say(o, "seed %" PRIu64, seed);
        break;
    case TEMP:
        sampler_set_temperature(g->schedule.sampler, x);
        say(o, "temperature %g", x);
        break;
    case HELP:
        for (int i = 0; i < N_COMMANDS; i++)
            fprintf(stderr, "  /%-8s %-6s  %s\n", commands[i].name, commands[i].argument,
                    commands[i].help);
        fputs("  //text            a text that begins with one slash\n"
              "  text\\             a text that goes on in the next line\n",
              stderr);
        break;
    case QUIT:
        t->over = true;
        break;
    }
    return STATUS_OK;
}

/* A line of input; one that ends with a backslash has another behind it, which belongs to it. What
 * fails is told, and the session goes on. */
static enum status take_line(struct talk *t, struct text read, bool too_long, struct err *e)
{
    if (!t->joined)
        t->line.len = 0;
    t->joined = text_ends_with(read, "\\");
    read.len -= t->joined;
    /* With a zero, for commands. */
    if (!bytes_put(&t->line, read) || !bytes_put(&t->line, text_span(t->joined ? "\n" : "", 1)))
        return err_no_memory(e, "a line", t->line.len + read.len + 1);
    struct text line = {t->line.data, t->line.len - !t->joined};
    enum status s = STATUS_OK;
    if (too_long || line.len > LINE_MAX_BYTES) {
        s = err_usage(e, "a line has more than %zu bytes", LINE_MAX_BYTES);
        t->joined = false;
    } else if (t->joined) {
        return STATUS_OK;
    } else if (text_starts_with(line, "/") && !text_starts_with(line, "//")) {
        s = take_command(t, line.data + 1, e);
    } else {
        text_cut(&line, text_starts_with(line, "/")); /* of a text that begins with a slash */
        t->g->prompt = line;
        s = add_prompt(t->g, e);
        if (s == STATUS_OK)
            return answer(t, e);
    }
    if (s == STATUS_OK || s == STATUS_NO_MEMORY)
        return s;
    say(&(struct common_options){.quiet = false}, "%s", e->text); /* also with -q */
    return STATUS_OK;
}

/* A line that is typed. Ctrl-C forgets it, and those that it belongs to; where there is nothing to
 * forget it ends the session. */
static enum status type_line(struct talk *t, const char *prompt, struct text *line,
                             enum lines_state *state, struct err *e)
{
    enum editor_end end;
    TRY(editor_read(t->editor, prompt, &end, line, e));
    *state = end == EDITOR_LINE ? LINES_LINE : end == EDITOR_CANCELLED ? LINES_LATER : LINES_END;
    if (end == EDITOR_CANCELLED && line->len == 0 && !t->joined)
        return STATUS_INTERRUPTED;
    if (end == EDITOR_CANCELLED)
        t->joined = false;
    return STATUS_OK;
}

/* Waits for the next line, behind a prompt if somebody types it; LINES_LATER: it was forgotten. */
static enum status next_line(struct talk *t, bool prompts, struct text *line,
                             enum lines_state *state, struct err *e)
{
    const char *prompt = t->joined ? ". " : "> ";
    enum status s = STATUS_OK;
    if (t->editor)
        return type_line(t, prompt, line, state, e);
    if (prompts)
        fputs(prompt, stderr);
    *state = LINES_LATER;
    while (s == STATUS_OK && *state == LINES_LATER)
        s = signals_interrupted() ? STATUS_INTERRUPTED
                                  : lines_next(&t->lines, WAIT_MS, state, line, e);
    if (prompts && (s != STATUS_OK || *state == LINES_END))
        fputc('\n', stderr);
    return s;
}

enum status talk_run(struct generation *g, bool begins, struct err *e)
{
    const bool prompts = isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && !g->o->common.quiet;
    const char *term = environment("TERM");
    struct editor editor = {.line.len = 0};
    struct talk t = {.g = g, .editor = prompts && term && !str_is(term, "dumb") ? &editor : NULL};
    if (prompts)
        fputs("A session: each line continues the text so far and is answered. /help lists\n"
              "commands; Ctrl-C stops an answer or clears the line, Ctrl-D ends the session.\n",
              stderr);
    enum status s = lines_open(&t.lines, "-", LINE_MAX_BYTES, e);
    if (s == STATUS_OK && begins)
        s = answer(&t, e);
    /* To the end of the input, /quit, or a signal at the prompt. */
    while (s == STATUS_OK && !t.over) {
        enum lines_state state;
        struct text line = text_of("");
        const uint64_t before = clock_ns();
        s = next_line(&t, prompts, &line, &state, e);
        if (!g->schedule.times.first_token_at)
            g->waited_ns += clock_ns() - before;
        t.over = state == LINES_END && !t.joined;
        if (s == STATUS_INTERRUPTED)
            say(&g->o->common, "interrupted: the session ends");
        else if (s == STATUS_OK && !t.over && state != LINES_LATER)
            s = take_line(&t, state == LINES_LINE ? line : text_of(""), state == LINES_LONG, e);
    }
    lines_close(&t.lines);
    bytes_free(&t.line);
    editor_free(&editor);
    return s;
}
