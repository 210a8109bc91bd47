/*
 * train_record - the options of a training as OUT.state keeps them: words "--name=value", each
 * ended by a zero byte, in the order of the command's rows. A run is resumed by parsing them before
 * the words of its new command line.
 */
#pragma once

#include "args/options.h"
#include "base/text.h"

/* The words of all options that have a value, but for those of the groups "Output" and "Run", of
 * which a resumed run has its own; as many zero bytes more as make it a multiple of 8. *out is the
 * caller's to free. STATUS_NO_MEMORY. */
enum status record_make(const struct option_spec *spec, const void *values, struct bytes *out,
                        struct err *e);

/*
 * Parses the words of a record, then those of argv, which ends with NULL, into `values`, of
 * `size` bytes, zeroed before; strings in it are borrowed from both. Of what is given again only
 * `grows`, the name of an INT, may be more than it was: STATUS_USAGE names the first option that
 * differs; STATUS_BAD_FILE for a record that is none, STATUS_NO_MEMORY. options_free of `values` is
 * due in every case.
 */
enum status record_parse(const struct option_spec *spec, const struct bytes *record, char **argv,
                         const char *grows, void *values, size_t size, struct err *e);
