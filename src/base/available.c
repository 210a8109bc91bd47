#include "base/available.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/cgroup.h"

/* Version 1 has no word for "no limit": it is a number that no machine reaches. */
#define NO_LIMIT_V1 ((uint64_t)1 << 60)

uint64_t available_in_system(const char *meminfo)
{
    uint64_t kib;
    return cgroup_field(meminfo, "MemAvailable:", &kib) && kib < UINT64_MAX / 1024
               ? kib * 1024
               : AVAILABLE_UNKNOWN;
}

/* `file_pages`: what of memory.stat may be taken back at once. */
static uint64_t memory_left(const char *folder, uint64_t limit, uint64_t used,
                            const char *file_pages)
{
    char stat[4096];
    uint64_t idle;
    if (cgroup_read(folder, "memory.stat", stat, sizeof stat) &&
        cgroup_field(stat, file_pages, &idle))
        used -= idle < used ? idle : used;
    return used < limit ? limit - used : 0;
}

static uint64_t memory_v2(const char *folder)
{
    uint64_t limit, used;
    if (!cgroup_number(folder, "memory.max", &limit) ||
        !cgroup_number(folder, "memory.current", &used))
        return CGROUP_NO_LIMIT;
    return memory_left(folder, limit, used, "inactive_file ");
}

static uint64_t memory_v1(const char *folder)
{
    uint64_t limit, used;
    if (!cgroup_number(folder, "memory.limit_in_bytes", &limit) || limit >= NO_LIMIT_V1 ||
        !cgroup_number(folder, "memory.usage_in_bytes", &used))
        return CGROUP_NO_LIMIT;
    return memory_left(folder, limit, used, "total_inactive_file ");
}

static const struct cgroup_controller memory_controller = {
    .name = "memory", .mounts = {"/memory"}, .limit_v1 = memory_v1, .limit_v2 = memory_v2};

uint64_t available_in_cgroups(const char *cgroup_mount, const char *self_cgroup)
{
    return cgroup_tightest(&memory_controller, cgroup_mount, self_cgroup);
}

static uint64_t available_in_address_space(void)
{
    struct rlimit limit;
    char statm[128];
    const char *at = statm;
    uint64_t pages;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        !cgroup_file_start("/proc/self/statm", statm, sizeof statm) ||
        !cgroup_take_number(&at, &pages))
        return AVAILABLE_UNKNOWN;
    const uint64_t used = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    return used < limit.rlim_cur ? limit.rlim_cur - used : 0;
}

uint64_t available_memory(void)
{
    char meminfo[1024], self_cgroup[CGROUP_SELF_CAP];
    uint64_t least = available_in_address_space();
    if (cgroup_file_start("/proc/meminfo", meminfo, sizeof meminfo)) {
        const uint64_t free_bytes = available_in_system(meminfo);
        least = free_bytes < least ? free_bytes : least;
    }
    if (cgroup_self(self_cgroup)) {
        const uint64_t left = available_in_cgroups(CGROUP_MOUNT, self_cgroup);
        least = left < least ? left : least;
    }
    return least;
}
