#include "exchange/export_json.h"

#include <stdlib.h>

#include "base/output.h"

/* Containers in one another that are broken into lines. */
#define BROKEN_DEPTH 3

enum status export_json(const char *dir, const char *name,
                        void (*put)(struct json *j, const void *arg), const void *arg,
                        struct err *e)
{
    struct file_output f;
    struct json j;
    char *path;
    TRY(file_in_folder(dir, name, &path, e));
    file_output_init(&f);
    enum status s = file_output_open(&f, path, e);
    if (s == STATUS_OK) {
        json_init(&j, &f.out, BROKEN_DEPTH);
        put(&j, arg);
        output_puts(&f.out, "\n");
        s = file_output_commit(&f, e);
    }
    free(path);
    return s;
}
