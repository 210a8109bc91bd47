/*
 * available - how much memory this process may still take.
 */
#ifndef DECODE_BASE_AVAILABLE_H
#define DECODE_BASE_AVAILABLE_H

#include <stdint.h>

/* What is not known to be limited. */
#define AVAILABLE_UNKNOWN UINT64_MAX

/*
 * The least, in bytes, of what the system could hand out without swapping (MemAvailable), what is
 * left below the cgroups' memory limits (v1 and v2, the tightest up the ancestors; file pages that
 * nobody used lately count as free) and below the limit on address space (ulimit -v). An estimate,
 * of this moment: others take memory, too.
 */
uint64_t available_memory(void);

/* The parts, for tests: of the text of /proc/meminfo; and over a given cgroup mount and the text of
 * /proc/self/cgroup. */
uint64_t available_in_system(const char *meminfo);
uint64_t available_in_cgroups(const char *cgroup_mount, const char *self_cgroup);

#endif
