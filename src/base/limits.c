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

/* Returns what stands behind `start` at the start of a line; NULL if no line starts so. */
static const char *line_after(const char *text, const char *start)
{
    const size_t len = strlen(start);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, start, len) == 0)
            return line + len;
    }
    return NULL;
}

/* Reads the number behind `start` at the start of a line. */
static bool find_number(const char *text, const char *start, uint64_t *out)
{
    const char *number = line_after(text, start);
    return number && sscanf(number, "%" SCNu64, out) == 1;
}

/* --- control groups -------------------------------------------------------------------------- */

/*
 * Returns the tightest limit from the group, which the line "0::/GROUP" names, up to the mount
 * itself. Inside a container the group may not exist below the mount, because the mount is the
 * group; or it lies outside what the mount shows ("/../"). Then only the mount has files.
 */
static uint64_t tightest(uint64_t (*limit_of)(const char *folder), const char *mount,
                         const char *self_cgroup)
{
    const char *own = line_after(self_cgroup, "0::/");
    struct text group = text_span(own ? own - 1 : "", own ? 1 + strcspn(own, "\n") : 0);
    uint64_t limit = NO_LIMIT;
    if (text_ends_with(group, "/..") || memmem(group.data, group.len, "/../", 4))
        group.len = 0;
    for (;;) {
        char folder[PATH_MAX];
        if (chars_printf(folder, "%s%.*s", mount, (int)MIN(group.len, PATH_MAX), group.data) <
            (int)sizeof folder) {
            const uint64_t here = limit_of(folder);
            limit = MIN(here, limit);
        }
        if (group.len == 0)
            return limit;
        while (group.len > 0 && group.data[--group.len] != '/')
            continue;
    }
}

/* --- processors ------------------------------------------------------------------------------ */

/* What the kernel uses when cpu.max names no period. */
#define DEFAULT_PERIOD_US 100000

/* Whole ones. cpu.max is "QUOTA PERIOD" or "max PERIOD". */
static uint64_t cpu_limit(const char *folder)
{
    uint64_t quota, period = DEFAULT_PERIOD_US;
    if (read_numbers(folder, "cpu.max", &quota, &period) < 1)
        return NO_LIMIT;
    if (period == UINT64_MAX)
        period = DEFAULT_PERIOD_US;
    if (period == 0 || quota / period >= INT_MAX)
        return NO_LIMIT;
    return quota < period ? 1 : quota / period;
}

int cpus_usable(void)
{
    char self_cgroup[SELF_CAP];
    cpu_set_t mask[16]; /* a kernel built for more processors refuses one that is too small */
    const bool known = sched_getaffinity(0, sizeof mask, mask) == 0;
    const long online = known ? CPU_COUNT_S(sizeof mask, mask) : sysconf(_SC_NPROCESSORS_ONLN);
    const int allowed = online > 0 && online < INT_MAX ? online : 1;
    const uint64_t quota = read_start("/proc/self", "cgroup", self_cgroup, sizeof self_cgroup)
                               ? tightest(cpu_limit, CGROUP_MOUNT, self_cgroup)
                               : NO_LIMIT;
    return MIN(quota, (uint64_t)allowed);
}

int cpus_current(void)
{
    const int cpu = sched_getcpu();
    return MAX(cpu, 0);
}

void cpus_name(char *out, size_t size)
{
    char text[SELF_CAP];
    const bool found = read_start("/proc", "cpuinfo", text, sizeof text);
    const char *line = found ? strstr(text, "model name") : NULL,
               *name = line ? strstr(line, ": ") : NULL;
    snprintf(out, size, "%s", name ? name + 2 : "unknown processor");
    out[strcspn(out, "\n")] = 0;
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

/* What is left below a limit; file pages that nobody used lately may be taken back at once. */
static uint64_t memory_limit(const char *folder)
{
    char stat[4096];
    uint64_t limit, used, idle, none;
    if (read_numbers(folder, "memory.max", &limit, &none) < 1 ||
        read_numbers(folder, "memory.current", &used, &none) < 1)
        return NO_LIMIT;
    if (read_start(folder, "memory.stat", stat, sizeof stat) &&
        find_number(stat, "inactive_file ", &idle))
        used -= MIN(idle, used);
    return used < limit ? limit - used : 0;
}

static uint64_t available_in_system(const char *meminfo)
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
    const uint64_t in_system = read_start("/proc", "meminfo", text, sizeof text)
                                   ? available_in_system(text)
                                   : AVAILABLE_UNKNOWN;
    const uint64_t in_cgroups = read_start("/proc/self", "cgroup", text, sizeof text)
                                    ? tightest(memory_limit, CGROUP_MOUNT, text)
                                    : AVAILABLE_UNKNOWN;
    return MIN(least, MIN(in_system, in_cgroups));
}
