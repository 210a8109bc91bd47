/*
 * paths - which files may be written.
 */
#ifndef DECODE_CLI_PATHS_H
#define DECODE_CLI_PATHS_H

#include <stdbool.h>

#include "base/status.h"

/* Whether two paths name one file, or would once it is made: that of a link counts as its target,
 * and where there is none yet, the folder and the name decide. */
bool path_same(const char *a, const char *b);

/* What follows the last slash but for those at the end, which a folder's path may have. */
const char *path_name(const char *path);

/* STATUS_USAGE, naming the option, if the file to be written is one that is read: `what` it is in
 * the message, "the checkpoint". NULL is no such file. */
enum status path_spares(const char *option, const char *path, const char *input, const char *what,
                        struct err *e);

/* The file that -o names: STATUS_USAGE if none is, if it is the checkpoint, or if it exists and
 * `force` is not given. */
enum status path_new(const char *path, const char *model, bool force, struct err *e);

/* A file: the option that names it, or what it is; path NULL: none. */
struct named_path {
    const char *name, *path;
};

/* The files that options name beside the product: STATUS_USAGE if one of them is an input, or
 * another output; the failures of path_writable. */
enum status paths_check(const struct named_path *outputs, int n_outputs,
                        const struct named_path *inputs, int n_inputs, struct err *e);

/* Whether a file can be written there, found out before the work. While it is found out there is
 * a temporary file: signals should be deferred. The failures of file_writer_open. */
enum status path_writable(const char *path, struct err *e);

#endif
