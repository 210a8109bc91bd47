#include "cli/paths.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

const char *path_name(const char *path)
{
    const char *name = path;
    for (; *path; path++)
        if (path[0] == '/' && path[1] && path[1] != '/')
            name = path + 1;
    return name;
}

/* Whether two paths, of which neither is there, would name one file. Cuts their names off. */
static bool same_place(char *a, char *b)
{
    struct stat x, y;
    char *a_slash = strrchr(a, '/'), *b_slash = strrchr(b, '/');
    char *a_name = a_slash ? a_slash + 1 : a, *b_name = b_slash ? b_slash + 1 : b;
    if (strcmp(a_name, b_name) != 0)
        return false;
    *a_name = *b_name = 0;
    return stat(*a ? a : ".", &x) == 0 && stat(*b ? b : ".", &y) == 0 && same_file(&x, &y);
}

bool path_same(const char *a, const char *b)
{
    struct stat x, y;
    const bool a_is = stat(a, &x) == 0, b_is = stat(b, &y) == 0;
    if (a_is && b_is)
        return same_file(&x, &y);
    if (a_is || b_is)
        return false;
    char *a_end = NULL, *b_end = NULL;
    /* What cannot be followed cannot be written either, and the writer says why. */
    const bool same = file_follow_links(a, &a_end, NULL) == STATUS_OK &&
                      file_follow_links(b, &b_end, NULL) == STATUS_OK && same_place(a_end, b_end);
    free(a_end);
    free(b_end);
    return same;
}

enum status path_spares(const char *option, const char *path, const char *input, const char *what,
                        struct err *e)
{
    if (input && path_same(path, input))
        return err_set(e, STATUS_USAGE, "%s: '%.200s' is %s itself, which would be overwritten",
                       option, path, what);
    return STATUS_OK;
}

enum status path_new(const char *path, const char *model, bool force, struct err *e)
{
    struct stat st;
    if (!path || !path[0])
        return err_set(e, STATUS_USAGE, "no output is named; expected -o OUT");
    TRY(path_spares("-o", path, model, "the checkpoint", e));
    if (!force && lstat(path, &st) == 0)
        return err_set(e, STATUS_USAGE, "-o: '%.200s' exists; --force replaces it", path);
    return STATUS_OK;
}

enum status path_writable(const char *path, struct err *e)
{
    struct file_writer *probe;
    TRY(file_writer_open(&probe, path, e));
    file_writer_abandon(probe);
    return STATUS_OK;
}

static enum status check_output(const struct named_path *outputs, int at,
                                const struct named_path *inputs, int n_inputs, struct err *e)
{
    const struct named_path *out = &outputs[at];
    if (!out->path)
        return STATUS_OK;
    for (int i = 0; i < n_inputs; i++)
        TRY(path_spares(out->name, out->path, inputs[i].path, inputs[i].name, e));
    for (int i = 0; i < at; i++)
        if (outputs[i].path && path_same(outputs[i].path, out->path))
            return err_set(e, STATUS_USAGE,
                           "%s and %s both name '%.200s'; expected a file for each",
                           outputs[i].name, out->name, out->path);
    return STATUS_OK;
}

enum status paths_check(const struct named_path *outputs, int n_outputs,
                        const struct named_path *inputs, int n_inputs, struct err *e)
{
    for (int i = 0; i < n_outputs; i++)
        TRY(check_output(outputs, i, inputs, n_inputs, e));
    for (int i = 0; i < n_outputs; i++)
        if (outputs[i].path)
            TRY(path_writable(outputs[i].path, e));
    return STATUS_OK;
}
