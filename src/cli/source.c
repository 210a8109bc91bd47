#include "cli/source.h"

#include "exchange/import.h"

static enum status import_to_memory(const char *path, struct file_map *out, struct err *e)
{
    struct import *im;
    const struct import_options options = {.n_ctx = 0};
    TRY(import_open(path, &options, &im, e));
    const enum status s = gguf_write_map(import_writer(im), out, e);
    if (s == STATUS_BAD_FILE)
        err_prefix(e, path);
    import_close(im);
    return s;
}

enum status source_open(const char *path, struct file_map *out, struct err *e)
{
    bool is_other;
    TRY(import_is_for(path, &is_other, e));
    return is_other ? import_to_memory(path, out, e) : file_map_open(out, path, e);
}
