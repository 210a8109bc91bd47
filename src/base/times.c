#include "base/times.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static int compare_u64(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

void stats_sort(uint64_t *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_u64);
}

uint64_t stats_percentile(const uint64_t *sorted, size_t n, double p)
{
    assert(n >= 1 && p >= 0 && p <= 1);
    const double rank = fmin(fmax(ceil(p * n), 1), n);
    return sorted[(size_t)rank - 1];
}
