/*
 * support - what the Check suites share.
 */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "count.h"
#include "formats/gguf_write.h"
#include "text/tokenizer.h"

/* Whether a sanitizer is built in or valgrind runs the program: all takes several times as long,
 * and shadow memory makes limits and peaks of memory meaningless. */
#ifndef __has_feature /* clang's; gcc defines __SANITIZE_ADDRESS__ and __SANITIZE_THREAD__ */
#define __has_feature(x) 0
#endif
#if defined __SANITIZE_THREAD__ || __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#else
#define THREAD_SANITIZED 0
#endif
#if defined __SANITIZE_ADDRESS__ || __has_feature(address_sanitizer)
#define ADDRESS_SANITIZED 1
#else
#define ADDRESS_SANITIZED 0
#endif
#ifndef UNDER_VALGRIND /* make valgrind defines it */
#define UNDER_VALGRIND 0
#endif
#define SANITIZED (ADDRESS_SANITIZED || THREAD_SANITIZED || UNDER_VALGRIND)

/* The tag of tests that start no thread, which ThreadSanitizer leaves out. */
#define ONE_THREAD "one_thread"

/* The tag of tests that take long, mostly in references of their own or in code that other tests
 * run, too. Sanitizers leave them out. */
#define TAKES_LONG "takes_long"

/*
 * TEST(name, .loops = 3) { ... } defines a test, which registers itself with the given members of
 * struct test_options; in a loop _i is the number of the turn. A program is one suite: support.c
 * has its main, unless the suite defines one.
 */
struct test_options {
    const char *name;
    int first, loops; /* _i goes from `first` to `loops` - 1; 0: no loop */
    int seconds;      /* after which it counts as hanging; 0: 120, enough for sanitizers */
    const char *tags;
    void (*before)(void), (*after)(void); /* around each turn */
    bool left_out;
};
#define TEST(...) TEST_WITH(__VA_ARGS__, )
#define TEST_WITH(test, ...)                                                                       \
    static const TTest *test;                                                                      \
    __attribute__((constructor)) static void register_##test(void)                                 \
    {                                                                                              \
        test_register(test, &(struct test_options){.name = #test, __VA_ARGS__});                   \
    }                                                                                              \
    START_TEST(test)
void test_register(const TTest *test, const struct test_options *o);

/* The seed of what suites draw: DECODE_TEST_SEED, else the time, which the first call prints for
 * the next run and gives to child processes. A suite that draws calls it before its tests run. */
long test_seed(void);

/* Runs the tests, prints Check's summary line, and gives the exit code for main. */
int run_suite(void);

/* Where a test's calls of the library put their messages. */
extern struct err err;

/* Checks a call's status and its message in `err`: all of `parts` ("|" between them; "": any), on
 * one line without control characters; with STATUS_OK there may be none. Clears the message, so
 * that the next call must say its own. */
void expect_status(enum status found, enum status expected, const char *parts);
#define expect_ok(status) expect_status(status, STATUS_OK, "")

/* Checks that `text` has all of `parts`, and none of those behind a "!". */
void expect_says(const char *text, const char *parts);

/* Reads a whole file under the repository (tests run from its top) into malloc'd memory. */
unsigned char *read_file(const char *path, size_t *len);
/* Reads a whole file as a text with a 0 behind it. Freed when the test ends. */
char *file_text(const char *path, size_t *len);

/* next_row gives the next line of a text that is neither empty nor a comment (#), terminated; NULL
 * at the end. next_field gives a row's next field; " | " is between fields. unescape replaces \xHH.
 */
char *next_row(char **rest);
char *next_field(char **row);
void unescape(char *text);

/* Things that are released when the test ends, the last one first, or by release_all, for long
 * loops. Each function returns its pointer, which is not NULL. */
void *released_by(void (*release)(void *), void *what);
void *allocated(size_t n_bytes);
void *allocated_zeros(size_t n_bytes);
void release_all(void);
/* Defines a function for released_by that calls one of the library's with its own pointer type. */
#define RELEASER(name, function)                                                                   \
    static inline void name(void *what)                                                            \
    {                                                                                              \
        function(what);                                                                            \
    }

/* Write a file, replacing what is there; compare a file with what it should hold. */
void write_file(const char *path, const void *bytes, size_t len);
void expect_bytes(const char *path, const void *bytes, size_t len);

/* A GGUF file in memory, until the test ends. */
struct gguf_file {
    unsigned char *bytes;
    size_t len;
    struct gguf *g;
};
struct gguf_file parsed_gguf(unsigned char *bytes, size_t len); /* which it takes over */
struct gguf_file read_gguf(const char *path);
struct gguf_file written_gguf(struct gguf_writer *w); /* which it frees */

/* The tokenizer of a file. Freed when the test ends. */
struct tokenizer *tokenizer_in(const struct gguf *g);

/* A path for a scratch file in a new folder below $TMPDIR or /tmp. The folder is removed, and the
 * string freed, when the test ends. */
const char *scratch_path(const char *name);

#endif
