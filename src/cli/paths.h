/*
 * paths - which files may be written.
 */
#ifndef DECODE_CLI_PATHS_H
#define DECODE_CLI_PATHS_H

#include <stdbool.h>

#include "base/status.h"
#include "cli/options.h"

/* Whether two paths name one file, or would once it is made: that of a link counts as its target,
 * and where there is none yet, the folder and the name decide. */
bool path_same(const char *a, const char *b);

/* What follows the last slash but for those at the end, which a folder's path may have. */
const char *path_name(const char *path);

/* STATUS_USAGE, naming the option, if an option of `spec`, whose values these are, writes a file
 * that another reads, or that another writes. What is read is also each part of a checkpoint's
 * folder. */
enum status paths_check(const struct option_spec *spec, const void *values, struct err *e);

/* The same of one more path that is written: `option` is what the message calls it. */
enum status path_spares(const struct option_spec *spec, const void *values, const char *option,
                        const char *path, struct err *e);

/* The file that -o names: STATUS_USAGE if none is, or if it exists and `force` is not given. */
enum status path_new(const char *path, bool force, struct err *e);

/* Whether each file that an option of `spec` writes whole can be written, found out before the
 * work. While it is there are temporary files: signals should be deferred. The failures of
 * file_writer_open. */
enum status paths_writable(const struct option_spec *spec, const void *values, struct err *e);

/* The same of one path; NULL: none. */
enum status path_writable(const char *path, struct err *e);

#endif
