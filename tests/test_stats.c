/* Order statistics against hand-made answers. */
#include "base/figures.h"
#include "support.h"

TEST(percentiles)
{
    const uint64_t v[] = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100};
    ck_assert(stats_percentile(v, 10, 0.5) == 50 && stats_percentile(v, 10, 0.9) == 90);
    ck_assert(stats_percentile(v, 10, 0.91) == 100 && stats_percentile(v, 10, 0.99) == 100);
    ck_assert(stats_percentile(v, 10, 0) == 10 && stats_percentile(v, 10, 1) == 100);
    ck_assert_uint_eq(stats_percentile(v, 1, 0.5), 10);
}

TEST(sorting)
{
    uint64_t v[] = {5, UINT64_MAX, 0, 5, 1ull << 63};
    stats_sort(v, 5);
    ck_assert(v[0] == 0 && v[1] == 5 && v[2] == 5 && v[3] == 1ull << 63 && v[4] == UINT64_MAX);
    stats_sort(v, 0);
}
