/*
 * paths - which files may be written.
 */
#pragma once

#include "args/options.h"
#include "base/mem.h"

/* Whether each file that an option of `spec`, whose values these are, writes can be written.
 * STATUS_USAGE, naming the options, for one that another reads or writes. The failures of
 * file_writer_open for one that is written whole: while it is tried there is a temporary file, so
 * signals should be deferred. */
enum status paths_check(const struct option_spec *spec, const void *values, struct err *e);

/* STATUS_USAGE if a path that is written is one that an option reads. */
enum status path_spares(const struct option_spec *spec, const void *values, const char *path,
                        struct err *e);

/* The file that -o names: STATUS_USAGE if none is, or if it exists and is not to be replaced, for
 * which the message has the `remedy`. */
enum status path_new(const char *path, bool replaces, const char *remedy, struct err *e);

/* Whether one file can be written, which is tried; NULL: none. */
enum status path_writable(const char *path, struct err *e);
