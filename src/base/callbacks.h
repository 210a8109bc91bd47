/*
 * callbacks - what long work calls now and then, from the thread that called it. Each may be NULL.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct callbacks {
    bool (*stop)(void *arg); /* true: give up with STATUS_INTERRUPTED */
    /* How much is done of all; the work says what is counted. */
    void (*progress)(void *arg, uint64_t done, uint64_t all);
    void *arg; /* goes to both */
};

static inline bool callbacks_stop(const struct callbacks *c)
{
    return c->stop && c->stop(c->arg);
}

static inline void callbacks_progress(const struct callbacks *c, uint64_t done, uint64_t all)
{
    if (c->progress)
        c->progress(c->arg, done, all);
}
