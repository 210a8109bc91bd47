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

/* Whether a sanitizer is built in or valgrind watches: all takes several times as long, and it
 * keeps shadow memory, of which limits and peaks say nothing. */
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
#ifndef UNDER_VALGRIND /* but in the build of make valgrind */
#define UNDER_VALGRIND 0
#endif
#define SANITIZED (ADDRESS_SANITIZED || THREAD_SANITIZED || UNDER_VALGRIND)

/* The tag of test cases that start no thread: the thread sanitizer has nothing to see there. */
#define ONE_THREAD "one_thread"

/* The tag of test cases that take long, most of it in references of their own or in code that
 * others run, too: sanitizers, which make it longer still, leave them out. */
#define TAKES_LONG "takes_long"

/*
 * TEST(name, .loops = 3) { ... } is a test that registers itself, with whatever struct test_options
 * has for it; in a loop _i is the number of the turn. The suite is the program: support.c has its
 * main, unless a suite defines one.
 */
struct test_options {
    const char *name;
    int first, loops; /* _i of the first turn, and one more than that of the last; 0: no loop */
    int seconds;      /* 0: 120, enough for sanitizers and valgrind; it only ends what hangs */
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

/* What the library's calls of a test put their message into. */
extern struct err err;

/* The call ended so, with a message in `err` that has all of `parts` ("|" between them;
 * "": any), on one line without control characters. What is STATUS_OK may have none. The message
 * is cleared, so that the next call must say its own. */
void expect_status(enum status found, enum status expected, const char *parts);
#define expect_ok(status) expect_status(status, STATUS_OK, "")

/* `text` has all of `parts`, but not those after a "!". */
void expect_says(const char *text, const char *parts);

/* Reads a whole file under the repository (tests run from its top) into malloc'd memory. */
unsigned char *read_file(const char *path, size_t *len);
/* The same with a 0 behind it, until the test ends. */
char *file_text(const char *path, size_t *len);

/* The next row of a table in a text: a line that is not empty and no comment (#), terminated; NULL
 * at the end. Of it the next field; fields are " | " apart. \xHH in a field are bytes. */
char *next_row(char **rest);
char *next_field(char **row);
void unescape(char *text);

/* What is released when the test ends, the last first, or at once by release_all, for long loops.
 * The others give the pointer, which is not NULL. */
void *released_by(void (*release)(void *), void *what);
void *allocated(size_t n_bytes);
void *allocated_zeros(size_t n_bytes);
void release_all(void);
/* Such a function, of one of the library's that takes another pointer. */
#define RELEASER(name, function)                                                                   \
    static inline void name(void *what)                                                            \
    {                                                                                              \
        function(what);                                                                            \
    }

/* Writes a file, in place of what has its path, and compares one with what it should hold. */
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

/* The one whose keys are there, until the test ends. */
struct tokenizer *tokenizer_in(const struct gguf *g);

/* A path for a scratch file in a fresh folder below $TMPDIR or /tmp, which is removed when the test
 * ends; so is the string. */
const char *scratch_path(const char *name);

#endif
