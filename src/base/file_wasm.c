/*
 * In WebAssembly there are no files: what is mapped is malloc'd memory, whose owner is the map.
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
