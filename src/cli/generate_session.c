#include "cli/generate.h"

#include <errno.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/signals.h"
#include "show/editor.h"

/* Makes the job's tokens of g->prompt, which is added to the text so far. Behind a text they have
 * no begin-of-text token, and those of an empty prompt are none. STATUS_USAGE if there is no room
 * for them; the failures of tokenizer_encode. */
static enum status add_prompt(struct generation *g, struct err *e)
{
    struct job *job = g->job;
    const struct schedule *s = &g->schedule;
    const int cap = s->n_ctx, len = s->slots[0].len;
    const int64_t room = len == 0 ? cap : schedule_room(s, 0);
    free(job->tokens);
    job->tokens = NULL;
    job->n_tokens = 0;
    if (g->prompt.len > 0)
        TRY(tokenizer_reads_text(s->tokenizer, e));
    if (len == 0)
        TRY(tokenizer_encode_prompt(s->tokenizer, g->prompt, &job->tokens, &job->n_tokens, e));
    else if (g->prompt.len > 0)
        TRY(tokenizer_encode(s->tokenizer, g->prompt, false, &job->tokens, &job->n_tokens, e));
    if ((int64_t)job->n_tokens <= room)
        return STATUS_OK;
    return err_usage(
        e, "the text has %d token%s, the context %d: no room for %zu more; shorten what is added",
        len, plural(len), cap, job->n_tokens);
}

/* --- lines ----------------------------------------------------------------------------------- */

/* Milliseconds that reading waits before it checks whether a signal came. */
#define WAIT_MS 100
/* The most bytes of a line, and the bytes that are read at once. */
#define LINE_MAX_BYTES ((size_t)16 << 20)
#define PIECE          ((size_t)64 << 10)

struct interactive {
    struct generation *g; /* without samples */
    struct bytes read;    /* of standard input */
    size_t given;         /* bytes of `read` that were lines already */
    bool ended;           /* standard input has ended */
    bool typed;           /* lines are typed on a terminal */
    struct editor editor; /* of lines that are typed */
    struct bytes drawing; /* what the editor has drawn last */
    bool over;
};

/* Reads another piece of standard input, or finds its end, or that nothing came for WAIT_MS. */
static enum status read_piece(struct interactive *t, struct err *e)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    t->read.len -= t->given;
    if (t->given > 0)
        memmove(t->read.data, t->read.data + t->given, t->read.len);
    t->given = 0;
    if (t->read.len > LINE_MAX_BYTES)
        return err_usage(e, "standard input: a line has more than %zu bytes", LINE_MAX_BYTES);
    if (!bytes_reserve(&t->read, PIECE))
        return err_no_memory(e, "a line", t->read.len + PIECE);
    if (signals_interrupted())
        return STATUS_INTERRUPTED;
    if (poll(&input, 1, WAIT_MS) <= 0)
        return STATUS_OK;
    const ssize_t n = read(STDIN_FILENO, t->read.data + t->read.len, PIECE);
    if (n < 0 && errno != EINTR && errno != EAGAIN)
        return file_failure(e, STATUS_BAD_FILE, file_input_name("-"), "read", errno);
    t->read.len += MAX(n, 0);
    t->ended = n == 0;
    return STATUS_OK;
}

/* Waits for the next line, or finds that the session is over. STATUS_INTERRUPTED: a signal came. */
static enum status next_line(struct interactive *t, struct text *line, struct err *e)
{
    for (;;) {
        struct text rest = bytes_text(&t->read);
        text_cut(&rest, t->given);
        if (t->ended || memchr(rest.data, '\n', rest.len)) {
            t->over = rest.len == 0;
            *line = text_cut_line(&rest);
            t->given = t->read.len - rest.len;
            return STATUS_OK;
        }
        TRY(read_piece(t, e));
    }
}

/* --- lines that are typed -------------------------------------------------------------------- */

