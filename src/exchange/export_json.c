#include "exchange/export_json.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/output.h"

/* Containers in one another that are broken into lines. */
#define BROKEN_DEPTH 3

struct file_output {
    struct output out;
    struct file_writer *writer;
};

static bool send(struct output *o, const char *bytes, size_t len)
{
    file_writer_put(((struct file_output *)o)->writer, bytes, len);
    return true; /* commit tells */
}

enum status export_json(const char *dir, const char *name,
                        void (*put)(struct json *j, const void *arg), const void *arg,
                        struct err *e)
{
    struct file_output f;
    struct json j;
    char *path;
    TRY(file_in_folder(dir, name, &path, e));
    enum status s = file_writer_open(&f.writer, path, e);
    if (s == STATUS_OK) {
        output_init(&f.out, send);
        json_init(&j, &f.out, BROKEN_DEPTH);
        put(&j, arg);
        output_puts(&f.out, "\n");
        output_flush(&f.out);
        s = file_writer_commit(f.writer, e);
    }
    free(path);
    return s;
}
