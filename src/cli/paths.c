#include "cli/paths.h"

#include <sys/stat.h>

#include "base/replace.h"

const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool path_same(const char *a, const char *b)
{
    struct stat x, y;
    const bool a_is = stat(a, &x) == 0, b_is = stat(b, &y) == 0;
    return a_is && b_is ? x.st_dev == y.st_dev && x.st_ino == y.st_ino : str_is(a, b);
}

/* Compares `path`, which is written, with all that the command reads and, where `writer` is the
 * option that names it, with what others write. */
static enum status spare_all(const struct option_rows *rows, const void *values,
                             const struct option *writer, const char *path, struct err *e)
{
    for (int r = 0; r < rows->n; r++) {
        const struct option_row *row = &rows->items[(rows->n_options + r) % rows->n];
        const struct option *o = row->option; /* the positionals first */
        const void *value = (const char *)values + row->offset;
        const struct option_strings *many = o->kind == OPTION_STRINGS ? value : NULL;
        const char *const *others = many ? many->items : value;
        if (!o->reads && !(writer && o->writes && o != writer))
            continue;
        for (int i = 0; i < (many ? many->n : 1); i++) {
            const char *other = others[i];
            const bool same = other && path_same(path, other);
            if (same && o->reads)
                return err_usage(e, "'%.200s' is %s itself, which would be overwritten", path,
                                 o->reads);
            if (same)
                return err_usage(e, "'%.200s' is what --%s names, too; expected a file for each",
                                 path, o->name);
        }
    }
    return STATUS_OK;
}

enum status path_spares(const struct option_spec *spec, const void *values, const char *option,
                        const char *path, struct err *e)
{
    struct option_rows rows;
    options_list(spec, &rows);
    return err_in(e, spare_all(&rows, values, NULL, path, e), "%s", option);
}

enum status paths_check(const struct option_spec *spec, const void *values, struct err *e)
{
    struct option_rows rows;
    options_list(spec, &rows);
    for (int i = 0; i < rows.n; i++) {
        const struct option_row *row = &rows.items[i];
        const struct option *o = row->option;
        const void *value = (const char *)values + row->offset;
        const char *path = o->writes ? *(const char *const *)value : NULL;
        if (path)
            TRY(err_in(e, spare_all(&rows, values, o, path, e), "--%s", o->name));
        if (o->writes == WRITES_FILE)
            TRY(path_writable(path, e));
    }
    return STATUS_OK;
}

enum status path_new(const char *path, bool force, struct err *e)
{
    struct stat st;
    if (!path || !path[0])
        return err_usage(e, "no output is named; expected -o OUT");
    if (!force && lstat(path, &st) == 0)
        return err_usage(e, "-o: '%.200s' exists; --force replaces it", path);
    return STATUS_OK;
}

enum status path_writable(const char *path, struct err *e)
{
    struct file_writer *probe;
    if (!path)
        return STATUS_OK;
    TRY(file_writer_open(&probe, path, e));
    file_writer_abandon(probe);
    return STATUS_OK;
}
