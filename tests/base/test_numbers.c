/* Compares random numbers with published ones, and order statistics with answers worked out by
 * hand. */
#include "base/rng.h"
#include "base/times.h"
#include "support.h"

static struct rng seeded(uint64_t seed, uint64_t stream)
{
    struct rng r;
    rng_seed(&r, 99, 99);
    rng_u32(&r); /* what it gave before does not matter */
    rng_seed(&r, seed, stream);
    return r;
}

/* The PCG distribution prints these numbers in round 1 of its demo (pcg32, seed 42, stream 54). A
 * unit is ((0xa15c02b7 >> 5) * 2^26 + (0x7b47f409 >> 6)) / 2^53, of two numbers each. */
TEST(gives_the_published_numbers)
{
    static const uint32_t published[] = {0xa15c02b7, 0x7b47f409, 0xba1d3330,
                                         0x83d2f293, 0xbfa4784b, 0xcbed606e};
    struct rng r = seeded(42, 54);
    for (size_t i = 0; i < COUNT(published); i++)
        ck_assert_uint_eq(rng_u32(&r), published[i]);
    r = seeded(42, 54);
    ck_assert(rng_unit(&r) == 0x1.42b8055ed1fd0p-1 && rng_unit(&r) == 0x1.743a6660f4bcap-1);
    ck_assert(rng_unit(&r) == 0x1.7f48f0b2fb581p-1);
}

TEST(seeds_and_streams_differ)
{
    static const uint64_t pairs[][4] = {
        {1, 0, 1, 0}, {1, 0, 2, 0}, {1, 0, 1, 1}, {0, 0, 0, 1}, {1, 2, 2, 1}};
    for (size_t k = 0; k < COUNT(pairs); k++) {
        struct rng a = seeded(pairs[k][0], pairs[k][1]), b = seeded(pairs[k][2], pairs[k][3]);
        int equal = 0;
        for (int i = 0; i < 1000; i++)
            equal += rng_u32(&a) == rng_u32(&b);
        ck_assert_msg(k == 0 ? equal == 1000 : equal <= 1, "pair %zu", k);
    }
}

/* SplitMix64 that starts with seed 0 gives mix(i * 0x9e3779b97f4a7c15), whose first numbers are
 * published; mix(0) is 0. A seed is the low 53 bits, which a double has exactly. */
TEST(derived_seeds_are_splitmix)
{
    static const uint64_t seeds[] = {0, 1, 42, UINT64_MAX};
    ck_assert(rng_derive(0, 1) == 0x0000a8397b1dcdafu && rng_derive(0, 2) == 0x00189e6aa1b965f4u);
    ck_assert_uint_eq(rng_derive(0, 3), 0x00045d188009454fu);
    for (size_t s = 0; s < COUNT(seeds); s++) {
        ck_assert_uint_eq(rng_derive(seeds[s], 0), seeds[s]);
        for (uint64_t i = 1; i < 300; i++) {
            const double as_json = (double)rng_derive(seeds[s], i);
            ck_assert_uint_eq((uint64_t)as_json, rng_derive(seeds[s], i));
            for (uint64_t j = 0; j < i; j++)
                ck_assert_uint_ne(rng_derive(seeds[s], i), rng_derive(seeds[s], j));
        }
    }
}

TEST(percentiles)
{
    static const double cases[][2] = {{0.5, 50},   {0.9, 90}, {0.91, 100},
                                      {0.99, 100}, {0, 10},   {1, 100}};
    uint64_t v[] = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100};
    for (size_t i = 0; i < COUNT(cases); i++)
        ck_assert_uint_eq(stats_percentile(v, 10, cases[i][0]), (uint64_t)cases[i][1]);
    ck_assert_uint_eq(stats_percentile(v, 1, 0.5), 10);
    uint64_t w[] = {5, UINT64_MAX, 0, 5, 1ull << 63};
    stats_sort(w, 5);
    ck_assert(w[0] == 0 && w[1] == 5 && w[2] == 5 && w[3] == 1ull << 63 && w[4] == UINT64_MAX);
    stats_sort(w, 0);
}
