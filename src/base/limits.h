/*
 * limits - what the system leaves to this process: processors and memory.
 *
 * Everything is read from the system each time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* How many processors it may really use: the lesser of the affinity mask's size and the cgroup CPU
 * quota (version 2, the tightest up the ancestors; a fractional quota is rounded down), at least 1.
 */
int cpus_usable(void);

/* The processor that the calling thread runs on, or 0. */
int cpus_current(void);

/* What the first one is called, or "unknown processor". */
void cpus_name(char *out, size_t size);

/*
 * Moves the calling thread to the index-th usable processor after `from` (both at least 0,
 * asserted; index 0 is `from` itself), counted round, and then lets it move freely again. New
 * threads start where their creator runs and may share its processor for many milliseconds, which
 * is longer than a short run lasts. A hint: it may do nothing.
 */
void cpus_start_on(int from, int index);

/* What is not known to be limited. */
#define AVAILABLE_UNKNOWN UINT64_MAX

/*
 * How much memory it may still take: the least, in bytes, of what the system could hand out without
 * swapping (MemAvailable), what is left below the cgroups' memory limits (version 2, the tightest
 * up the ancestors; file pages that nobody used lately count as free) and below the limit on
 * address space (ulimit -v). An estimate, of this moment: others take memory, too.
 */
uint64_t available_memory(void);

/* The most bytes that this program had in memory at once, its own alone (VmHWM of
 * /proc/self/status). Where there is no such file, those that getrusage counts, which on Linux are
 * at least those of the program that was replaced by this one (exec). */
uint64_t peak_memory(void);

/*
 * The parts, for tests. Over a given cgroup mount and the text of /proc/self/cgroup: CPUs allowed
 * by the quota, rounded down, at least 1, or 0 when there is no limit; the memory left. And of the
 * text of /proc/meminfo.
 */
int cpus_quota(const char *cgroup_mount, const char *self_cgroup);
uint64_t available_in_cgroups(const char *cgroup_mount, const char *self_cgroup);
uint64_t available_in_system(const char *meminfo);
