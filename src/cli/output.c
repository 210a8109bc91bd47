#include "cli/output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/signals.h"

/* What a reader that does not read gets once the program was interrupted. */
#define LAST_WAIT_MS 1000

void output_init(struct output *o, int fd)
{
    o->fd = fd;
    o->error = 0;
    o->len = 0;
}

/* Whether a failed write is worth another try; waits if the descriptor does not block. */
static bool may_retry(int fd)
{
    if (errno == EINTR)
        return true;
    if (errno != EAGAIN)
        return false;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, -1) >= 0 || errno == EINTR;
}

/*
 * How much of len bytes to write now; 0: give up. A reader that has stopped reading must not keep
 * an interrupted program from ending, so from then on only as much is written as does not block.
 */
static size_t piece_to_send(int fd, size_t len)
{
    if (!signals_interrupted())
        return len;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    const int ready = poll(&p, 1, LAST_WAIT_MS);
    return ready == 0 ? 0 : len < PIPE_BUF ? len : PIPE_BUF;
}

static void send_all(struct output *o, const char *data, size_t len)
{
    while (len > 0 && !o->error) {
        const size_t piece = piece_to_send(o->fd, len);
        if (piece == 0) {
            o->error = EINTR;
            return;
        }
        const ssize_t n = write(o->fd, data, piece);
        if (n >= 0) {
            data += n;
            len -= (size_t)n;
        } else if (!may_retry(o->fd)) {
            o->error = errno;
        }
    }
}

bool output_flush(struct output *o)
{
    send_all(o, o->buffer, o->len);
    o->len = 0;
    return o->error == 0;
}

void output_put(struct output *o, struct text bytes)
{
    if (bytes.len > sizeof o->buffer - o->len)
        output_flush(o);
    if (bytes.len > sizeof o->buffer) {
        send_all(o, bytes.data, bytes.len);
    } else if (bytes.len > 0) {
        memcpy(o->buffer + o->len, bytes.data, bytes.len);
        o->len += bytes.len;
    }
}

void output_puts(struct output *o, const char *s)
{
    output_put(o, text_of(s));
}

void output_printf(struct output *o, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0)
        output_put(o, (struct text){line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1});
}

void output_repeat(struct output *o, char c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        output_put(o, (struct text){&c, 1});
}

enum status output_close(struct output *o, struct err *e)
{
    output_flush(o);
    /* Some file systems report a failed write only now. */
    if (close(o->fd) != 0 && !o->error && errno != EINTR)
        o->error = errno;
    if (o->error == EINTR)
        return err_set(e, STATUS_INTERRUPTED,
                       "interrupted while nobody read standard output; the rest of it is lost");
    if (o->error)
        return err_set(e, STATUS_FAILED, "cannot write to standard output: %s", strerror(o->error));
    return STATUS_OK;
}
