/*
 * replace - files that are made or replaced as a whole: after a failure or a crash the old one is
 * as it was.
 */
#pragma once

#include "base/status.h"

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
