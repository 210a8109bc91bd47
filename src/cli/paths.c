#include "cli/paths.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"

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

bool path_same(const char *a, const char *b)
{
    struct stat x, y;
    const bool a_is = stat(a, &x) == 0, b_is = stat(b, &y) == 0;
    if (a_is && b_is)
        return same_file(&x, &y);
    if (a_is || b_is)
        return false;
    char *a_end = NULL, *b_end = NULL;
    /* Neither is there: in one folder, by one name? What cannot be followed cannot be written
     * either, and the writer says why. */
    bool same = file_follow_links(a, &a_end, NULL) == STATUS_OK &&
                file_follow_links(b, &b_end, NULL) == STATUS_OK;
    if (same) {
        char *a_slash = strrchr(a_end, '/'), *b_slash = strrchr(b_end, '/');
        char *a_name = a_slash ? a_slash + 1 : a_end, *b_name = b_slash ? b_slash + 1 : b_end;
        same = strcmp(a_name, b_name) == 0;
        *a_name = *b_name = 0; /* the folders are left */
        same = same && stat(*a_end ? a_end : ".", &x) == 0 && stat(*b_end ? b_end : ".", &y) == 0 &&
               same_file(&x, &y);
    }
    free(a_end);
    free(b_end);
    return same;
}

/* --- inputs and outputs ---------------------------------------------------------------------- */

/* Whether a folder has this file, or one linked to it, as a part of a checkpoint. */
static bool folder_has(const char *folder, const struct stat *file)
{
    static const char *const ends[] = {".json", ".jsonl", ".safetensors", ".txt", ".model", ".bin"};
    struct stat st;
    bool has = false;
    DIR *d = opendir(folder);
    for (const struct dirent *entry; d && !has && (entry = readdir(d));)
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            if (text_ends_with(text_of(entry->d_name), ends[i]))
                has |= fstatat(dirfd(d), entry->d_name, &st, 0) == 0 && same_file(&st, file);
    if (d)
        closedir(d);
    return has;
}

/* Whether a checkpoint of llama2.c or llm.c has this file as the vocabulary beside it. */
static bool is_beside(const char *checkpoint, const struct stat *file)
{
    static const char *const names[] = {"tokenizer.bin", "gpt2_tokenizer.bin"};
    struct stat st;
    if (!text_ends_with(text_of(checkpoint), ".bin"))
        return false;
    const int folder = (int)(path_name(checkpoint) - checkpoint);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX];
        const int n = snprintf(path, sizeof path, "%.*s%s", folder, checkpoint, names[i]);
        if (n < (int)sizeof path && stat(path, &st) == 0 && same_file(&st, file))
            return true;
    }
    return false;
}

static enum status spare(const char *option, const char *path, const char *input, const char *what,
                         struct err *e)
{
    if (path_same(path, input))
        return err_set(e, STATUS_USAGE, "%s: '%.200s' is %s itself, which would be overwritten",
                       option, path, what);
    /* Or one of the two is a folder or a checkpoint of which the other is a part. */
    struct stat out, in;
    if (stat(path, &out) == 0 && stat(input, &in) == 0 &&
        (S_ISDIR(in.st_mode)    ? folder_has(input, &out)
         : S_ISDIR(out.st_mode) ? folder_has(path, &in)
                                : is_beside(input, &out)))
        return err_set(e, STATUS_USAGE,
                       "%s: '%.200s' is one of %s's own files, or has them, which would be "
                       "overwritten",
                       option, path, what);
    return STATUS_OK;
}

/* What every option that names a file is held against. */
struct visitor {
    const struct option *writes; /* the option that writes `path`; NULL: none */
    const char *option, *path;   /* what messages call it, and where it is */
    struct err *e;
};

static enum status spare_value(const struct visitor *v, const struct option *o, const void *value)
{
    if (o->kind == OPTION_STRINGS) {
        const struct option_strings *list = value;
        for (int i = 0; i < list->n; i++)
            TRY(spare(v->option, v->path, list->items[i], o->reads, v->e));
        return STATUS_OK;
    }
    const char *path = *(const char *const *)value;
    if (!path)
        return STATUS_OK;
    if (o->reads)
        return spare(v->option, v->path, path, o->reads, v->e);
    if (v->writes && o != v->writes && path_same(path, v->path))
        return err_set(v->e, STATUS_USAGE,
                       "%s and --%s both name '%.200s'; expected a file for each", v->option,
                       o->name, v->path);
    return STATUS_OK;
}

static enum status spare_values(const struct visitor *v, const struct option_spec *spec,
                                const void *values)
{
    for (const struct option *o = spec->positionals; o->kind != OPTION_END; o++)
        if (o->reads)
            TRY(spare_value(v, o, (const char *)values + o->offset));
    for (const struct option_group *g = spec->groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++)
            if (o->reads || o->writes)
                TRY(spare_value(v, o, (const char *)values + g->base + o->offset));
    return STATUS_OK;
}

enum status path_spares(const struct option_spec *spec, const void *values, const char *option,
                        const char *path, struct err *e)
{
    return spare_values(&(struct visitor){NULL, option, path, e}, spec, values);
}

/* The path that option `o` of group `g` names; NULL: none. */
static const char *path_at(const struct option_group *g, const struct option *o, const void *values)
{
    return *(const char *const *)(const void *)((const char *)values + g->base + o->offset);
}

enum status paths_check(const struct option_spec *spec, const void *values, struct err *e)
{
    for (const struct option_group *g = spec->groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++) {
            char option[32];
            snprintf(option, sizeof option, "--%s", o->name);
            const char *path = o->writes ? path_at(g, o, values) : NULL;
            if (path)
                TRY(spare_values(&(struct visitor){o, option, path, e}, spec, values));
        }
    return STATUS_OK;
}

enum status paths_writable(const struct option_spec *spec, const void *values, struct err *e)
{
    for (const struct option_group *g = spec->groups; g->title; g++)
        for (const struct option *o = g->options; o->kind != OPTION_END; o++)
            if (o->writes == WRITES_FILE)
                TRY(path_writable(path_at(g, o, values), e));
    return STATUS_OK;
}

/* --- one output ------------------------------------------------------------------------------ */

enum status path_new(const char *path, bool force, struct err *e)
{
    struct stat st;
    if (!path || !path[0])
        return err_set(e, STATUS_USAGE, "no output is named; expected -o OUT");
    if (!force && lstat(path, &st) == 0)
        return err_set(e, STATUS_USAGE, "-o: '%.200s' exists; --force replaces it", path);
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
