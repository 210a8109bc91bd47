/*
 * status - how library calls fail.
 *
 * Fallible calls return enum status and fill a caller-owned struct err with one sentence that
 * says what is wrong, where, what was expected and what was found. Nothing here prints.
 */
#pragma once

#include <stddef.h>

/* The values are also the program's exit codes (the command line returns them unchanged). */
enum status {
    STATUS_OK = 0,            /* done */
    STATUS_FAILED = 1,        /* failed while running: I/O, threads, non-finite numbers */
    STATUS_USAGE = 2,         /* the caller asked for something that cannot be */
    STATUS_BAD_FILE = 3,      /* the input file is malformed or not what is needed */
    STATUS_NO_MEMORY = 4,     /* an allocation failed, or a size does not fit */
    STATUS_INTERRUPTED = 130, /* stopped on request */
};

struct err {
    char text[512]; /* one line, no newline, always terminated; "" when nothing failed */
};

/*
 * Formats the message into e (which may be NULL). The message is cut at the buffer's end. Control
 * characters, and what is not UTF-8, become '?' in the result, because names come from hostile
 * files and must not reach the terminal as escape sequences.
 */
void err_format(struct err *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, as an expression with the value s, so that a failing path reads
 * `return err_set(e, STATUS_BAD_FILE, "...")` and the compiler sees that it does not succeed. */
#define err_set(e, s, ...) (err_format(e, __VA_ARGS__), err_status(s))

static inline enum status err_status(enum status s)
{
    return s;
}

/* The three commonest: the file is to blame, the request, or the run. */
#define err_bad_file(e, ...) err_set(e, STATUS_BAD_FILE, __VA_ARGS__)
#define err_usage(e, ...)    err_set(e, STATUS_USAGE, __VA_ARGS__)
#define err_failed(e, ...)   err_set(e, STATUS_FAILED, __VA_ARGS__)

/* Returns s. If it is a failure, its message gets "prefix: " before it, which names the file or
 * tensor concerned: `return err_in(e, read_it(..., e), "tensor %zu", i)`. */
enum status err_in(struct err *e, enum status s, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns s. If that is STATUS_BAD_FILE, its message gets the file's path before it, unless the
 * path is NULL. */
enum status err_in_file(struct err *e, enum status s, const char *path);

/* Sets the message of a failed allocation: what was wanted and how many bytes. */
static inline enum status err_no_memory(struct err *e, const char *what, size_t bytes)
{
    return err_set(e, STATUS_NO_MEMORY, "out of memory: %s needs %zu bytes", what, bytes);
}

/* Returns from the function with the status of `call` unless it is STATUS_OK: for calls after which
 * there is nothing to free. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        const enum status try_status = (call);                                                     \
        if (try_status != STATUS_OK)                                                               \
            return try_status;                                                                     \
    } while (0)
