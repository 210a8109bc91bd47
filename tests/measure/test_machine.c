/* The model of the machine's speed; no test depends on a time. */
#include "measure/machine.h"
#include "support.h"

/* A cache of 1 MiB, measured with some noise, and a memory beyond 2 MiB. */
static struct machine two_classes(void)
{
    return (struct machine){
        .fma_flops_per_s = 1e9,
        .dot_flops_per_s = 4e9,
        .bytes_per_s = {[16] = 105e9, [18] = 101e9, [20] = 100e9, [21] = 20e9, [24] = 19e9}};
}

TEST(wanted_are_the_powers_on_either_side)
{
    static const struct {
        uint64_t bytes;
        int n; /* then */
    } steps[] = {{0, 1} /* all up to a page */, {4096, 1}, {5000, 2}, {6000, 2}, {UINT64_MAX, 3}};
    struct machine m = {.fma_flops_per_s = 0};
    for (size_t i = 0; i < COUNT(steps); i++) {
        machine_want(&m, steps[i].bytes);
        ck_assert_int_eq(machine_n_wanted(&m), steps[i].n);
    }
    ck_assert(m.wanted[12] && m.wanted[13]);
}

TEST(classes_have_one_rate)
{
    struct machine m = two_classes();
    machine_settle(&m);
    for (uint64_t bytes = 1; bytes <= 1 << 20; bytes += 9999)
        ck_assert(machine_limits(&m, bytes).bytes_per_s == 105e9);
    for (uint64_t bytes = 1 << 21; bytes < 1 << 26; bytes += 999999)
        ck_assert(machine_limits(&m, bytes).bytes_per_s == 20e9);
}

/* More bytes take more time at no higher a rate, and no jump. */
TEST(one_monotone_function_of_the_bytes)
{
    struct machine m = two_classes();
    machine_settle(&m);
    double rate = 1e18, time = 0;
    for (uint64_t bytes = 1 << 18; bytes < 1 << 23; bytes += 4096) {
        const struct roofline l = machine_limits(&m, bytes);
        const double took = (double)bytes / l.bytes_per_s;
        ck_assert(l.bytes_per_s <= rate * (1 + 1e-12) && took > time);
        ck_assert(bytes == 1 << 18 || took - time < 4096 / 10e9);
        rate = l.bytes_per_s;
        time = took;
    }
}

TEST(what_was_reached_raises_smaller_ones)
{
    struct machine m = two_classes();
    machine_raise(&m, 3 << 20, &(struct roofline){50e9, 2e9, 3e9});
    ck_assert(machine_limits(&m, 3 << 20).bytes_per_s == 50e9);
    ck_assert(machine_limits(&m, 1 << 21).bytes_per_s == 50e9);
    ck_assert(machine_limits(&m, 1 << 20).bytes_per_s == 100e9);
    ck_assert(m.fma_flops_per_s == 2e9 && m.dot_flops_per_s == 4e9);
    m = two_classes();
    machine_raise(&m, 3 << 20, &(struct roofline){10e9, 0, 0}); /* no news */
    ck_assert(m.bytes_per_s[24] == 19e9);
    machine_raise(&m, 1 << 30, &(struct roofline){200e9, 0, 0});
    for (uint64_t bytes = 1; bytes < 1 << 30; bytes *= 3)
        ck_assert(machine_limits(&m, bytes).bytes_per_s == 200e9);
}

TEST(measured_and_falling)
{
    const struct kernels *k = NULL;
    struct machine m = {.fma_flops_per_s = 0};
    expect_ok(kernels_choose(NULL, &k, NULL));
    machine_want(&m, 10000);
    machine_want(&m, 100000);
    expect_ok(machine_measure(&m, k, NULL, 0, NULL));
    ck_assert(m.fma_flops_per_s > 0 && m.dot_flops_per_s > 0);
    ck_assert(m.bytes_per_s[13] >= m.bytes_per_s[14] && m.bytes_per_s[14] >= m.bytes_per_s[16] &&
              m.bytes_per_s[16] >= m.bytes_per_s[17] && m.bytes_per_s[17] > 0);
}
