#include "base/limits.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/text.h"

#define NO_LIMIT     UINT64_MAX
#define CGROUP_MOUNT "/sys/fs/cgroup"
#define SELF_CAP     8192 /* room for /proc/self/cgroup */
#define VALUE_CAP    64   /* room for a file of a number or two */

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* --- the system's small files ---------------------------------------------------------------- */

/* Reads a file's start into text[cap], terminated. False when there is no such file. */
static bool read_start(const char *path, char *text, size_t cap)
{
    size_t len = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (len < cap - 1) {
        const ssize_t n = read(fd, text + len, cap - 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    text[len] = 0;
    return len > 0;
}

static bool read_in_folder(const char *folder, const char *name, char *text, size_t cap)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           read_start(path, text, cap);
}

/* Takes a decimal number after blanks; false (a sign, "max", too large, nothing) takes nothing. */
static bool take_number(const char **at, uint64_t *out)
{
    const char *c = *at;
    char *end;
    while (isblank((unsigned char)*c))
        c++;
    if (!isdigit((unsigned char)*c))
        return false;
    errno = 0;
    const unsigned long long value = strtoull(c, &end, 10);
    if (errno == ERANGE)
        return false;
    *at = end;
    *out = value;
    return true;
}

/* The number at the start of a file. */
static bool read_number(const char *folder, const char *name, uint64_t *out)
{
    char text[VALUE_CAP];
    const char *at = text;
    return read_in_folder(folder, name, text, sizeof text) && take_number(&at, out);
}

/* The number after `name` at the start of a line. */
static bool find_number(const char *text, const char *name, uint64_t *out)
{
    const size_t len = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = line + len;
        if (strncmp(line, name, len) == 0 && take_number(&at, out))
            return true;
    }
    return false;
}

/* --- control groups -------------------------------------------------------------------------- */

/* What the group of this folder allows, in the controller's own unit. */
typedef uint64_t limit_of_group(const char *folder);

struct controller {
    const char *name;      /* in the lists of version 1 */
    const char *mounts[2]; /* below the mount, where version 1 may have it; or NULL */
    limit_of_group *limit_v1, *limit_v2;
};

/* Cuts what stands before `stop` off *rest, and the stop. */
static struct text cut(struct text *rest, char stop)
{
    const char *at = memchr(rest->data, stop, rest->len);
    const struct text first = {rest->data, at ? (size_t)(at - rest->data) : rest->len};
    const size_t gone = first.len + (at != NULL);
    *rest = (struct text){rest->data + gone, rest->len - gone};
    return first;
}

static bool climbs(struct text group)
{
    while (group.len > 0)
        if (text_is(cut(&group, '/'), ".."))
            return true;
    return false;
}

/*
 * The tightest limit from the group up to the mount itself, or what is `below` it. Inside a
 * container the group may not exist below the mount, because the mount is the group: the walk then
 * finds files only there.
 */
static uint64_t tightest_above(const char *mount, const char *below, struct text group,
                               limit_of_group *limit_of)
{
    uint64_t limit = NO_LIMIT;
    if (climbs(group)) /* it lies outside what this mount shows */
        group.len = 0;
    for (;;) {
        char folder[PATH_MAX];
        if (snprintf(folder, sizeof folder, "%s%s%.*s", mount, below, (int)group.len, group.data) <
            (int)sizeof folder)
            limit = lesser(limit, limit_of(folder));
        if (group.len == 0)
            return limit;
        while (group.len > 0 && group.data[--group.len] != '/')
            continue;
    }
}

/* The tightest limit of the groups that the text of /proc/self/cgroup names, lines of
 * "ID:CONTROLLERS:GROUP"; version 2 names no controllers. */
static uint64_t tightest(const struct controller *c, const char *mount, const char *self_cgroup)
{
    uint64_t limit = NO_LIMIT;
    for (struct text lines = text_of(self_cgroup); lines.len > 0;) {
        struct text group = cut(&lines, '\n');
        cut(&group, ':');
        struct text controllers = cut(&group, ':');
        if (!text_starts_with(group, "/") || group.len > PATH_MAX)
            continue;
        if (controllers.len == 0)
            limit = lesser(limit, tightest_above(mount, "", group, c->limit_v2));
        while (controllers.len > 0)
            if (text_is(cut(&controllers, ','), c->name))
                for (int i = 0; i < 2 && c->mounts[i]; i++)
                    limit = lesser(limit, tightest_above(mount, c->mounts[i], group, c->limit_v1));
    }
    return limit;
}

/* --- processors ------------------------------------------------------------------------------ */

/* What the kernel uses when cpu.max names no period. */
#define DEFAULT_PERIOD_US 100000

