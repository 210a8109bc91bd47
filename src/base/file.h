/*
 * file - opening and reading files as bytes.
 */
#pragma once

#include <stdbool.h>
#include <string.h>
#include <sys/types.h>

#include "base/status.h"

/* --- what calls into the system share ------------------------------------------------------- */

/* Formats "path: cannot `action`: reason", with the reason of an errno. Of a path that is too long
 * for a message only the end is shown. Returns s. */
enum status file_failure(struct err *e, enum status s, const char *path, const char *action,
                         int error);

/* Returns what a file that is no regular one is called: "a directory". */
const char *file_kind(mode_t mode);

/* Calls open(2), and again if a signal interrupts it. */
int file_open_retry(const char *path, int flags, mode_t mode);

/* Returns what messages call an input of this path: the path, or "standard input" for "-". */
const char *file_input_name(const char *path);

/* --- paths ---------------------------------------------------------------------------------- */

/* Returns the part of a path behind its last slash. */
static inline const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Sets *target to the file that writing to `path` makes or replaces: symbolic links at its end are
 * followed, also to files that do not exist yet (which realpath refuses). The caller frees it,
 * whatever is returned. STATUS_FAILED, STATUS_NO_MEMORY. */
enum status path_follow(const char *path, char **target, struct err *e);

/* Whether two paths name one file: links are followed, and there need be no file yet. */
bool path_same(const char *a, const char *b);

/* --- reading -------------------------------------------------------------------------------- */

/* A whole file, mapped read-only. Immutable: any threads may read it. */
struct file_map {
    const unsigned char *data; /* NULL for an empty file */
    size_t len;                /* bytes */
};

/*
 * Maps a regular file. Fails with STATUS_BAD_FILE (not found, unreadable, a directory, FIFO or
 * device: never blocks on one) or STATUS_NO_MEMORY (no address space). The message names the path.
 * A file that shrinks while mapped raises SIGBUS on access; the program's main turns that into
 * a message.
 */
enum status file_map_open(struct file_map *f, const char *path, struct err *e);
void file_map_close(struct file_map *f); /* legal on a zeroed struct and twice */

/* Tells the system that [data, data + len) of the mapping will not be read for a while: whole pages
 * inside it leave the process's resident memory. A hint. */
void file_map_release(const struct file_map *f, const void *data, size_t len);

/*
 * Reads a file, or standard input for "-", of any kind (pipes too) to its end into malloc'd
 * memory, which the caller frees; a zero byte follows the last one and is not counted. Fails
 * with STATUS_BAD_FILE, or STATUS_NO_MEMORY; more than `max` bytes is STATUS_USAGE.
 */
enum status file_read_all(const char *path, size_t max, char **out, size_t *len, struct err *e);
