/*
 * faults - the program's calls into the system, failing on demand.
 *
 * A binary linked with faults.o and FAULT_WRAPS (see the Makefile) runs the program with its calls
 * of the functions below counted and, at the call that a plan names, failing, or interrupted by a
 * signal. Only calls from the program's own objects are seen: what libc does inside itself (the
 * buffers of stdio, opendir, a printf to standard error) is out of reach, and does not count.
 * While armed the clock goes 20 ms forward at every look, so that nothing is measured for long.
 */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

#include <stdbool.h>

#include "base/status.h"

enum fault_kind {
    FAULT_MEMORY,  /* malloc, calloc, realloc, aligned_alloc, strdup, strndup */
    FAULT_MAP,     /* mmap */
    FAULT_OPEN,    /* open, fopen */
    FAULT_READ,    /* read */
    FAULT_WRITE,   /* write */
    FAULT_SYNC,    /* fsync */
    FAULT_RENAME,  /* rename, fchmod */
    FAULT_CLOSE,   /* close, fclose: closed all the same, but the call fails */
    FAULT_THREAD,  /* pthread_create */
    FAULT_PROCESS, /* pipe, fork */
    FAULT_RELEASE, /* free, munmap, pthread_join, which are counted and cannot fail */
    FAULT_KINDS
};
extern const char *const fault_names[FAULT_KINDS];

struct fault_plan {
    enum fault_kind kind;
    long at;           /* the first call that fails: 0 is the first of its kind */
    bool from_then_on; /* all calls after it fail, too */
    int error;         /* its errno; 0: none fails */
    int signal;        /* 0: none; else raised before call `at` of any kind */
    bool one_byte;     /* every read and write moves one byte */
};

/* Shared by the test and all processes of the run. */
struct fault_report {
    long calls[FAULT_KINDS], all; /* up to the end of the run */
    bool met;                     /* the fault, or the signal, happened */
    char what[512]; /* what the first call that failed was about: a path, "standard output", "" */
    bool returned;  /* program_run returned; only then the rest is known */
    long blocks, mapped_bytes, threads; /* that were not given back */
    int descriptors;                    /* above 2 that were opened and not closed */
};

/*
 * Returns which one of `calls` calls is to fail after call n; after -1 the first. test_seed() draws
 * those that are left out: DECODE_FAULT_SHARE percent are made (default 8; 100: every one), but no
 * fewer than `few`. Under the address sanitizer, where a process takes ten times as long to begin
 * and end, it is about `few`.
 */
long faults_next(long n, long calls, long few);

/* Return how many of n scenarios are run, and which one the i-th of these is. Under the address
 * sanitizer a quarter is run, drawn by test_seed(), unless every fault is asked for. */
int faults_drawn(int n);
int faults_scenario(int i, int n);

/* A program_setup: from here on the child's calls follow the plan. */
void faults_arm(void *plan);

/* Ends what faults_arm began, for a test that armed its own process and calls the library itself.
 */
void faults_disarm(void);

/* The report of the last run; cleared when the next one is armed. */
const struct fault_report *faults_report(void);

#endif
