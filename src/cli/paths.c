#include "cli/paths.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Cuts the path of a file that is not there into its name, which is returned, and its folder. */
static const char *cut_name(char *path, const char **folder)
{
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) {
        *folder = slash ? "/" : ".";
        return slash ? slash + 1 : path;
    }
    *slash = 0;
    *folder = path;
    return slash + 1;
}

/* Whether two paths, of which neither is there, would name one file. */
static bool same_place(char *a, char *b)
{
    struct stat x, y;
    const char *a_folder, *b_folder;
    const char *a_name = cut_name(a, &a_folder), *b_name = cut_name(b, &b_folder);
    return strcmp(a_name, b_name) == 0 && stat(a_folder, &x) == 0 && stat(b_folder, &y) == 0 &&
           same_file(&x, &y);
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
    const enum status s = path_spares("-o", path, model, "the checkpoint", e);
    if (s == STATUS_OK && !force && lstat(path, &st) == 0)
        return err_set(e, STATUS_USAGE, "-o: '%.200s' exists; --force replaces it", path);
    return s;
}

enum status path_writable(const char *path, struct err *e)
{
    struct file_writer *probe;
    const enum status s = file_writer_open(&probe, path, e);
    if (s == STATUS_OK)
        file_writer_abandon(probe);
    return s;
}
