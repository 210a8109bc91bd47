/*
 * paths - which files may be written.
 */
#pragma once

#include "args/options.h"
#include "base/mem.h"

/* Whether every output that the options name can be written. STATUS_USAGE, naming the options, if
 * one writes what another reads or writes, or would replace a file of another kind than its own.
 * The failures of file_writer_open for a file that is written whole: while it is tried there is a
 * temporary file, so signals should be deferred. */
enum status paths_check(const struct option_spec *spec, const void *values, struct err *e);

/* STATUS_USAGE if a path that is written is one that an option reads. */
enum status path_spares(const struct option_spec *spec, const void *values, const char *path,
                        struct err *e);

/* STATUS_USAGE if -o names no file, or one that exists unless `replaces`; the message then ends
 * with the `remedy`. */
enum status path_new(const char *path, bool replaces, const char *remedy, struct err *e);

/* Whether there is a file, or a link, at the path. */
bool path_exists(const char *path);

/* Whether a file can be written, by trying; NULL is legal. */
enum status path_writable(const char *path, struct err *e);
