/*
 * study_args - a command line that is put together, shown and run in this process.
 */
#ifndef DECODE_CLI_STUDY_ARGS_H
#define DECODE_CLI_STUDY_ARGS_H

#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"

#define STUDY_ARGS_MOST 96

/* Zeroed: empty. What finds no memory is remembered until it runs. */
struct study_args {
    char *items[STUDY_ARGS_MOST]; /* each malloc'd; the first is the command's name */
    int n;
    bool failed;
};

/* Appends one argument. */
void study_args_add(struct study_args *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends an option and its value. */
void study_args_pair(struct study_args *a, const char *option, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The shortest text that an option reads as this number. */
void study_args_number(double x, char *out, size_t size);

/* Appends the options of a table whose values, in the struct at `values`, are not the default, but
 * for those named in `but` (NULL at its end). */
void study_args_given(struct study_args *a, const struct option *table, const void *values,
                      const char *const *but);

/* The arguments with spaces between them, what needs it in quotes for a shell; frees them.
 * STATUS_NO_MEMORY. */
enum status study_args_join(struct study_args *a, struct bytes *line, struct err *e);

/* Says the command line with -v, runs it, and frees the arguments. What it prints is in `printed`
 * (NULL: nowhere). The failures of the command; STATUS_NO_MEMORY. */
enum status study_args_run(struct study_args *a, const struct common_options *common,
                           struct listener listener, struct bytes *printed, struct err *e);

#endif
