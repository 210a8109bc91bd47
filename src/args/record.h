/*
 * record - the options that a run was given, for a later run that goes on with them.
 *
 * A record is words "--name=value", each ended by a zero byte, in the order of the command's rows,
 * filled up with zero bytes to a multiple of 8. Options that are marked `unrecorded` are not in it.
 */
#pragma once

#include "args/options.h"
#include "base/text.h"

/* Makes the record of a command line's rows. *out, zeroed before, is the caller's to free.
 * STATUS_NO_MEMORY. */
enum status record_make(const struct option_rows *rows, struct bytes *out, struct err *e);

/* Parses the words of a record, then those of argv, which ends with NULL. Strings in `values` and
 * *rows are borrowed from both. As options_parse. */
enum status record_parse(const struct option_spec *spec, const struct bytes *record, char **argv,
                         void *values, struct option_rows *rows, struct err *e);

/* STATUS_USAGE names the first option that is given now with another value than in the record; one
 * that the record does not have had its default. The options named in `but` may differ. */
enum status record_compare(const struct bytes *record, const struct option_rows *now,
                           const char *const *but, struct err *e);
