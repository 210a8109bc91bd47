/*
 * outputs - an output that goes to a scratch file, for tests of what is printed.
 */
#ifndef TESTS_OUTPUTS_H
#define TESTS_OUTPUTS_H

#include <fcntl.h>
#include <string.h>

#include "cli/terminal.h"
#include "support.h"

static inline void output_begin(struct descriptor *o)
{
    const int fd = open(scratch_path("output"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    descriptor_init(o, fd);
}

/* Closes the output and compares what it holds. */
static inline void output_is(struct descriptor *o, const char *expected)
{
    expect_ok(descriptor_close(o, &err));
    expect_bytes(scratch_path("output"), expected, strlen(expected));
}

#endif
