#include "cli/output.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

static void send_all(struct output *o, const char *data, size_t len)
{
    while (len > 0 && !o->error) {
        const ssize_t n = write(o->fd, data, len);
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
    if (o->error)
        return err_set(e, STATUS_FAILED, "cannot write to standard output: %s", strerror(o->error));
    return STATUS_OK;
}
