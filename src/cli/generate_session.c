#include "cli/generate_session.h"

#include <errno.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/signals.h"

/* Makes g->prompt, added to the text so far, the job's tokens: behind a text without begin-of-text,
 * and none of an empty prompt. STATUS_USAGE if there is no room for them; the failures of
 * tokenizer_encode_after. */
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
        TRY(tokenizer_encode_prompt(s->tokenizer, g->prompt, &job->tokens, &job->n_tokens, e));
    else if (g->prompt.len > 0)
        TRY(tokenizer_encode_after(s->tokenizer, g->prompt, false, &job->tokens, &job->n_tokens,
                                   e));
    if ((int64_t)job->n_tokens <= room)
        return STATUS_OK;
    return err_usage(
        e, "the text has %d tokens, the context %d: no room for %zu more; shorten what is added",
        len, cap, job->n_tokens);
}

/* --- lines ----------------------------------------------------------------------------------- */

/* Milliseconds that reading waits before it checks whether a signal came. */
#define WAIT_MS 100
/* Bytes of a line at most, and of what is read at once. */
#define LINE_MAX_BYTES ((size_t)16 << 20)
#define PIECE          ((size_t)64 << 10)

struct interactive {
    struct generation *g; /* without samples */
    struct bytes read;    /* of standard input */
    size_t given;         /* bytes of it that lines were taken of */
    bool ended;           /* there is no more of it */
    bool typed;           /* it is a terminal, which edits a line before it gives it; and */
    char cancel; /* what Ctrl-C is there: it comes at the end of a line, in place of '\n' */
    bool over;
};

/* Reads another piece of standard input, or finds its end. */
static enum status read_piece(struct interactive *t, struct err *e)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    ssize_t n;
    t->read.len -= t->given;
    if (t->given > 0)
        memmove(t->read.data, t->read.data + t->given, t->read.len);
    t->given = 0;
    if (t->read.len > LINE_MAX_BYTES)
        return err_usage(e, "standard input: a line has more than %zu bytes", LINE_MAX_BYTES);
    if (!bytes_reserve(&t->read, PIECE))
        return err_no_memory(e, "a line", t->read.len + PIECE);
    do {
        if (signals_interrupted())
            return STATUS_INTERRUPTED;
        errno = EINTR;
        n = poll(&input, 1, WAIT_MS) > 0 ? read(STDIN_FILENO, t->read.data + t->read.len, PIECE)
                                         : -1;
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0)
        return file_failure(e, STATUS_BAD_FILE, file_input_name("-"), "read", errno);
    t->read.len += n;
    t->ended = n == 0;
    return STATUS_OK;
}

/* What somebody who types is shown: a prompt, or that a line is over. */
static void show(const struct interactive *t, const char *text)
{
    if (t->typed && !t->g->o->common.quiet)
        fputs(text, stderr);
}

/* The next line, or the session is over. STATUS_INTERRUPTED: a signal, or Ctrl-C on a line that has
 * nothing to be cleared. */
static enum status next_line(struct interactive *t, struct text *line, struct err *e)
{
    show(t, "> ");
    for (;;) {
        struct text rest = bytes_text(&t->read);
        text_cut(&rest, t->given);
        if (t->typed && rest.len > 0 && rest.data[rest.len - 1] == t->cancel) {
            t->given = t->read.len;
            if (rest.len == 1)
                return STATUS_INTERRUPTED;
            show(t, "\n> ");
        } else if (t->ended || memchr(rest.data, '\n', rest.len)) {
            t->over = rest.len == 0;
            *line = text_cut_line(&rest);
            t->given = t->read.len - rest.len;
            return STATUS_OK;
        }
        TRY(read_piece(t, e));
    }
}

/* The same while the terminal gives Ctrl-C as an end of the line that is typed, which is then
 * known, and not as a signal. */
static enum status type_line(struct interactive *t, struct text *line, struct err *e)
{
    struct termios before;
    if (tcgetattr(STDIN_FILENO, &before) != 0)
        return next_line(t, line, e);
    struct termios typing = before;
    t->cancel = (char)before.c_cc[VINTR];
    typing.c_cc[VEOL] = before.c_cc[VINTR];
    typing.c_cc[VINTR] = _POSIX_VDISABLE;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &typing);
    const enum status s = next_line(t, line, e);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    if (s != STATUS_OK || t->over)
        show(t, "\n");
    return s;
}

/* --- the session ----------------------------------------------------------------------------- */

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

/* Answers a line. One that has no room is told, and the session goes on. */
static enum status answer_line(struct interactive *t, struct text line, struct err *e)
{
    t->g->prompt = line;
    const enum status s = add_prompt(t->g, e);
    if (s == STATUS_OK)
        return answer(t, e);
    if (s == STATUS_NO_MEMORY)
        return s;
    log_error("%s", e->text);
    return STATUS_OK;
}

enum status generation_session(struct generation *g, bool begins, struct err *e)
{
    struct interactive t = {.g = g, .typed = isatty(STDIN_FILENO) == 1};
    if (t.typed)
        log_info(&g->o->common,
                 "a session: each line continues the text so far and is answered; "
                 "Ctrl-C stops an answer or clears the line, Ctrl-D ends the session");
    enum status s = begins ? answer(&t, e) : STATUS_OK;
    while (s == STATUS_OK && !t.over) {
        struct text line;
        s = t.typed ? type_line(&t, &line, e) : next_line(&t, &line, e);
        if (s == STATUS_INTERRUPTED)
            log_info(&g->o->common, "interrupted: the session ends");
        else if (s == STATUS_OK && !t.over)
            s = answer_line(&t, line, e);
    }
    bytes_free(&t.read);
    return s;
}
