/*
 * stats - order statistics of measured times.
 */
#ifndef DECODE_BASE_STATS_H
#define DECODE_BASE_STATS_H

#include <stddef.h>
#include <stdint.h>

/* Ascending, in place. */
void stats_sort(uint64_t *values, size_t n);

/* The pth percentile (p from 0 to 1) of n >= 1 values (asserted) in ascending order by the
 * nearest rank: the smallest that at least the share p of them do not exceed. */
uint64_t stats_percentile(const uint64_t *sorted, size_t n, double p);

#endif
