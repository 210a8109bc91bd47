/*
 * times - the clock, and percentiles of what it has measured.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Sorts in place, ascending. */
void stats_sort(uint64_t *values, size_t n);

/* Returns the pth percentile (p from 0 to 1) of n >= 1 values (asserted) in ascending order by the
 * nearest rank: the smallest value that at least the share p of them do not exceed. */
uint64_t stats_percentile(const uint64_t *sorted, size_t n, double p);

static inline uint64_t clock_read(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns nanoseconds since an unspecified start; never goes back. */
static inline uint64_t clock_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

/* Returns nanoseconds of processor time that all threads of the process had. */
static inline uint64_t clock_cpu_ns(void)
{
    return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}
