/*
 * record - the options that a run was given, as words "--name=value", each ended by a zero byte, in
 * the order of the command's rows, and as many zero bytes more as make them a multiple of 8: what a
 * later run goes on with. Options that are marked `unrecorded` are not in it, for each run has its
 * own.
 */
#pragma once

#include "args/options.h"
#include "base/text.h"

/* The options given in the rows of a command line; *out, zeroed before, is the caller's to free.
 * STATUS_NO_MEMORY. */
enum status record_make(const struct option_rows *rows, struct bytes *out, struct err *e);

/* Parses the words of a record, then those of argv, which ends with NULL. Strings in `values` and
 * *rows are borrowed from both. As options_parse. */
enum status record_parse(const struct option_spec *spec, const struct bytes *record, char **argv,
                         void *values, struct option_rows *rows, struct err *e);

/* Options as they were given, and the struct of values that they were parsed into. */
struct recorded_run {
    const struct option_rows *rows;
    const void *values;
};

/* STATUS_USAGE, naming the first recorded option that is given now and has another value than
 * before, where that may be its default; `but`, the name of one, may be. */
enum status record_compare(const struct recorded_run *before, const struct recorded_run *now,
                           const char *but, struct err *e);
