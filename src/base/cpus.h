/*
 * cpus - how many processors this process may really use.
 */
#ifndef DECODE_BASE_CPUS_H
#define DECODE_BASE_CPUS_H

/*
 * The lesser of the affinity mask's size and the cgroup CPU quota (v1 and v2, the tightest up
 * the ancestors; a fractional quota is rounded down), at least 1. Reads the system each time.
 */
int cpus_usable(void);

/*
 * The same quota computation over a given cgroup mount and the text of /proc/self/cgroup, for
 * tests: CPUs allowed by the quota, rounded down, at least 1; 0 when there is no limit.
 */
int cpus_quota(const char *cgroup_mount, const char *self_cgroup);

/* The processor that the calling thread runs on, or 0. */
int cpus_current(void);

/*
 * Moves the calling thread to the index-th usable processor after `from` (both at least 0,
 * asserted; index 0 is `from` itself), counted round, and then
 * lets it move freely again. New threads start where their creator runs and may share its
 * processor for many milliseconds, which is longer than a short run lasts. A hint: it may do
 * nothing.
 */
void cpus_start_on(int from, int index);

#endif
