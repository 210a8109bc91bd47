/* Tests of how many processors and how much memory are left, by made-up files of /proc and control
 * groups. */
#include <sys/stat.h>

#include "base/limits.c" /* what reads these files is private */
#include "support.h"

/* The mount of control groups; each row has its own. */
static const char *mount;

static void make_mount(void)
{
    static int n;
    char name[32];
    snprintf(name, sizeof name, "cgroup%d", n++);
    mount = scratch_path(name);
    ck_assert_int_eq(mkdir(mount, 0755), 0);
}

/* Writes a file below the mount, with the folders on its way. */
static void put(const char *name, const char *contents)
{
    char path[512];
    const int start = snprintf(path, sizeof path, "%s/%s", mount, name) - (int)strlen(name);
    for (char *slash = path + start; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(path, 0755);
    }
    write_file(path, contents, strlen(contents));
}

/* A row has names and contents of files in turn, what /proc/self/cgroup says, and the limit; 0:
 * there is none. */
struct row {
    const char *self;
    uint64_t expected;
    const char *files[9];
};

static const struct row quotas[] = {
    /* Quotas are rounded down, and are at least 1. */
    {"0::/job\n", 0, {"job/cpu.max", "max 100000\n"}},
    {"0::/job\n", 4, {"job/cpu.max", "400000 100000\n"}},
    {"0::/job\n", 3, {"job/cpu.max", "399999 100000\n"}},
    {"0::/job\n", 1, {"job/cpu.max", "50000 100000\n"}},
    {"0::/job\n", 1, {"job/cpu.max", "150000 100000\n"}},
    {"0::/job\n", 10, {"job/cpu.max", "10000 1000\n"}},
    {"0::/job\n", 3, {"job/cpu.max", "300000"}},
    {"0::/job\n", 1, {"job/cpu.max", "0 100000\n"}},
    {"0::/job\n", 2, {"job/cpu.max", "  200000\t100000 "}},
    /* The tightest limit of the ancestors counts; the mount itself is one. */
    {"0::/a/b/c\n", 3, {"a/b/c/cpu.max", "max 1\n", "a/b/cpu.max", "3 1", "a/cpu.max", "8 1"}},
    {"0::/a\n", 8, {"a/b/cpu.max", "3 1", "a/cpu.max", "8 1"}},
    {"0::/a/b\n", 2, {"a/b/cpu.max", "3 1", "cpu.max", "2 1"}},
    {"0::/\n", 2, {"a/b/cpu.max", "3 1", "cpu.max", "2 1"}},
    /* A group that is not below the mount counts as the mount; no path leads out of this. */
    {"0::/docker/0123456789abcdef\n", 2, {"cpu.max", "250000 100000\n"}},
    {"0::/system.slice/x.service (deleted)\n", 2, {"cpu.max", "250000 100000\n"}},
    {"0::/..\n", 3, {"cpu.max", "3 1", "../cpu.max", "1 1"}},
    {"0::/../other\n", 3, {"cpu.max", "3 1", "../other/cpu.max", "1 1"}},
    {"0::/a/../..\n", 3, {"cpu.max", "3 1", "../cpu.max", "1 1"}},
    {"0::/..data\n", 1, {"cpu.max", "3 1", "..data/cpu.max", "1 1"}}, /* a name, not a way up */
    /* There is no file. */
    {"", 0, {NULL}},
    {"\n\n", 0, {NULL}},
    {"0::/job\n", 0, {NULL}},
    {"0::/job\n", 0, {"job/cpu.max/x", ""}},
    {"3:cpu:/job\n", 0, {"job/cpu.max", "3 1"}},
    /* Odd contents are read as far as they make sense. */
    {"0::/job\n", 0, {"job/cpu.max", ""}},
    {"0::/job\n", 0, {"job/cpu.max", "\n"}},
    {"0::/job\n", 0, {"job/cpu.max", "abc"}},
    {"0::/job\n", 0, {"job/cpu.max", "\xff "}},
    {"0::/job\n", 0, {"job/cpu.max", "+5 5"}},
    {"0::/job\n", 0, {"job/cpu.max", "-100000 100000\n"}},
    {"0::/job\n", 0, {"job/cpu.max", "200000 0\n"}},
    {"0::/job\n", 0, {"job/cpu.max", "99999999999999999999999 100000\n"}},
    {"0::/job\n", 0, {"job/cpu.max", "18446744073709551600 1\n"}},
    {"0::/job\n", 2147483646, {"job/cpu.max", "2147483646 1\n"}},
    {"0::/job\n", 0, {"job/cpu.max", "2147483647 1\n"}},
    {"0::/job\n", 3, {"job/cpu.max", "300000 99999999999999999999999\n"}}, /* the kernel's period */
    {"0::/job\n", 3, {"job/cpu.max", "300000 banana\n"}},
    {"0::/job\n", 1, {"job/cpu.max", "0x10 10\n"}},
    /* Lines of another form are passed over. */
    {"rubbish\n0::/job\n", 3, {"job/cpu.max", "3 1"}},
    {":\n0::/job\n", 3, {"job/cpu.max", "3 1"}},
    {"::\n0:\n0::\n0::/job\n", 3, {"job/cpu.max", "3 1"}},
    {"0::job\n3:cpu:/job\n0::/job\n", 3, {"job/cpu.max", "3 1"}},
    {"\n\n0::/job", 3, {"job/cpu.max", "3 1"}},
    {"0::/job:with:colons\n", 3, {"job:with:colons/cpu.max", "3 1"}},
};

