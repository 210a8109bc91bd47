#include "cli/job.h"

#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"

/* STATUS_USAGE if the path, which is written, is one that an option reads. */
static enum status path_spares(const struct option_rows *rows, const void *values, const char *path,
                               struct err *e)
{
    for (int r = 0; r < rows->n; r++) {
        const struct option_row *row = &rows->items[(rows->n_options + r) % rows->n];
        const struct option *o = row->option; /* the positionals first */
        const void *value = (const char *)values + row->offset;
        const struct option_strings *many = o->kind == OPTION_STRINGS ? value : NULL;
        const char *const *inputs = many ? many->items : value;
        for (int i = 0; o->reads && i < (many ? many->n : 1); i++)
            if (inputs[i] && path_same(path, inputs[i]))
                return err_usage(e, "'%.200s' is %s itself, which would be overwritten", path,
                                 o->reads);
    }
    return STATUS_OK;
}

/* Returns the path that an option writes, or NULL. */
static const char *written_by(const struct option_row *row, const void *values)
{
    const void *value = (const char *)values + row->offset;
    return row->option->writes ? *(const char *const *)value : NULL;
}

/* STATUS_USAGE if a file of another kind than is to be written stands at the path: it was named by
 * mistake. */
static enum status check_kind(const char *path, enum option_writes kind, struct err *e)
{
    static const struct {
        const char *begins, *name;
    } kinds[] = {[WRITES_SVG] = {"<svg", "an SVG picture"},
                 [WRITES_HTML] = {"<!DOCTYPE html", "an HTML page"},
                 [WRITES_JSON] = {"{", "a JSON object"},
                 [WRITES_NPY] = {"\x93NUMPY", "a NumPy array"}};
    const char *begins = kind < LENGTH(kinds) ? kinds[kind].begins : NULL;
    struct file_map found;
    struct stat st;
    if (!begins || stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return STATUS_OK;
    enum status s = file_map_open(&found, path, e);
    if (s != STATUS_OK) /* an output is no bad input */
        return s == STATUS_BAD_FILE ? STATUS_FAILED : s;
    if (!text_starts_with(text_span((const char *)found.data, found.len), begins))
        s = err_usage(e, "'%.200s' exists and is not %s; expected another name", path,
                      kinds[kind].name);
    file_map_close(&found);
    return s;
}

enum status paths_check(const struct option_rows *rows, const void *values, struct err *e)
{
    for (int i = 0; i < rows->n; i++) {
        const struct option *o = rows->items[i].option;
        const char *path = written_by(&rows->items[i], values);
        if (path)
            TRY(err_in(e, path_spares(rows, values, path, e), "--%s", o->name));
        for (int k = 0; path && k < i; k++) {
            const char *other = written_by(&rows->items[k], values);
            if (other && path_same(path, other))
                return err_usage(e, "--%s and --%s both write '%.200s'; expected a file each",
                                 rows->items[k].option->name, o->name, path);
        }
        if (path && o->writes != WRITES_OTHER) {
            TRY(err_in(e, check_kind(path, o->writes, e), "--%s", o->name));
            TRY(path_writable(path, e));
        }
    }
    return STATUS_OK;
}

bool path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

enum status path_new(const char *path, bool replaces, const char *remedy, struct err *e)
{
    if (!path || !path[0])
        return err_usage(e, "no output is named; expected -o OUT");
    if (!replaces && path_exists(path))
        return err_usage(e, "-o: '%.200s' exists; %s", path, remedy);
    return STATUS_OK;
}

enum status path_writable(const char *path, struct err *e)
{
    struct file_writer *probe;
    TRY(file_writer_open(&probe, path, e));
    file_writer_abandon(probe);
    return STATUS_OK;
}
