#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lines.h"
#include "base/text.h"
#include "cli/generate.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/paths.h"
#include "cli/signals.h"
#include "model/model.h"

/* A line; no context holds more. */
#define LINE_MAX_BYTES ((size_t)16 << 20)
/* How long to wait for one before looking whether it is over. */
#define WAIT_MS 100

/* --- saved texts ----------------------------------------------------------------------------- */

/* Of what runs. All weights are read for it: once, and only where it is asked for. */
static uint64_t hash_of(struct generation *g)
{
    const struct model *m = g->job->checkpoint.model;
    const size_t n_heads = (size_t)m->config.n_layers * (size_t)m->config.n_heads;
    if (!g->hashed) {
        g->hash = model_fingerprint(m);
        if (g->job->off)
            g->hash = fingerprint_of(g->hash, g->job->off, n_heads);
        g->hashed = true;
    }
    return g->hash;
}

enum status generation_load(struct generation *g, const char *path, struct err *e)
{
    TRY(saved_read(path, &g->schedule, 0, hash_of(g), &g->job->seed, e));
    g->goes_on = true;
    g->n_before = (uint64_t)g->schedule.slots[0].len;
    return STATUS_OK;
}

enum status generation_save(struct generation *g, const char *option, const char *path,
                            struct err *e)
{
    if (g->schedule.slots[0].len == 0)
        return err_set(e, STATUS_USAGE, "there is no text yet to save in %.200s", path);
    TRY(path_spares(&command_generate.spec, g->o, option, path, e));
    const struct saved_marks marks = {hash_of(g), g->job->seed};
    return saved_write(path, &g->schedule, 0, &marks, e);
}

void generation_reseed(struct generation *g, uint64_t seed)
{
    g->job->seed = seed;
    rng_seed(sampler_stream(g->schedule.sampler, 0), seed, 0);
}

enum status generation_add(struct generation *g, struct err *e)
{
    struct job *job = g->job;
    const struct schedule *s = &g->schedule;
    const int cap = session_cap(s->session), room = schedule_room(s, 0), len = s->slots[0].len;
    char added[24] = ""; /* an empty line only goes on */
    free(job->tokens);
    job->tokens = NULL;
    job->n_tokens = 0;
    if (g->prompt.len > 0)
        TRY(tokenizer_reads_text(s->tokenizer, e));
    if (len == 0)
        TRY(tokens_of_prompt(s->tokenizer, g->prompt, INT_MAX, &job->tokens, &job->n_tokens, e));
    else if (g->prompt.len > 0)
        TRY(tokens_of_text(s->tokenizer, g->prompt, false, &job->tokens, &job->n_tokens, e));
    if (len == 0 && job->n_tokens > (size_t)cap)
        return err_set(e, STATUS_USAGE, "the line has %zu tokens, the context only %d: shorten it",
                       job->n_tokens, cap);
    if (job->n_tokens > 0)
        snprintf(added, sizeof added, "%zu ", job->n_tokens);
    if (len > 0 && (room < 0 || job->n_tokens > (size_t)room))
        return err_set(e, STATUS_USAGE,
                       "the text has %d tokens, the context %d: no room for %smore; shorten what "
                       "is added%s",
                       len, cap, added, s->shifts ? "" : ", raise -c, or go on with --shift");
    return STATUS_OK;
}

/* --- answers --------------------------------------------------------------------------------- */

struct talk {
    struct generation *g; /* without samples */
    struct lines lines;
    struct bytes line;           /* of several that belong together */
    bool terminal, over, joined; /* joined: the next line belongs to this one */
};

/* One text more, of what prompt and tokens now are; the next one goes on with it, without an echo.
 * Ctrl-C ends the answer; all other signals end the session. */
static enum status answer(struct talk *t, struct err *e)
{
    struct generation *g = t->g;
    const uint64_t begun = g->n_begun;
    g->n_samples = (int)begun + 1;
    g->end = END_ABANDONED;
    g->last_sampled = 0;
    TRY(generation_run(g, e));
    if (g->n_begun > begun) { /* no signal came first */
        g->goes_on = true;
        g->echo = false;
        g->n_before += g->job->n_tokens + (uint64_t)g->last_sampled;
    }
    generation_say_end(g);
    if (!signals_forgive() && g->schedule.interrupted)
        return STATUS_INTERRUPTED;
    t->over = g->out->failed;
    return STATUS_OK;
}

/* --- commands -------------------------------------------------------------------------------- */

enum talk_command {
    TALK_SAVE,
    TALK_LOAD,
    TALK_SEED,
    TALK_TEMP,
    TALK_LOGPROBS,
    TALK_HELP,
    TALK_QUIT
};

static const struct {
    const char *name, *argument, *help; /* argument NULL: it takes none */
} talk_commands[] = {
    [TALK_SAVE] = {"save", "FILE", "save the text so far and its cache"},
    [TALK_LOAD] = {"load", "FILE", "go on with a saved text instead"},
    [TALK_SEED] = {"seed", "N", "begin the random numbers of this seed"},
    [TALK_TEMP] = {"temp", "X", "the temperature from now on; 0: always the likeliest"},
    [TALK_LOGPROBS] = {"logprobs", "N", "JSON lines with the N likeliest of each token; 0: text"},
    [TALK_HELP] = {"help", NULL, "this list"},
    [TALK_QUIT] = {"quit", NULL, "the end, as is that of the input"},
};
#define N_TALK_COMMANDS ((int)(sizeof talk_commands / sizeof *talk_commands))

