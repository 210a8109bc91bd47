/* What memory is left, from made-up files of the system's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "cgroups.h"
#include "support.h"

static void expect(uint64_t bytes, const char *self_cgroup)
{
    ck_assert_uint_eq(available_in_cgroups(cgroups_mount, self_cgroup), bytes);
}

TEST(system_says_it_in_kib, .before = cgroups_make)
{
    ck_assert_uint_eq(available_in_system("MemTotal: 9 kB\nMemAvailable:   123 kB\nCached: 5 kB\n"),
                      123 * 1024);
    ck_assert_uint_eq(available_in_system("MemAvailable: 7 kB"), 7 * 1024);
    static const char *const none[] = {"", "MemTotal: 9 kB\n", "xMemAvailable: 9 kB\n",
                                       "MemAvailable: x\n",
                                       "MemAvailable: 18446744073709551615 kB\n"};
    for (size_t i = 0; i < COUNT(none); i++)
        ck_assert_uint_eq(available_in_system(none[i]), AVAILABLE_UNKNOWN);
}

TEST(version_2_leaves_the_least_of_all_ancestors, .before = cgroups_make)
{
    cgroups_put("a/b/memory.max", "1000\n");
    cgroups_put("a/b/memory.current", "400\n");
    expect(600, "0::/a/b\n");
    cgroups_put("a/memory.max", "2000\n");
    cgroups_put("a/memory.current", "1700\n");
    expect(300, "0::/a/b\n");
    cgroups_put("a/memory.max", "max\n");
    expect(600, "0::/a/b\n");
    cgroups_put("a/b/memory.stat", "anon 5\ninactive_file 150\nactive_file 70\n");
    expect(750, "0::/a/b\n");
    cgroups_put("a/b/memory.stat", "inactive_file 500\n");
    expect(1000, "0::/a/b\n");
    cgroups_put("a/b/memory.current", "1800\n");
    cgroups_put("a/b/memory.stat", "anon 1800\n");
    expect(0, "0::/a/b\n");
    expect(AVAILABLE_UNKNOWN, "0::/c\n");
    expect(AVAILABLE_UNKNOWN, "");
}

TEST(version_1_has_a_mount_of_its_own, .before = cgroups_make)
{
    cgroups_put("memory/job/memory.limit_in_bytes", "5000\n");
    cgroups_put("memory/job/memory.usage_in_bytes", "4500\n");
    cgroups_put("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n");
    expect(600, "3:cpu,cpuacct:/job\n5:memory:/job\n");
    expect(AVAILABLE_UNKNOWN, "3:cpu,cpuacct:/job\n");
    cgroups_put("memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    expect(AVAILABLE_UNKNOWN, "5:memory:/job\n");
}

TEST(address_space_limits_it, .before = cgroups_make)
{
    const uint64_t before = available_memory();
    ck_assert_uint_gt(before, 0);
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY}, small = {1 << 20, RLIM_INFINITY};
    const struct rlimit some = {(rlim_t)1 << 45, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &some) != 0)
        return; /* a harder limit is there already */
    ck_assert_uint_le(available_memory(), (uint64_t)1 << 45);
    setrlimit(RLIMIT_AS, &small);
    const uint64_t least = available_memory();
    setrlimit(RLIMIT_AS, &none);
    ck_assert_uint_eq(least, 0);
}
