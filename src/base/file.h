/*
 * file - files as bytes: they are read, and made or replaced as a whole, so that after a failure or
 * a crash the old one is as it was.
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

/* --- replacing ------------------------------------------------------------------------------ */

/*
 * An atomic replacement. Bytes go to a temporary file in the folder of `path`, with the old file's
 * mode and group, or 0666 less umask; where the group cannot be kept, another gets no rights.
 * Commit syncs it, renames it over `path` and syncs the folder. A symbolic link at `path` stays and
 * its target is replaced. What is not a regular file, or not writable, is not replaced. All
 * failures are STATUS_FAILED or STATUS_NO_MEMORY. After any of them, and after abandon, the old
 * file is untouched and no temporary is left; a killed process may leave one, named
 * .decode-PID-TIME.tmp.
 */
struct file_writer;
enum status file_writer_open(struct file_writer **out, const char *path, struct err *e);
/* Writes bytes, buffered; data may be NULL if len is 0. After a failure later writes do nothing,
 * and commit reports the first failure. */
void file_writer_put(struct file_writer *w, const void *data, size_t len);
/* Puts the new file in place; frees w in any case. */
enum status file_writer_commit(struct file_writer *w, struct err *e);
void file_writer_abandon(struct file_writer *w); /* NULL is legal */
