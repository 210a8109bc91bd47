/*
 * train_paths - what train writes is nothing that it reads.
 */
#ifndef DECODE_CLI_TRAIN_PATHS_H
#define DECODE_CLI_TRAIN_PATHS_H

#include "base/status.h"
#include "cli/options.h"

struct train_paths {
    const char *out, *log;              /* written, OUT.state too; the log may be NULL */
    const char *from, *teacher;         /* read; may be NULL */
    const struct option_strings *texts; /* read */
};

/* STATUS_USAGE, naming the option, if OUT, OUT.state or the log is a file that is read, or if the
 * log is OUT or OUT.state; STATUS_FAILED if OUT or OUT.state cannot be written, which is found out
 * before anything takes long; STATUS_NO_MEMORY. */
enum status train_paths_check(const struct train_paths *p, struct err *e);

#endif
