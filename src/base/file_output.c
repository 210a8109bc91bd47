#include "base/file_output.h"

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
