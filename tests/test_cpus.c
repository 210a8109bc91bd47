#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "cgroups.h"
#include "support.h"

static void expect(int quota, const char *self_cgroup)
{
    ck_assert_msg(cpus_quota(cgroups_mount, self_cgroup) == quota, "%d instead of %d for \"%s\"",
                  cpus_quota(cgroups_mount, self_cgroup), quota, self_cgroup);
}

TEST(version_2_quota_is_rounded_down_to_at_least_one, .before = cgroups_make)
{
    static const struct {
        const char *cpu_max;
        int quota;
    } cases[] = {
        {"max 100000\n", 0},      {"400000 100000\n", 4},
        {"399999 100000\n", 3},   {"50000 100000\n", 1},
        {"100000 100000\n", 1},   {"150000 100000\n", 1},
        {"10000 1000\n", 10},     {"300000", 3},
        {"300000\n", 3},          {"0 100000\n", 1},
        {"  200000\t100000 ", 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        cgroups_put("job/cpu.max", cases[i].cpu_max);
        expect(cases[i].quota, "0::/job\n");
    }
}

TEST(version_2_takes_the_tightest_ancestor, .before = cgroups_make)
{
    cgroups_put("a/b/c/cpu.max", "max 100000\n");
    cgroups_put("a/b/cpu.max", "300000 100000\n");
    cgroups_put("a/cpu.max", "800000 100000\n");
    expect(3, "0::/a/b/c\n");
    expect(8, "0::/a\n");
    cgroups_put("cpu.max", "200000 100000\n");
    expect(2, "0::/a/b/c\n");
    expect(2, "0::/\n");
}

TEST(group_that_is_not_below_the_mount_means_the_mount, .before = cgroups_make)
{
    cgroups_put("cpu.max", "250000 100000\n");
    expect(2, "0::/docker/0123456789abcdef\n");
    expect(2, "0::/system.slice/x.service (deleted)\n");
}

TEST(group_outside_the_namespace_does_not_leave_the_mount, .before = cgroups_make)
{
    cgroups_put("cpu.max", "500000 100000\n");
    cgroups_put("inner/cpu.max", "300000 100000\n");
    char inner[600];
    snprintf(inner, sizeof inner, "%s/inner", cgroups_mount);
    ck_assert(cpus_quota(inner, "0::/..\n") == 3 && cpus_quota(inner, "0::/../other\n") == 3);
    ck_assert_int_eq(cpus_quota(inner, "0::/a/../..\n"), 3);
    cgroups_put("..data/cpu.max", "100000 100000\n"); /* a name, not a way up */
    expect(1, "0::/..data\n");
}

TEST(version_1_quota_over_period, .before = cgroups_make)
{
    cgroups_put("cpu/job/cpu.cfs_quota_us", "350000\n");
    cgroups_put("cpu/job/cpu.cfs_period_us", "100000\n");
    expect(3, "4:memory:/job\n3:cpu:/job\n1:name=systemd:/job\n");
    cgroups_put("cpu/job/cpu.cfs_quota_us", "-1\n");
    expect(0, "3:cpu:/job\n");
    cgroups_put("cpu/cpu.cfs_quota_us", "20000\n");
    cgroups_put("cpu/cpu.cfs_period_us", "10000\n");
    expect(2, "3:cpu:/job\n");
}

TEST(version_1_is_found_under_its_joint_name, .before = cgroups_make)
{
    cgroups_put("cpu,cpuacct/job/cpu.cfs_quota_us", "350000\n");
    cgroups_put("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    expect(3, "5:cpu,cpuacct:/job\n");
    expect(3, "5:cpuacct,cpu:/job\n");
}

TEST(only_the_cpu_controller_counts, .before = cgroups_make)
{
    cgroups_put("cpu/job/cpu.cfs_quota_us", "100000\n");
    cgroups_put("cpu/job/cpu.cfs_period_us", "100000\n");
    expect(0, "3:cpuset:/job\n2:cpuacct:/job\n1:name=cpu:/job\n");
    expect(1, "1:name=systemd:/\n2:cpu:/job\n");
}

TEST(both_versions_together_give_the_tighter, .before = cgroups_make)
{
    cgroups_put("cpu/job/cpu.cfs_quota_us", "600000\n");
    cgroups_put("cpu/job/cpu.cfs_period_us", "100000\n");
    cgroups_put("job/cpu.max", "400000 100000\n");
    expect(4, "3:cpu:/job\n0::/job\n");
    cgroups_put("job/cpu.max", "700000 100000\n");
    expect(6, "0::/job\n3:cpu:/job\n");
}

TEST(nothing_there_is_no_limit, .before = cgroups_make)
{
    expect(0, "");
    expect(0, "\n\n");
    expect(0, "0::/\n");
    expect(0, "0::/job\n3:cpu:/job\n");
    ck_assert_int_eq(cpus_quota("/nonexistent", "0::/job\n"), 0);
    ck_assert_int_eq(cpus_quota("", "0::/nonexistent\n"), 0);
}

TEST(odd_contents_are_read_as_far_as_they_make_sense, .before = cgroups_make)
{
    static const struct {
        const char *cpu_max;
        int quota;
    } cases[] = {
        {"", 0},
        {"\n", 0},
        {"max", 0},
        {"abc", 0},
        {"\xff ", 0},
        {"+5 5", 0},
        {"-1 100000\n", 0},
        {"-100000 100000\n", 0},
        {"200000 0\n", 0},
        {"99999999999999999999999 100000\n", 0},
        {"18446744073709551600 1\n", 0},
        {"2147483646 1\n", 2147483646},
        {"2147483647 1\n", 0},
        {"300000 99999999999999999999999\n", 3}, /* with the kernel's period */
        {"300000 banana\n", 3},
        {"0x10 10\n", 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        cgroups_put("job/cpu.max", cases[i].cpu_max);
        expect(cases[i].quota, "0::/job\n");
    }
}

TEST(folders_in_place_of_files_are_no_limit, .before = cgroups_make)
{
    cgroups_put("job/cpu.max/x", "");
    cgroups_put("cpu/job/cpu.cfs_quota_us/x", "");
    cgroups_put("cpu/job/cpu.cfs_period_us", "100000\n");
    expect(0, "0::/job\n3:cpu:/job\n");
}

TEST(odd_lines_are_passed_over, .before = cgroups_make)
{
    cgroups_put("job/cpu.max", "300000 100000\n");
    static const char *const lines[] = {
        "rubbish\n0::/job\n",
        ":\n0::/job\n",
        "::\n0::/job\n",
        "0:\n0::/job\n",
        "0::\n0::/job\n",
        "0::job\n0::/job\n",
        "7:,,,:/\n0::/job\n",
        "\n\n0::/job\n",
        "0::/job",
        "0::/job:with:colons\n0::/job\n",
        "0:::/job\n0::/job\n",
    };
    for (size_t i = 0; i < COUNT(lines); i++)
        expect(3, lines[i]);
}

TEST(long_groups_are_no_trouble, .before = cgroups_make)
{
    cgroups_put("cpu.max", "300000 100000\n");
    char *text = allocated(100000);
    for (int length = 4000; length < 90000; length += length < 4200 ? 1 : 10000) {
        const int start = sprintf(text, "0::");
        for (int i = 0; i < length; i++)
            text[start + i] = i % 100 ? 'x' : '/';
        text[start + length] = 0;
        /* Beyond PATH_MAX no such group exists, and the line is passed over. */
        const int quota = cpus_quota(cgroups_mount, text);
        ck_assert(quota == 3 || (quota == 0 && length >= 4096));
    }
}

TEST(usable_is_at_most_the_affinity_mask)
{
    const int usable = cpus_usable();
    ck_assert_int_ge(usable, 1);
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return; /* a machine with more processors than this mask holds */
    ck_assert_int_le(usable, CPU_COUNT(&mask));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mask))
            continue;
        CPU_ZERO(&mask);
        CPU_SET(cpu, &mask);
        break;
    }
    ck_assert(sched_setaffinity(0, sizeof mask, &mask) == 0 && cpus_usable() == 1);
}

/* The hint picks any usable processor and leaves the mask as it was. */
TEST(starting_on_a_processor_pins_nothing)
{
    cpu_set_t before, after;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    ck_assert(CPU_ISSET(cpus_current(), &before));
    static const int starts[] = {0, 1, 7, CPU_SETSIZE - 1};
    for (size_t i = 0; i < COUNT(starts); i++) {
        for (int index = 0; index < 5; index++) {
            cpus_start_on(starts[i], index);
            ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
            ck_assert(CPU_EQUAL(&before, &after));
        }
    }
}
