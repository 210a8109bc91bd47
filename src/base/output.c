#include "base/output.h"

#include <stdarg.h>
#include <stdio.h>

void output_init(struct output *o, bool (*send)(struct output *, const char *, size_t))
{
    memset(o, 0, offsetof(struct output, buffer)); /* which need not be zeroed */
    o->send = send;
}

static void send_on(struct output *o, const char *bytes, size_t len)
{
    if (len > 0 && !o->failed)
        o->failed = !o->send(o, bytes, len);
}

bool output_flush(struct output *o)
{
    send_on(o, o->buffer, o->len);
    o->len = 0;
    return !o->failed;
}

void output_put(struct output *o, struct text bytes)
{
    if (bytes.len > sizeof o->buffer - o->len)
        output_flush(o);
    if (bytes.len > sizeof o->buffer) {
        send_on(o, bytes.data, bytes.len);
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
        output_put(o, text_span(line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1));
}

void output_repeat(struct output *o, char c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        output_put(o, text_span(&c, 1));
}

/* --- into a file ----------------------------------------------------------------------------- */

/* The writer remembers failures until it commits. */
static bool send_to_writer(struct output *out, const char *bytes, size_t len)
{
    struct file_writer *writer = ((struct file_output *)out)->writer;
    if (writer)
        file_writer_put(writer, bytes, len);
    return true;
}

void file_output_init(struct file_output *f)
{
    output_init(&f->out, send_to_writer);
    f->writer = NULL;
}

enum status file_output_open(struct file_output *f, const char *path, struct err *e)
{
    output_flush(&f->out);
    return file_writer_open(&f->writer, path, e);
}

enum status file_output_commit(struct file_output *f, struct err *e)
{
    output_flush(&f->out);
    return file_writer_commit(f->writer, e);
}