#define MEMORY(group, max, current) group "memory.max", max, group "memory.current", current
#define STAT                        "b/memory.stat"

static const struct row memories[] = {
    {"0::/a/b\n", 600, {MEMORY("a/b/", "1000\n", "400\n")}},
    {"0::/a/b\n", 300, {MEMORY("a/b/", "1000", "400"), MEMORY("a/", "2000", "1700")}},
    {"0::/a/b\n", 600, {MEMORY("a/b/", "1000", "400"), MEMORY("a/", "max\n", "1700")}},
    {"0::/b\n",
     750,
     {MEMORY("b/", "1000", "400"), STAT, "anon 5\ninactive_file 150\nactive_file 70\n"}},
    {"0::/b\n", 1000, {MEMORY("b/", "1000", "400"), STAT, "inactive_file 500\n"}},
    {"0::/c\n", AVAILABLE_UNKNOWN, {MEMORY("b/", "1000", "400")}},
    {"0::/\n", 0, {MEMORY("", "1000", "1800\n")}},
    {"", AVAILABLE_UNKNOWN, {NULL}},
};

static void put_files(const struct row *row)
{
    make_mount();
    for (int f = 0; row->files[f]; f += 2)
        put(row->files[f], row->files[f + 1]);
}

/* Processors; 0: NO_LIMIT, the largest number. */
static uint64_t quota(const char *folder, const char *self)
{
    return tightest(cpu_limit, folder, self) % NO_LIMIT;
}

TEST(quotas_of_groups)
{
    for (size_t i = 0; i < COUNT(quotas); i++) {
        put_files(&quotas[i]);
        const uint64_t found = quota(mount, quotas[i].self);
        ck_assert_msg(found == quotas[i].expected, "row %zu, %s", i, quotas[i].self);
    }
    ck_assert_uint_eq(quota("/nonexistent", "0::/job\n"), 0);
}

TEST(memory_of_groups)
{
    for (size_t i = 0; i < COUNT(memories); i++) {
        put_files(&memories[i]);
        const uint64_t found = tightest(memory_limit, mount, memories[i].self);
        ck_assert_msg(found == memories[i].expected, "row %zu, %s", i, memories[i].self);
    }
}

TEST(long_groups_are_no_trouble, .before = make_mount)
{
    put("cpu.max", "300000 100000\n");
    char *text = allocated(100000);
    for (int length = 4000; length < 90000; length += length < 4200 ? 1 : 10000) {
        const int start = sprintf(text, "0::");
        for (int i = 0; i < length; i++)
            text[start + i] = i % 100 ? 'x' : '/';
        text[start + length] = 0;
        ck_assert_uint_eq(quota(mount, text), 3);
    }
}

TEST(system_says_it_in_kib)
{
    static const struct {
        const char *text;
        uint64_t expected;
    } cases[] = {
        {"MemTotal: 9 kB\nMemAvailable:   123 kB\nCached: 5 kB\n", 123 * 1024},
        {"MemAvailable: 7 kB", 7 * 1024},
        {"", AVAILABLE_UNKNOWN},
        {"MemTotal: 9 kB\n", AVAILABLE_UNKNOWN},
        {"xMemAvailable: 9 kB\n", AVAILABLE_UNKNOWN},
        {"MemAvailable: x\n", AVAILABLE_UNKNOWN},
        {"MemAvailable: 18446744073709551615 kB\n", AVAILABLE_UNKNOWN},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        ck_assert_uint_eq(available_in_system(cases[i].text), cases[i].expected);
}

TEST(address_space_limits_it)
{
    ck_assert_uint_gt(available_memory(), 0);
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

TEST(usable_is_at_most_the_affinity_mask)
{
    const int usable = cpus_usable();
    ck_assert_int_ge(usable, 1);
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return; /* a machine with more processors than this mask holds */
    ck_assert_int_le(usable, CPU_COUNT(&mask));
    const int first = cpus_current();
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ck_assert(sched_setaffinity(0, sizeof mask, &mask) == 0 && cpus_usable() == 1);
}

/* The hint picks a usable processor, and the mask stays as it was. */
TEST(starting_on_a_processor_pins_nothing)
{
    cpu_set_t before, after;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    ck_assert(CPU_ISSET(cpus_current(), &before));
    static const int starts[] = {0, 1, 7, CPU_SETSIZE - 1};
    for (size_t i = 0; i < COUNT(starts); i++)
        for (int index = 0; index < 5; index++) {
            cpus_start_on(starts[i], index);
            ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
            ck_assert(CPU_EQUAL(&before, &after));
        }
}
