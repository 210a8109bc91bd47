#include "base/cpus.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <unistd.h>

#include "base/cgroup.h"

/* What the kernel uses when cpu.max names no period. */
#define DEFAULT_PERIOD_US 100000

/* Sizes of masks to try: a kernel built for more processors refuses a smaller one. */
#define MASK_CPUS_MIN 1024
#define MASK_CPUS_MAX (1 << 20)

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

static uint64_t whole_cpus(uint64_t quota, uint64_t period)
{
    if (period == 0 || quota / period >= INT_MAX)
        return CGROUP_NO_LIMIT;
    return quota < period ? 1 : quota / period;
}

/* cpu.max is "QUOTA PERIOD" or "max PERIOD". */
static uint64_t cpus_v2(const char *folder)
{
    char text[CGROUP_VALUE_CAP];
    const char *at = text;
    uint64_t quota, period = DEFAULT_PERIOD_US;
    if (!cgroup_read(folder, "cpu.max", text, sizeof text) || !cgroup_take_number(&at, &quota))
        return CGROUP_NO_LIMIT;
    cgroup_take_number(&at, &period);
    return whole_cpus(quota, period);
}

/* A quota of -1 is none. */
static uint64_t cpus_v1(const char *folder)
{
    uint64_t quota, period;
    if (!cgroup_number(folder, "cpu.cfs_quota_us", &quota) ||
        !cgroup_number(folder, "cpu.cfs_period_us", &period))
        return CGROUP_NO_LIMIT;
    return whole_cpus(quota, period);
}

static const struct cgroup_controller cpu_controller = {
    .name = "cpu",
    .mounts = {"/cpu", "/cpu,cpuacct"},
    .limit_v1 = cpus_v1,
    .limit_v2 = cpus_v2,
};

int cpus_quota(const char *cgroup_mount, const char *self_cgroup)
{
    const uint64_t limit = cgroup_tightest(&cpu_controller, cgroup_mount, self_cgroup);
    return limit == CGROUP_NO_LIMIT ? 0 : (int)limit;
}

int cpus_usable(void)
{
    const int allowed = affinity_size();
    char self_cgroup[CGROUP_SELF_CAP];
    if (!cgroup_self(self_cgroup))
        return allowed;
    const int quota = cpus_quota(CGROUP_MOUNT, self_cgroup);
    return quota && quota < allowed ? quota : allowed;
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
