/*
 * replace - files that are made or replaced as a whole: after a failure or a crash the old one is
 * as it was.
 */
#pragma once

#include "base/status.h"

/*
 * An atomic replacement: bytes go to a temporary file beside `path` (same folder, mode and group as
 * the old file's or 0666 less umask; without rights for the group where that cannot be kept);
 * commit syncs it, renames it over `path` and syncs the folder. A symbolic link at `path` is
 * followed, so that the link stays and its target is replaced. What is not a regular file, or not
 * writable, is not replaced. All failures are STATUS_FAILED or STATUS_NO_MEMORY. After any of them,
 * and after abandon, the old file is untouched and no temporary is left; a killed process may leave
 * one, named .decode-PID-TIME.tmp.
 */
struct file_writer;
enum status file_writer_open(struct file_writer **out, const char *path, struct err *e);
/* Buffered; data may be NULL if len is 0. After a failure the later writes do nothing; commit
 * reports the first one. */
void file_writer_put(struct file_writer *w, const void *data, size_t len);
/* Frees w in any case. */
enum status file_writer_commit(struct file_writer *w, struct err *e);
void file_writer_abandon(struct file_writer *w); /* NULL is legal */
