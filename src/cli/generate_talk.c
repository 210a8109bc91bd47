#include "cli/generate_talk.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/generate_report.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/signals.h"

/* A line; no context holds more. */
#define LINE_MAX_BYTES ((size_t)16 << 20)
/* How long to wait for one before looking whether it is over. */
#define WAIT_MS 100

/* --- answers --------------------------------------------------------------------------------- */

/* An error that leaves the session as it was; -q does not silence it. */
static void tell(const struct err *e)
{
    static const struct common_options always = {.quiet = false};
    say(&always, "%s", e->text);
}

/* Ctrl-C ends the answer; all other signals end the session. */
static enum status answer(struct talk *t, struct err *e)
{
    struct generation *g = t->state->generation;
    TRY(generate_more(g, e));
    if (!g->out->failed)
        generate_say_end(g, t->state->runtime->common);
    if (!signals_forgive() && g->schedule.interrupted)
        return STATUS_INTERRUPTED;
    t->over = g->out->failed;
    return STATUS_OK;
}

/* The line's tokens are what comes next. */
static enum status read_tokens(struct talk *t, struct text line, struct err *e)
{
    struct generation *g = t->state->generation;
    const struct tokenizer *tokenizer = g->schedule.tokenizer;
    const int cap = session_cap(g->schedule.session);
    size_t n;
    free(t->tokens);
    t->tokens = NULL;
    if (line.len > 0)
        TRY(tokenizer_reads_text(tokenizer, e));
    if (generate_state_len(t->state) > 0) {
        TRY(generate_state_tokens(t->state, line, &t->tokens, &n, e));
    } else {
        TRY(tokens_of_prompt(tokenizer, line, INT_MAX, &t->tokens, &n, e));
        if (n > (size_t)cap)
            return err_set(e, STATUS_USAGE,
                           "the line has %zu tokens, the context only %d: shorten it", n, cap);
    }
    g->prompt = line;
    g->tokens = t->tokens;
    g->n_tokens = (int)n;
    return STATUS_OK;
}

static enum status take_text(struct talk *t, struct text line, struct err *e)
{
    const enum status s = read_tokens(t, line, e);
    if (s == STATUS_OK)
        return answer(t, e);
    if (s == STATUS_NO_MEMORY)
        return s;
    tell(e);
    return STATUS_OK;
}

/* --- commands -------------------------------------------------------------------------------- */

static enum status run_save(struct talk *t, const char *path, struct err *e)
{
    return generate_state_save(t->state, "/save", path, e);
}

static enum status run_load(struct talk *t, const char *path, struct err *e)
{
    return generate_state_load(t->state, path, e);
}

static enum status run_seed(struct talk *t, const char *text, struct err *e)
{
    uint64_t seed;
    if (!parse_u64(text, &seed))
        return err_set(e, STATUS_USAGE,
                       "/seed: expected an integer from 0 to %" PRIu64 ", found '%.60s'",
                       UINT64_MAX, text);
    generate_state_seed(t->state, seed);
    return STATUS_OK;
}

static enum status run_temp(struct talk *t, const char *text, struct err *e)
{
    double x;
    if (!parse_double(text, &x))
        return err_set(e, STATUS_USAGE, "/temp: expected a number from 0 on, found '%.60s'", text);
    return sampler_set_temperature(t->state->generation->schedule.sampler, x, e);
}

static enum status run_logprobs(struct talk *t, const char *text, struct err *e)
{
    struct generation *g = t->state->generation;
    int n;
    if (!parse_int(text, 0, INT_MAX, &n))
        return err_set(e, STATUS_USAGE, "/logprobs: expected an integer from 0 on, found '%.60s'",
                       text);
    generate_set_records(g, n);
    return STATUS_OK;
}

static enum status run_quit(struct talk *t, const char *none, struct err *e)
{
    (void)none;
    (void)e;
    t->over = true;
    return STATUS_OK;
}

static enum status run_help(struct talk *t, const char *none, struct err *e);

