#include "base/limits.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"

#define NO_LIMIT     UINT64_MAX /* of a group */
#define CGROUP_MOUNT "/sys/fs/cgroup"
#define SELF_CAP     8192 /* room for /proc/self/cgroup */

/* A function, as what it takes are readings of files. */
static uint64_t lesser(uint64_t a, uint64_t b)
{
    return MIN(a, b);
}

/* --- the system's small files ---------------------------------------------------------------- */

/* Reads the start of folder/name into text[cap], terminated. False when there is no such file. */
static bool read_start(const char *folder, const char *name, char *text, size_t cap)
{
    char path[PATH_MAX];
    size_t len = 0;
    ssize_t n;
    if (chars_printf(path, "%s/%s", folder, name) >= (int)sizeof path)
        return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (len < cap - 1 && (n = read(fd, text + len, cap - 1 - len)) > 0)
        len += n;
    close(fd);
    text[len] = 0;
    return len > 0;
}

/* The one or two numbers that a file starts with: how many there are. "max" is none; one that is
 * too large is UINT64_MAX. */
static int read_numbers(const char *folder, const char *name, uint64_t *first, uint64_t *second)
{
    char text[64];
    return read_start(folder, name, text, sizeof text) &&
                   isdigit((unsigned char)text[strspn(text, " ")])
               ? sscanf(text, "%" SCNu64 " %" SCNu64, first, second)
               : 0;
}

/* The number after `name` at the start of a line. */
static bool find_number(const char *text, const char *name, uint64_t *out)
{
    const size_t len = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) == 0)
            return sscanf(line + len, "%" SCNu64, out) == 1;
    }
    return false;
}

/* --- control groups -------------------------------------------------------------------------- */

struct controller {
    const char *name;      /* in the lists of version 1 */
    const char *mounts[2]; /* below the mount, where version 1 may have it; or NULL */
    /* What the group of this folder may have, in the controller's own unit: of either version,
     * whose files have other names. */
    uint64_t (*limit)(const char *folder);
};

/* Cuts what stands before `stop` off *rest, and the stop. */
static struct text cut_field(struct text *rest, char stop)
{
    const char *at = memchr(rest->data, stop, rest->len);
    const struct text first = text_cut(rest, at ? (size_t)(at - rest->data) : rest->len);
    text_cut(rest, at != NULL);
    return first;
}

/*
 * The tightest limit from the group up to the mount itself, or what is `below` it. Inside a
 * container the group may not exist below the mount, because the mount is the group: the walk then
 * finds files only there; as it does where the group lies outside what the mount shows.
 */
static uint64_t tightest_above(const struct controller *c, const char *mount, const char *below,
                               struct text group)
{
    uint64_t limit = NO_LIMIT;
    if (text_ends_with(group, "/..") || memmem(group.data, group.len, "/../", 4))
        group.len = 0;
    for (;;) {
        char folder[PATH_MAX];
        if (chars_printf(folder, "%s%s%.*s", mount, below, (int)group.len, group.data) <
            (int)sizeof folder)
            limit = lesser(limit, c->limit(folder));
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
        struct text group = cut_field(&lines, '\n');
        cut_field(&group, ':');
        struct text controllers = cut_field(&group, ':');
        if (!text_starts_with(group, "/") || group.len > PATH_MAX)
            continue;
        if (controllers.len == 0)
            limit = lesser(limit, tightest_above(c, mount, "", group));
        while (controllers.len > 0)
            if (text_is(cut_field(&controllers, ','), c->name))
                for (int i = 0; i < 2 && c->mounts[i]; i++)
                    limit = lesser(limit, tightest_above(c, mount, c->mounts[i], group));
    }
    return limit;
}

/* --- processors ------------------------------------------------------------------------------ */

/* What the kernel uses when cpu.max names no period. */
#define DEFAULT_PERIOD_US 100000

/* Whole ones. cpu.max is "QUOTA PERIOD" or "max PERIOD"; in version 1 they are files, and a quota
 * of -1 is none. */
