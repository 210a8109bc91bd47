#include "exchange/json_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct json_limits limits = {
    .bytes = (size_t)1 << 29, .values = (uint32_t)1 << 23, .depth = 32};

bool file_is_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

char *path_in(const char *dir, const char *name)
{
    const size_t dir_len = strlen(dir), name_len = strlen(name);
    const bool slash = dir_len > 0 && dir[dir_len - 1] != '/';
    char *path = malloc(dir_len + slash + name_len + 1);
    if (!path)
        return NULL;
    memcpy(path, dir, dir_len);
    path[dir_len] = '/';
    memcpy(path + dir_len + slash, name, name_len + 1);
    return path;
}

enum status file_map_steady(struct file_map *f, const char *path, struct err *e)
{
    TRY(file_map_open(f, path, e));
    const enum status s = file_map_make_private(f, f->len, e);
    if (s != STATUS_OK)
        file_map_close(f);
    return s;
}

static enum status read_root(struct json_file *f, struct err *e)
{
    const struct text source = {(const char *)f->map.data, f->map.len};
    const struct json_node *root;
    TRY(json_read(&f->reader, source, &limits, &root, e));
    TRY(json_expect(root, JSON_OBJECT, e));
    f->root = root;
    return STATUS_OK;
}

enum status json_file_open(struct json_file *f, const char *path, struct err *e)
{
    *f = (struct json_file){.root = NULL};
    if (!file_is_there(path))
        return STATUS_OK;
    TRY(file_map_steady(&f->map, path, e)); /* names the path */
    const enum status s = read_root(f, e);
    if (s != STATUS_OK)
        err_prefix(e, path);
    return s;
}

void json_file_close(struct json_file *f)
{
    json_reader_free(&f->reader);
    file_map_close(&f->map);
    *f = (struct json_file){.root = NULL};
}

const struct json_node *json_present(const struct json_node *object, const char *key)
{
    const struct json_node *member = json_member(object, key);
    return member && member->kind != JSON_NULL ? member : NULL;
}

enum status json_optional_bool(const struct json_node *object, const char *key, bool *out,
                               struct err *e)
{
    const struct json_node *member = json_present(object, key);
    return member ? json_node_bool(member, out, e) : STATUS_OK;
}
