#include "base/rng.h"
#include "support.h"

/* What the PCG distribution prints for its demo (pcg32, seed 42, stream 54), round 1. */
TEST(gives_the_published_numbers)
{
    static const uint32_t published[] = {0xa15c02b7, 0x7b47f409, 0xba1d3330,
                                         0x83d2f293, 0xbfa4784b, 0xcbed606e};
    struct rng r;
    rng_seed(&r, 42, 54);
    for (size_t i = 0; i < COUNT(published); i++)
        ck_assert_uint_eq(rng_u32(&r), published[i]);
}

/* (0xa15c02b7 >> 5) * 2^26 + (0x7b47f409 >> 6), over 2^53, and so on with the numbers above. */
TEST(unit_takes_two_numbers_high_part_first)
{
    struct rng r;
    rng_seed(&r, 42, 54);
    ck_assert(rng_unit(&r) == 0x1.42b8055ed1fd0p-1 && rng_unit(&r) == 0x1.743a6660f4bcap-1);
    ck_assert(rng_unit(&r) == 0x1.7f48f0b2fb581p-1);
}

TEST(seeding_again_replays)
{
    struct rng a, b;
    rng_seed(&a, UINT64_MAX, UINT64_MAX);
    for (int i = 0; i < 7; i++)
        rng_u32(&a);
    rng_seed(&a, 1, 2);
    rng_seed(&b, 1, 2);
    for (int i = 0; i < 1000; i++)
        ck_assert_uint_eq(rng_u32(&a), rng_u32(&b));
}

static int equal_numbers(uint64_t seed_a, uint64_t stream_a, uint64_t seed_b, uint64_t stream_b)
{
    struct rng a, b;
    rng_seed(&a, seed_a, stream_a);
    rng_seed(&b, seed_b, stream_b);
    int equal = 0;
    for (int i = 0; i < 1000; i++)
        equal += rng_u32(&a) == rng_u32(&b);
    return equal;
}

TEST(seeds_and_streams_differ)
{
    ck_assert(equal_numbers(1, 0, 1, 0) == 1000 && equal_numbers(1, 0, 2, 0) <= 1);
    ck_assert(equal_numbers(1, 0, 1, 1) <= 1 && equal_numbers(0, 0, 0, 1) <= 1);
    ck_assert_int_le(equal_numbers(1, 2, 2, 1), 1);
}

/* Chi-square over 16 bins, 15 degrees of freedom: 44.3 is exceeded once in 10^4 seeds. */
TEST(unit_is_uniform_in_its_range)
{
    enum { BINS = 16, DRAWS = 160000 };
    int counts[BINS] = {0};
    struct rng r;
    rng_seed(&r, 7, 7);
    for (int i = 0; i < DRAWS; i++) {
        const double u = rng_unit(&r);
        ck_assert(u >= 0 && u < 1);
        counts[(int)(u * BINS)]++;
    }
    double chi2 = 0;
    for (int i = 0; i < BINS; i++) {
        const double miss = counts[i] - DRAWS / BINS;
        chi2 += miss * miss / (DRAWS / BINS);
    }
    ck_assert_double_lt(chi2, 44.3);
}

/* SplitMix64 started with seed 0 gives mix(i * 0x9e3779b97f4a7c15): its published first numbers;
 * and mix(0) is 0. */
TEST(derived_seeds_are_splitmix)
{
    ck_assert(rng_derive(0, 1) == 0xe220a8397b1dcdafu && rng_derive(0, 2) == 0x6e789e6aa1b965f4u);
    ck_assert_uint_eq(rng_derive(0, 3), 0x06c45d188009454fu);
}

TEST(derived_seeds_differ)
{
    static const uint64_t seeds[] = {0, 1, 42, UINT64_MAX};
    for (size_t s = 0; s < COUNT(seeds); s++) {
        uint64_t derived[300];
        ck_assert_uint_eq(rng_derive(seeds[s], 0), seeds[s]);
        for (uint64_t i = 0; i < 300; i++) {
            derived[i] = rng_derive(seeds[s], i);
            for (uint64_t j = 0; j < i; j++)
                ck_assert_uint_ne(derived[i], derived[j]);
        }
    }
}