static void talk_help(void)
{
    for (int i = 0; i < N_TALK_COMMANDS; i++)
        fprintf(stderr, "  /%-8s %-4s  %s\n", talk_commands[i].name,
                talk_commands[i].argument ? talk_commands[i].argument : "", talk_commands[i].help);
    fputs("  //text          a text that begins with one slash\n"
          "  text\\           a text that goes on in the next line\n",
          stderr);
}

/* *expected, NULL before: what this argument is not. */
static enum status run_talk_command(struct talk *t, enum talk_command command, const char *argument,
                                    const char **expected, struct err *e)
{
    struct generation *g = t->g;
    uint64_t seed;
    double x;
    int n;
    switch (command) {
    case TALK_SAVE:
        return generation_save(g, "/save", argument, e);
    case TALK_LOAD:
        return generation_load(g, argument, e);
    case TALK_SEED:
        if (parse_u64(argument, &seed))
            generation_reseed(g, seed);
        else
            *expected = "an integer from 0 to 18446744073709551615";
        break;
    case TALK_TEMP:
        if (parse_double(argument, &x))
            return sampler_set_temperature(g->schedule.sampler, x, e);
        *expected = "a number from 0 on";
        break;
    case TALK_LOGPROBS:
        if (parse_int(argument, 0, INT_MAX, &n))
            generation_set_records(g, n);
        else
            *expected = "an integer from 0 on";
        break;
    case TALK_HELP:
        talk_help();
        break;
    case TALK_QUIT:
        t->over = true;
        break;
    }
    return STATUS_OK;
}

/* A line behind its slash. */
static enum status take_command(struct talk *t, const char *line, struct err *e)
{
    const size_t len = strcspn(line, " \t");
    const char *argument = line + len + strspn(line + len, " \t");
    const char *expected = NULL; /* instead of this argument */
    int which = 0;
    while (which < N_TALK_COMMANDS && (strlen(talk_commands[which].name) != len ||
                                       strncmp(talk_commands[which].name, line, len) != 0))
        which++;
    if (which == N_TALK_COMMANDS)
        return err_set(e, STATUS_USAGE, "unknown command '/%.60s'; /help lists them", line);
    const char *wanted = talk_commands[which].argument;
    if (!wanted != !*argument)
        expected = wanted ? wanted : "nothing behind it";
    else
        TRY(run_talk_command(t, (enum talk_command)which, argument, &expected, e));
    if (!expected)
        return STATUS_OK;
    return err_set(e, STATUS_USAGE, "/%s: expected %s, found '%.60s'", talk_commands[which].name,
                   expected, argument);
}

/* --- lines ----------------------------------------------------------------------------------- */

/* A line of input; one that ends with a backslash has another behind it, which belongs to it. What
 * fails is told, and the session goes on. */
static enum status take_line(struct talk *t, struct text read, bool too_long, struct err *e)
{
    if (!t->joined)
        t->line.len = 0;
    t->joined = text_ends_with(read, "\\");
    read.len -= t->joined;
    /* With a zero, for commands. */
    if (!bytes_put(&t->line, read) || !bytes_put(&t->line, (struct text){t->joined ? "\n" : "", 1}))
        return err_no_memory(e, "a line", t->line.len + read.len + 1);
    struct text line = {t->line.data, t->line.len - !t->joined};
    enum status s = STATUS_USAGE;
    if (too_long || line.len > LINE_MAX_BYTES) {
        err_format(e, "a line has more than %zu bytes", LINE_MAX_BYTES);
        t->joined = false;
    } else if (t->joined) {
        return STATUS_OK;
    } else if (text_starts_with(line, "/") && !text_starts_with(line, "//")) {
        s = take_command(t, line.data + 1, e);
    } else {
        const size_t escape = text_starts_with(line, "/"); /* of a text that begins with a slash */
        t->g->prompt = (struct text){line.data + escape, line.len - escape};
        s = generation_add(t->g, e);
        if (s == STATUS_OK)
            return answer(t, e);
    }
    if (s == STATUS_OK || s == STATUS_NO_MEMORY)
        return s;
    say(&(struct common_options){.quiet = false}, "%s", e->text); /* also with -q */
    return STATUS_OK;
}

/* To the end of the input, /quit, or a signal at the prompt: STATUS_INTERRUPTED. */
static enum status talk_lines(struct talk *t, struct err *e)
{
    while (!t->over) {
        enum lines_state state = LINES_LATER;
        enum status s = STATUS_OK;
        struct text line;
        if (t->terminal)
            fputs(t->joined ? ". " : "> ", stderr);
        while (s == STATUS_OK && state == LINES_LATER)
            s = signals_interrupted() ? STATUS_INTERRUPTED
                                      : lines_next(&t->lines, WAIT_MS, &state, &line, e);
        const bool ended = s == STATUS_OK && state == LINES_END;
        if (t->terminal && (s != STATUS_OK || ended))
            fputc('\n', stderr);
        if (s != STATUS_OK || (ended && !t->joined))
            return s;
        TRY(take_line(t, state == LINES_LINE ? line : text_of(""), state == LINES_LONG, e));
    }
    return STATUS_OK;
}

enum status talk_run(struct generation *g, bool begins, struct err *e)
{
    struct talk t = {
        .g = g, .terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO) && !g->o->common.quiet};
    enum status s = lines_open(&t.lines, "-", LINE_MAX_BYTES, e);
    if (s == STATUS_OK && begins)
        s = answer(&t, e);
    if (s == STATUS_OK)
        s = talk_lines(&t, e);
    lines_close(&t.lines);
    bytes_free(&t.line);
    return s;
}
