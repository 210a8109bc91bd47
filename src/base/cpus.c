#include "base/cpus.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define NO_LIMIT INT_MAX

/* What the kernel uses when cpu.max names no period. */
#define DEFAULT_PERIOD_US 100000

/* Sizes of masks to try: a kernel built for more processors refuses a smaller one. */
#define MASK_CPUS_MIN 1024
#define MASK_CPUS_MAX (1 << 20)

static int lesser(int a, int b)
{
    return a < b ? a : b;
}

static int affinity_size(void)
{
#ifdef __linux__
    for (int n = MASK_CPUS_MIN; n <= MASK_CPUS_MAX; n *= 2) {
        cpu_set_t *mask = CPU_ALLOC(n);
        if (!mask)
            break;
        const size_t bytes = CPU_ALLOC_SIZE(n);
        const int failed = sched_getaffinity(0, bytes, mask);
        const int error = errno;
        const int count = failed ? 0 : CPU_COUNT_S(bytes, mask);
        CPU_FREE(mask);
        if (count > 0)
            return count;
        if (failed && error != EINVAL)
            break;
    }
#endif
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < INT_MAX ? (int)online : 1;
}

/* Reads the file's start into text[cap], terminated. False when there is no such file. */
static bool read_start(const char *path, char *text, size_t cap)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t len = 0;
    ssize_t n;
    while (len < cap - 1) {
        n = read(fd, text + len, cap - 1 - len);
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

/* Takes a decimal number after blanks; false (a sign, "max", too large, nothing) takes nothing. */
static bool take_number(const char **at, uint64_t *out)
{
    const char *c = *at;
    while (isblank((unsigned char)*c))
        c++;
    if (!isdigit((unsigned char)*c))
        return false;
    uint64_t value = 0;
    for (; isdigit((unsigned char)*c); c++) {
        if (value > (UINT64_MAX - 9) / 10)
            return false;
        value = value * 10 + (uint64_t)(*c - '0');
    }
    *at = c;
    *out = value;
    return true;
}

static int whole_cpus(uint64_t quota, uint64_t period)
{
    if (period == 0 || quota / period >= NO_LIMIT)
        return NO_LIMIT;
    return quota < period ? 1 : (int)(quota / period);
}

/* cpu.max is "QUOTA PERIOD" or "max PERIOD". */
static int limit_v2(const char *folder)
{
    char path[PATH_MAX], text[128];
    const char *at = text;
    uint64_t quota, period = DEFAULT_PERIOD_US;
    if (snprintf(path, sizeof path, "%s/cpu.max", folder) >= (int)sizeof path ||
        !read_start(path, text, sizeof text) || !take_number(&at, &quota))
        return NO_LIMIT;
    take_number(&at, &period);
    return whole_cpus(quota, period);
}

static bool read_number(const char *folder, const char *name, uint64_t *out)
{
    char path[PATH_MAX], text[128];
    const char *at = text;
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           read_start(path, text, sizeof text) && take_number(&at, out);
}

/* A quota of -1 is none. */
static int limit_v1(const char *folder)
{
    uint64_t quota, period;
    if (!read_number(folder, "cpu.cfs_quota_us", &quota) ||
        !read_number(folder, "cpu.cfs_period_us", &period))
        return NO_LIMIT;
    return whole_cpus(quota, period);
}

static bool climbs(struct text group)
{
    for (size_t i = 0; i + 3 <= group.len; i++)
        if (memcmp(group.data + i, "/..", 3) == 0 &&
            (i + 3 == group.len || group.data[i + 3] == '/'))
            return true;
    return false;
}

/*
 * The tightest limit from the group up to the mount itself. Inside a container the group may not
 * exist below the mount, because the mount is the group: the walk then finds files only there.
 */
static int tightest(const char *mount, struct text group, int limit_of(const char *folder))
{
    if (climbs(group)) /* it lies outside what this mount shows */
        group.len = 0;
    int limit = NO_LIMIT;
    for (;;) {
        char folder[PATH_MAX];
        const int n = snprintf(folder, sizeof folder, "%s%.*s", mount, (int)group.len, group.data);
        if (n < (int)sizeof folder)
            limit = lesser(limit, limit_of(folder));
        if (group.len == 0)
            return limit;
        while (group.len > 0 && group.data[--group.len] != '/')
            continue;
    }
}

static bool lists_cpu(struct text controllers)
{
    for (;;) {
        const char *comma = memchr(controllers.data, ',', controllers.len);
        const size_t len = comma ? (size_t)(comma - controllers.data) : controllers.len;
        if (text_is((struct text){controllers.data, len}, "cpu"))
            return true;
        if (!comma)
            return false;
        controllers = (struct text){comma + 1, controllers.len - len - 1};
    }
}

/* A line of /proc/self/cgroup is "ID:CONTROLLERS:GROUP"; version 2 names no controllers. */
static int line_limit(const char *mount, struct text line)
{
    const char *end = line.data + line.len;
    const char *first = memchr(line.data, ':', line.len);
    if (!first)
        return NO_LIMIT;
    const char *controllers = first + 1;
    const char *second = memchr(controllers, ':', (size_t)(end - controllers));
    if (!second || second + 1 == end || second[1] != '/' || end - second > PATH_MAX)
        return NO_LIMIT;
    const struct text group = {second + 1, (size_t)(end - second - 1)};
    if (second == controllers)
        return tightest(mount, group, limit_v2);
    if (!lists_cpu((struct text){controllers, (size_t)(second - controllers)}))
        return NO_LIMIT;

    int limit = NO_LIMIT;
    static const char *const names[] = {"cpu", "cpu,cpuacct"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char v1_mount[PATH_MAX];
        if (snprintf(v1_mount, sizeof v1_mount, "%s/%s", mount, names[i]) < (int)sizeof v1_mount)
            limit = lesser(limit, tightest(v1_mount, group, limit_v1));
    }
    return limit;
}

int cpus_quota(const char *cgroup_mount, const char *self_cgroup)
{
    int limit = NO_LIMIT;
    for (const char *line = self_cgroup; *line;) {
        const size_t len = strcspn(line, "\n");
        limit = lesser(limit, line_limit(cgroup_mount, (struct text){line, len}));
        line += len + (line[len] == '\n');
    }
    return limit == NO_LIMIT ? 0 : limit;
}

int cpus_usable(void)
{
    const int allowed = affinity_size();
    char self_cgroup[16384];
    if (!read_start("/proc/self/cgroup", self_cgroup, sizeof self_cgroup))
        return allowed;
    const int quota = cpus_quota("/sys/fs/cgroup", self_cgroup);
    return quota ? lesser(allowed, quota) : allowed;
}

int cpus_current(void)
{
#ifdef __linux__
    const int cpu = sched_getcpu();
    return cpu < 0 ? 0 : cpu;
#else
    return 0;
#endif
}

void cpus_start_on(int from, int index)
{
    assert(from >= 0 && index >= 0);
#ifdef __linux__
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
#else
    (void)from;
    (void)index;
#endif
}
