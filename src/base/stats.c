#include "base/stats.h"

#include <math.h>
#include <stdlib.h>

#include "base/contract.h"

static int compare_u64(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

void stats_sort(uint64_t *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_u64);
}

static bool is_ascending(const uint64_t *values, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (values[i - 1] > values[i])
            return false;
    return true;
}

uint64_t stats_percentile(const uint64_t *sorted, size_t n, double p)
{
    assert(n >= 1 && p >= 0 && p <= 1);
    assert_costly(is_ascending(sorted, n));
    const double rank = ceil(p * (double)n);
    if (rank < 1)
        return sorted[0];
    return sorted[rank < (double)n ? (size_t)rank - 1 : n - 1];
}
