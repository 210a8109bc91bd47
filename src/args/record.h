/*
 * record - the options of a run as words "--name=value", each ended by a zero byte, in the order of
 * the command's rows: what a later run goes on with. Options of the groups "Output" and "Run" are
 * not in it, for each run has its own.
 */
#pragma once

#include "args/options.h"
#include "base/text.h"

/* The words of all options that have a value, and as many zero bytes more as make it a multiple
 * of 8. *out is the caller's to free. STATUS_NO_MEMORY. */
enum status record_make(const struct option_spec *spec, const void *values, struct bytes *out,
                        struct err *e);

/* Parses the words of a record, then those of argv, which ends with NULL, into `values`, zeroed
 * before; strings in it are borrowed from both. The failures of options_parse; options_free of
 * `values` is due in every case. */
enum status record_resume(const struct option_spec *spec, const struct bytes *record, char **argv,
                          void *values, struct err *e);

/* The same of the record alone: STATUS_BAD_FILE if it is not what record_make makes of its
 * values. */
enum status record_parse(const struct option_spec *spec, const struct bytes *record, void *values,
                         struct err *e);

/* STATUS_USAGE, naming the first recorded option that has another value now than it had before. */
enum status record_compare(const struct option_spec *spec, const void *before, const void *now,
                           struct err *e);