static const struct talk_command {
    const char *name, *argument; /* argument NULL: it takes none */
    const char *help;
    enum status (*run)(struct talk *t, const char *argument, struct err *e);
} commands[] = {
    {"save", "FILE", "save the text so far and its cache", run_save},
    {"load", "FILE", "go on with a saved text instead", run_load},
    {"seed", "N", "begin the random numbers of this seed", run_seed},
    {"temp", "X", "the temperature from now on; 0: always the likeliest", run_temp},
    {"logprobs", "N", "JSON lines with the N likeliest of each token; 0: text", run_logprobs},
    {"help", NULL, "this list", run_help},
    {"quit", NULL, "the end, as is that of the input", run_quit},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static enum status run_help(struct talk *t, const char *none, struct err *e)
{
    (void)t;
    (void)none;
    (void)e;
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(stderr, "  /%-8s %-4s  %s\n", commands[i].name,
                commands[i].argument ? commands[i].argument : "", commands[i].help);
    fputs("  //text          a text that begins with one slash\n"
          "  text\\           a text that goes on in the next line\n",
          stderr);
    return STATUS_OK;
}

static enum status run_command(struct talk *t, const char *line, struct err *e)
{
    const size_t len = strcspn(line, " \t");
    const char *argument = line + len + strspn(line + len, " \t");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        const struct talk_command *c = &commands[i];
        if (strlen(c->name) != len || strncmp(c->name, line, len) != 0)
            continue;
        if (!c->argument == !*argument)
            return c->run(t, argument, e);
        return err_set(e, STATUS_USAGE, "/%s: expected %s, found '%.60s'", c->name,
                       c->argument ? c->argument : "nothing behind it", argument);
    }
    return err_set(e, STATUS_USAGE, "unknown command '/%.60s'; /help lists them", line);
}

/* What fails is told, and the session goes on. */
static enum status take_command(struct talk *t, const char *line, struct err *e)
{
    const enum status s = run_command(t, line, e);
    if (s == STATUS_NO_MEMORY)
        return s;
    if (s != STATUS_OK)
        tell(e);
    return STATUS_OK;
}

/* --- lines ----------------------------------------------------------------------------------- */

static void refuse_line(struct talk *t)
{
    struct err e;
    err_format(&e, "a line has more than %zu bytes", LINE_MAX_BYTES);
    tell(&e);
    t->joined = false;
}

/* Adds a line to what is joined; one that ends with a backslash has another behind it. */
static enum status join_line(struct talk *t, struct text line, struct err *e)
{
    if (!t->joined)
        t->line.len = 0;
    t->joined = text_ends_with(line, "\\");
    line.len -= t->joined;
    if (!bytes_put(&t->line, line) || !bytes_put(&t->line, text_of(t->joined ? "\n" : "")))
        return err_no_memory(e, "a line", t->line.len + line.len + 1);
    return STATUS_OK;
}

static enum status take_line(struct talk *t, struct text read, struct err *e)
{
    TRY(join_line(t, read, e));
    struct text line = bytes_text(&t->line);
    if (line.len > LINE_MAX_BYTES)
        refuse_line(t);
    if (line.len > LINE_MAX_BYTES || t->joined)
        return STATUS_OK;
    if (!text_starts_with(line, "/"))
        return take_text(t, line, e);
    line = (struct text){line.data + 1, line.len - 1};
    if (text_starts_with(line, "/"))
        return take_text(t, line, e);
    if (!bytes_put(&t->line, (struct text){"", 1}))
        return err_no_memory(e, "a line", t->line.len + 1);
    return take_command(t, t->line.data + 1, e);
}

/* STATUS_INTERRUPTED: by a signal, before there was one. */
static enum status await_line(struct talk *t, enum lines_state *state, struct text *line,
                              struct err *e)
{
    if (t->terminal)
        fputs(t->joined ? ". " : "> ", stderr);
    do {
        if (signals_interrupted())
            return STATUS_INTERRUPTED;
        TRY(lines_next(&t->lines, WAIT_MS, state, line, e));
    } while (*state == LINES_LATER);
    return STATUS_OK;
}

static enum status talk_lines(struct talk *t, struct err *e)
{
    while (!t->over) {
        enum lines_state state;
        struct text line;
        const enum status s = await_line(t, &state, &line, e);
        const bool ended = s == STATUS_OK && state == LINES_END;
        if (t->terminal && (s != STATUS_OK || ended))
            fputc('\n', stderr);
        if (s != STATUS_OK || (ended && !t->joined))
            return s;
        if (state == LINES_LONG)
            refuse_line(t);
        else
            TRY(take_line(t, ended ? text_of("") : line, e));
    }
    return STATUS_OK;
}

enum status talk_run(struct talk *t, struct err *e)
{
    t->terminal =
        isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && !t->state->runtime->common->quiet;
    enum status s = lines_open(&t->lines, "-", LINE_MAX_BYTES, e);
    if (s == STATUS_OK && t->begins)
        s = answer(t, e);
    if (s == STATUS_OK)
        s = talk_lines(t, e);
    lines_close(&t->lines);
    bytes_free(&t->line);
    free(t->tokens);
    return s;
}