/* Of the affinity mask. */
static int affinity_size(void)
{
    cpu_set_t mask[16]; /* a kernel built for more processors refuses one that is too small */
    if (sched_getaffinity(0, sizeof mask, mask) == 0 && CPU_COUNT_S(sizeof mask, mask) > 0)
        return CPU_COUNT_S(sizeof mask, mask);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < INT_MAX ? (int)online : 1;
}

static uint64_t whole_cpus(uint64_t quota, uint64_t period)
{
    if (period == 0 || quota / period >= INT_MAX)
        return NO_LIMIT;
    return quota < period ? 1 : quota / period;
}

/* cpu.max is "QUOTA PERIOD" or "max PERIOD". */
static uint64_t cpus_v2(const char *folder)
{
    char text[VALUE_CAP];
    const char *at = text;
    uint64_t quota, period = DEFAULT_PERIOD_US;
    if (!read_in_folder(folder, "cpu.max", text, sizeof text) || !take_number(&at, &quota))
        return NO_LIMIT;
    take_number(&at, &period);
    return whole_cpus(quota, period);
}

/* A quota of -1 is none. */
static uint64_t cpus_v1(const char *folder)
{
    uint64_t quota, period;
    return read_number(folder, "cpu.cfs_quota_us", &quota) &&
                   read_number(folder, "cpu.cfs_period_us", &period)
               ? whole_cpus(quota, period)
               : NO_LIMIT;
}

int cpus_quota(const char *cgroup_mount, const char *self_cgroup)
{
    static const struct controller cpu = {"cpu", {"/cpu", "/cpu,cpuacct"}, cpus_v1, cpus_v2};
    const uint64_t limit = tightest(&cpu, cgroup_mount, self_cgroup);
    return limit == NO_LIMIT ? 0 : (int)limit;
}

int cpus_usable(void)
{
    char self_cgroup[SELF_CAP];
    const int allowed = affinity_size();
    const int quota = read_start("/proc/self/cgroup", self_cgroup, sizeof self_cgroup)
                          ? cpus_quota(CGROUP_MOUNT, self_cgroup)
                          : 0;
    return quota && quota < allowed ? quota : allowed;
}

int cpus_current(void)
{
    const int cpu = sched_getcpu();
    return cpu < 0 ? 0 : cpu;
}

void cpus_start_on(int from, int index)
{
    assert(from >= 0 && index >= 0);
    /* Masks beyond 1024 processors do not fit: there the hint is left out. */
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2)
        return;
    int cpu = from;
    for (int left = index % CPU_COUNT(&allowed); left > 0;) {
        cpu = (cpu + 1) % CPU_SETSIZE;
        left -= CPU_ISSET(cpu, &allowed) != 0;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0)
        sched_setaffinity(0, sizeof allowed, &allowed);
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Version 1 has no word for "no limit": it is a number that no machine reaches. */
#define NO_LIMIT_V1 ((uint64_t)1 << 60)

/* Below a limit; `idle_pages` is what of memory.stat may be taken back at once. */
static uint64_t memory_left(const char *folder, const char *limit_name, const char *used_name,
                            const char *idle_pages)
{
    char stat[4096];
    uint64_t limit, used, idle;
    if (!read_number(folder, limit_name, &limit) || limit >= NO_LIMIT_V1 ||
        !read_number(folder, used_name, &used))
        return NO_LIMIT;
    if (read_in_folder(folder, "memory.stat", stat, sizeof stat) &&
        find_number(stat, idle_pages, &idle))
        used -= lesser(idle, used);
    return used < limit ? limit - used : 0;
}

static uint64_t memory_v2(const char *folder)
{
    return memory_left(folder, "memory.max", "memory.current", "inactive_file ");
}

static uint64_t memory_v1(const char *folder)
{
    return memory_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                       "total_inactive_file ");
}

uint64_t available_in_cgroups(const char *cgroup_mount, const char *self_cgroup)
{
    static const struct controller memory = {"memory", {"/memory"}, memory_v1, memory_v2};
    return tightest(&memory, cgroup_mount, self_cgroup);
}

uint64_t available_in_system(const char *meminfo)
{
    uint64_t kib;
    return find_number(meminfo, "MemAvailable:", &kib) && kib < UINT64_MAX / 1024
               ? kib * 1024
               : AVAILABLE_UNKNOWN;
}

uint64_t available_memory(void)
{
    char text[SELF_CAP];
    const char *at = text;
    struct rlimit limit;
    uint64_t pages, least = AVAILABLE_UNKNOWN;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        read_start("/proc/self/statm", text, sizeof text) && take_number(&at, &pages)) {
        const uint64_t used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
        least = used < limit.rlim_cur ? limit.rlim_cur - used : 0;
    }
    if (read_start("/proc/meminfo", text, sizeof text))
        least = lesser(least, available_in_system(text));
    if (read_start("/proc/self/cgroup", text, sizeof text))
        least = lesser(least, available_in_cgroups(CGROUP_MOUNT, text));
    return least;
}
