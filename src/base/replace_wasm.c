/*
 * In WebAssembly there are no files: none can be written.
 */
#include "base/replace.h"

enum status file_writer_open(struct file_writer **out, const char *path, struct err *e)
{
    *out = NULL;
    return err_failed(e, "%s: cannot write: there are no files here", path);
}

void file_writer_put(struct file_writer *w, const void *data, size_t len)
{
    (void)w, (void)data, (void)len;
}

enum status file_writer_commit(struct file_writer *w, struct err *e)
{
    (void)w, (void)e;
    return STATUS_FAILED;
}

void file_writer_abandon(struct file_writer *w)
{
    (void)w;
}
