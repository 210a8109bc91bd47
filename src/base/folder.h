/*
 * folder - a folder that is made or replaced as a whole.
 *
 * The new one grows under a temporary name beside the old one (base/temporary.h) and then changes
 * places with it, so that at every moment the old or the new one is there, whole. Of an old
 * folder's files all are in the new one from the start (as links), so that writing one of them
 * there replaces it, and those of other names stay; its folders move.
 */
#ifndef DECODE_BASE_FOLDER_H
#define DECODE_BASE_FOLDER_H

#include "base/status.h"

struct folder_writer;

/* STATUS_FAILED for what is no folder, or is the one that this process works in; where nothing can
 * be made beside it; where the file system knows no links to keep the old files by. Or
 * STATUS_NO_MEMORY. After any failure, and after abandon, `path` is as it was. */
enum status folder_writer_open(struct folder_writer **out, const char *path, struct err *e);

/* Where the new folder's files are to be written; borrowed. */
const char *folder_writer_path(const struct folder_writer *w);

/* Frees w in any case. STATUS_FAILED also if another process made the folder meanwhile. */
enum status folder_writer_commit(struct folder_writer *w, struct err *e);
void folder_writer_abandon(struct folder_writer *w); /* NULL is legal */

#endif
