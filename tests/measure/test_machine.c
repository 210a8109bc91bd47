/* Tests of the predicted speed of the machine; none depends on a time. */
#include "measure/machine.h"

#include "kernel_data.h"
#include "support.h"

/* A cache of 1 MiB, and a memory beyond it. */
static struct machine two_levels(void)
{
    return (struct machine){.fma_flops_per_s = 1e9,
                            .dot_flops_per_s = 4e9,
                            .bytes_per_s = {[18] = 105e9, [20] = 100e9, [21] = 20e9, [24] = 19e9}};
}

TEST(wanted_is_the_next_power)
{
    static const struct {
        uint64_t bytes;
        int power;
    } steps[] = {{0, 12} /* all up to a page */,
                 {4096, 12},
                 {5000, 13},
                 {8192, 13},
                 {UINT64_MAX, MACHINE_POWERS - 1}};
    for (size_t i = 0; i < COUNT(steps); i++) {
        struct machine m = {.fma_flops_per_s = 0};
        machine_want(&m, steps[i].bytes);
        for (int p = 0; p < MACHINE_POWERS; p++)
            ck_assert(m.wanted[p] == (p == steps[i].power));
    }
}

TEST(limits_are_those_of_the_next_power)
{
    const struct machine m = two_levels();
    ck_assert(machine_limits(&m, 1 << 20).bytes_per_s == 100e9);
    ck_assert(machine_limits(&m, (1 << 20) + 1).bytes_per_s == 20e9);
    ck_assert(machine_limits(&m, 1 << 24).bytes_per_s == 19e9);
    ck_assert(machine_limits(&m, 1 << 24).dot_flops_per_s == 4e9);
}

TEST(what_was_reached_raises_smaller_ones)
{
    struct machine m = two_levels();
    machine_raise(&m, 3 << 19, &(struct roofline){50e9, 2e9, 3e9});
    ck_assert(machine_limits(&m, 1 << 21).bytes_per_s == 50e9);
    ck_assert(machine_limits(&m, 1 << 20).bytes_per_s == 100e9);
    ck_assert(m.fma_flops_per_s == 2e9 && m.dot_flops_per_s == 4e9);
    m = two_levels();
    machine_raise(&m, 3 << 19, &(struct roofline){10e9, 0, 0}); /* no news */
    ck_assert(m.bytes_per_s[21] == 20e9);
    machine_raise(&m, 1 << 24, &(struct roofline){103e9, 0, 0});
    ck_assert(m.bytes_per_s[18] == 105e9 && m.bytes_per_s[20] == 103e9 &&
              m.bytes_per_s[21] == 103e9);
}

TEST(measured_and_falling)
{
    for (const struct kernels *k = NULL; (k = next_kernels(k));) {
        struct machine m = {.fma_flops_per_s = 0};
        machine_want(&m, 10000);
        machine_want(&m, 100000);
        expect_ok(machine_measure(&m, k, NULL, 0, NULL));
        ck_assert(m.fma_flops_per_s > 0 && m.dot_flops_per_s > 0);
        ck_assert(m.bytes_per_s[14] >= m.bytes_per_s[17] && m.bytes_per_s[17] > 0);
    }
}