static enum status draw(struct interactive *t, enum editor_state state, struct err *e)
{
    t->drawing.len = 0;
    if (!editor_draw(&t->editor, state, terminal_width(STDERR_FILENO), &t->drawing))
        return err_no_memory(e, "a line that is shown", t->editor.line.len);
    fwrite(t->drawing.data, 1, t->drawing.len, stderr);
    return STATUS_OK;
}

/* Lets a line be typed until a key ends it, or nothing more can be read. All keys that were read
 * are taken before the line is drawn. */
static enum status edit_line(struct interactive *t, enum editor_state *state, struct err *e)
{
    enum status s = STATUS_OK;
    editor_begin(&t->editor, "> ");
    for (*state = EDITOR_GOES_ON; *state == EDITOR_GOES_ON;) {
        while (*state == EDITOR_GOES_ON && t->given < t->read.len)
            *state = editor_type(&t->editor, t->read.data[t->given++]);
        if (*state == EDITOR_NO_MEMORY)
            return err_no_memory(e, "the lines of a session", t->editor.history.len);
        if (*state == EDITOR_GOES_ON && (t->ended || s != STATUS_OK))
            *state = EDITOR_END_OF_INPUT;
        TRY(draw(t, *state, e));
        if (*state == EDITOR_GOES_ON)
            s = read_piece(t, e);
    }
    return s;
}

/* Waits for the next line that is typed, or finds that the session is over. While a line is typed
 * the terminal gives each key as bytes and shows none. STATUS_INTERRUPTED: a signal came, or Ctrl-C
 * on an empty line. */
static enum status type_line(struct interactive *t, struct text *line, struct err *e)
{
    struct termios before;
    enum editor_state state;
    enum status s;
    if (tcgetattr(STDIN_FILENO, &before) != 0)
        return file_failure(e, STATUS_BAD_FILE, file_input_name("-"), "read", errno);
    struct termios typing = before;
    typing.c_iflag &= ~(tcflag_t)IXON;
    typing.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN | ISIG);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &typing);
    do
        s = edit_line(t, &state, e);
    while (s == STATUS_OK && state == EDITOR_CANCELLED && t->editor.line.len > 0);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    t->over = state == EDITOR_END_OF_INPUT;
    *line = bytes_text(&t->editor.line);
    return s == STATUS_OK && state == EDITOR_CANCELLED ? STATUS_INTERRUPTED : s;
}

/* --- the session ----------------------------------------------------------------------------- */

/* Makes one text more, with which the next one goes on without an echo. Ctrl-C ends the answer, any
 * other signal the session. */
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
    t->over = g->job->out->failed;
    return signals_forgive() ? STATUS_OK : s;
}

/* Answers a line. If there is no room for it, a message says so and the session goes on. */
static enum status answer_line(struct interactive *t, struct text line, struct err *e)
{
    t->g->prompt = line;
    const enum status s = add_prompt(t->g, e);
    if (s == STATUS_OK)
        return answer(t, e);
    if (s == STATUS_NO_MEMORY)
        return s;
    log_error(e->text);
    return STATUS_OK;
}

enum status generation_session(struct generation *g, struct err *e)
{
    struct interactive t = {.g = g};
    t.typed = isatty(STDIN_FILENO) && terminal_obeys(STDERR_FILENO) && !g->o->common.quiet;
    if (t.typed)
        log_info(&g->o->common,
                 "a session: each line continues the text so far and is answered; "
                 "Ctrl-C stops an answer or clears the line, Ctrl-D ends the session");
    enum status s = g->begins ? answer(&t, e) : STATUS_OK;
    while (s == STATUS_OK && !t.over) {
        struct text line = {"", 0};
        s = t.typed ? type_line(&t, &line, e) : next_line(&t, &line, e);
        if (s == STATUS_INTERRUPTED)
            log_info(&g->o->common, "interrupted: the session ends");
        else if (s == STATUS_OK && !t.over)
            s = answer_line(&t, line, e);
    }
    bytes_free(&t.read);
    editor_free(&t.editor);
    bytes_free(&t.drawing);
    return s;
}
