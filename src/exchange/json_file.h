/*
 * json_file - a JSON file of a folder, mapped and read.
 */
#ifndef DECODE_EXCHANGE_JSON_FILE_H
#define DECODE_EXCHANGE_JSON_FILE_H

#include <stdbool.h>

#include "base/file.h"
#include "json/read.h"

struct json_file {
    struct file_map map;
    struct json_reader reader;
    const struct json_node *root; /* an object; NULL: there is no such file */
};

/* Whether there is something of this name, be it a link that leads nowhere. */
bool file_is_there(const char *path);

/* As file_map_open, but what was read stays as it was: somebody may be writing to the file. */
enum status file_map_steady(struct file_map *f, const char *path, struct err *e);

/* "dir/name", malloc'd; NULL without memory. */
char *path_in(const char *dir, const char *name);

/* Reads a file whose root must be an object; that there is none is no failure. STATUS_BAD_FILE, the
 * message with the path, or STATUS_NO_MEMORY; f may be closed then too. */
enum status json_file_open(struct json_file *f, const char *path, struct err *e);
void json_file_close(struct json_file *f); /* legal on a zeroed struct and twice */

/* The member of an object that is there and not null; else NULL. */
const struct json_node *json_present(const struct json_node *object, const char *key);

/* *out is what it was if the key is absent or null. */
enum status json_optional_bool(const struct json_node *object, const char *key, bool *out,
                               struct err *e);

#endif