static uint64_t cpu_limit(const char *folder)
{
    uint64_t quota, period = DEFAULT_PERIOD_US, none;
    if (read_numbers(folder, "cpu.max", &quota, &period) < 1 &&
        (read_numbers(folder, "cpu.cfs_quota_us", &quota, &none) < 1 ||
         read_numbers(folder, "cpu.cfs_period_us", &period, &none) < 1))
        return NO_LIMIT;
    if (period == UINT64_MAX)
        period = DEFAULT_PERIOD_US;
    if (period == 0 || quota / period >= INT_MAX)
        return NO_LIMIT;
    return quota < period ? 1 : quota / period;
}

int cpus_quota(const char *cgroup_mount, const char *self_cgroup)
{
    static const struct controller cpu = {"cpu", {"/cpu", "/cpu,cpuacct"}, cpu_limit};
    const uint64_t limit = tightest(&cpu, cgroup_mount, self_cgroup);
    return limit == NO_LIMIT ? 0 : limit;
}

int cpus_usable(void)
{
    char self_cgroup[SELF_CAP];
    cpu_set_t mask[16]; /* a kernel built for more processors refuses one that is too small */
    const bool known = sched_getaffinity(0, sizeof mask, mask) == 0;
    const long online = known ? CPU_COUNT_S(sizeof mask, mask) : sysconf(_SC_NPROCESSORS_ONLN);
    const int allowed = online > 0 && online < INT_MAX ? online : 1;
    const int quota = read_start("/proc/self", "cgroup", self_cgroup, sizeof self_cgroup)
                          ? cpus_quota(CGROUP_MOUNT, self_cgroup)
                          : 0;
    return quota ? MIN(quota, allowed) : allowed;
}

int cpus_current(void)
{
    const int cpu = sched_getcpu();
    return MAX(cpu, 0);
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

/* What is left below a limit. Version 1 has no word for "no limit": it is a number that no machine
 * reaches. */
static uint64_t memory_limit(const char *folder)
{
    static const struct {
        const char *allowed, *used, *idle; /* the last of memory.stat: may be taken back at once */
    } files[] = {{"memory.max", "memory.current", "inactive_file "},
                 {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}};
    char stat[4096];
    uint64_t limit, used, idle, none;
    for (int v = 0; v < 2; v++) {
        if (read_numbers(folder, files[v].allowed, &limit, &none) < 1 ||
            limit >= (uint64_t)1 << 60 || read_numbers(folder, files[v].used, &used, &none) < 1)
            continue;
        if (read_start(folder, "memory.stat", stat, sizeof stat) &&
            find_number(stat, files[v].idle, &idle))
            used -= MIN(idle, used);
        return used < limit ? limit - used : 0;
    }
    return NO_LIMIT;
}

uint64_t available_in_cgroups(const char *cgroup_mount, const char *self_cgroup)
{
    static const struct controller memory = {"memory", {"/memory"}, memory_limit};
    return tightest(&memory, cgroup_mount, self_cgroup);
}

uint64_t available_in_system(const char *meminfo)
{
    uint64_t kib;
    return find_number(meminfo, "MemAvailable:", &kib) && kib < UINT64_MAX / 1024
               ? kib * 1024
               : AVAILABLE_UNKNOWN;
}

uint64_t peak_memory(void)
{
    char text[SELF_CAP];
    struct rusage usage = {0};
    uint64_t kib;
    if (read_start("/proc/self", "status", text, sizeof text) &&
        find_number(text, "VmHWM:", &kib) && kib < UINT64_MAX / 1024)
        return kib * 1024;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

uint64_t available_memory(void)
{
    char text[SELF_CAP];
    struct rlimit limit;
    uint64_t pages, none, least = AVAILABLE_UNKNOWN;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        read_numbers("/proc/self", "statm", &pages, &none) > 0) {
        const uint64_t used = pages * sysconf(_SC_PAGESIZE);
        least = used < limit.rlim_cur ? limit.rlim_cur - used : 0;
    }
    if (read_start("/proc", "meminfo", text, sizeof text))
        least = lesser(least, available_in_system(text));
    if (read_start("/proc/self", "cgroup", text, sizeof text))
        least = lesser(least, available_in_cgroups(CGROUP_MOUNT, text));
    return least;
}
