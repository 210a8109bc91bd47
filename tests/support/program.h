/*
 * program - runs the program in a child process of a Check suite: its exit code, what it prints,
 * how much memory it takes.
 */
#ifndef TESTS_PROGRAM_H
#define TESTS_PROGRAM_H

#include <stddef.h>
#include <sys/resource.h>

struct ran {
    int code;         /* the exit code; -1: ended by a signal */
    int signal;       /* the signal that ended it, or 0; SIGALRM: it hung */
    size_t out_len;   /* bytes of standard output; `out` has the first of them */
    char out[8192];   /* terminated */
    char err[4096];   /* the beginning of standard error, terminated */
    long max_rss_kib; /* at its peak, the memory of the suite itself included */
};

/* What the child does before the program starts: sets limits, arms faults, closes descriptors. */
typedef void program_setup(void *context);

/* A setup that sets this limit. */
struct limit {
    int resource; /* of setrlimit */
    rlim_t value;
};
program_setup limit_to;

#define MAX_ARGS 48

/*
 * Runs "decode" with `line` as its arguments, cut at single spaces: none of them may contain one,
 * and "''" is the empty one. `setup` may be NULL. After 20 seconds (times CK_TIMEOUT_MULTIPLIER)
 * the child is killed by SIGALRM.
 */
void run_program(struct ran *r, const char *line, program_setup *setup, void *context);

/* Runs `body` in the child in place of the program; the exit code is 77 if it returns. */
void run_child(struct ran *r, void (*body)(void *context), void *context);

/* Checks a refusal: this exit code, nothing on standard output, and one line of standard error that
 * has `text` and no control characters. */
void expect_refusal(const struct ran *r, int code, const char *text);

/* Checks that the run succeeded. */
void expect_success(const struct ran *r);

#endif
