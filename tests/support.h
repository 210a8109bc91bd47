/*
 * support - what the Check suites share.
 */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>

/* The tag of test cases that start no thread: the thread sanitizer has nothing to see there. */
#define ONE_THREAD "one_thread"

/* Runs one suite, prints Check's summary line, and gives the exit code for main. */
int run_suite(Suite *s);

/* Reads a whole file under the repository (tests run from its top) into malloc'd memory. */
unsigned char *read_file(const char *path, size_t *len);

/* A path for a scratch file in a fresh folder below $TMPDIR or /tmp; the folder is removed by
 * scratch_remove. The string is valid until the next call. */
const char *scratch_path(const char *name);
void scratch_remove(void);

#endif
