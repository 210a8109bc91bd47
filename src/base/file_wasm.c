/*
 * In WebAssembly there are no files: what is mapped is malloc'd memory, whose owner is the map, and
 * none can be written.
 */
#include "base/file.h"

#include <stdlib.h>

void file_map_close(struct file_map *f)
{
    free((void *)(uintptr_t)f->data);
    *f = (struct file_map){0};
}

void file_map_release(const struct file_map *f, const void *data, size_t len)
{
    (void)f, (void)data, (void)len; /* nothing reads it anew */
}

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
