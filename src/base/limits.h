/*
 * limits - what the system leaves to this process: processors and memory.
 *
 * Everything is read from the system each time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Returns how many processors this program may really use, at least 1: the lesser of the affinity
 * mask's size and the cgroup CPU quota (version 2; the tightest of the cgroup and its ancestors,
 * rounded down). */
int cpus_usable(void);

/* Returns the processor that the calling thread runs on; 0 if that is not known. */
int cpus_current(void);

/* Writes the name of the first processor, or "unknown processor". */
void cpus_name(char *out, size_t size);

/*
 * Moves the calling thread to the index-th usable processor after `from` (both at least 0,
 * asserted; index 0 is `from` itself), counted round, and then lets it move freely again. New
 * threads start where their creator runs and may share its processor for many milliseconds, which
 * is longer than a short run lasts. A hint: it may do nothing.
 */
void cpus_start_on(int from, int index);

/* The amount of memory where no limit is known. */
#define AVAILABLE_UNKNOWN UINT64_MAX

/*
 * Returns how many bytes of memory this program may still take. That is the least of three: what
 * the system could hand out without swapping (MemAvailable); what is left below the cgroups' memory
 * limits (version 2; the tightest of the cgroup and its ancestors, where file pages that nobody
 * used lately count as free); and what is left below the limit on address space (ulimit -v). It is
 * an estimate for this moment, because others take memory, too.
 */
uint64_t available_memory(void);

/* Returns the most bytes that this program had in memory at once (VmHWM of /proc/self/status).
 * Where there is no such file, it returns what getrusage counts; on Linux that includes the peak of
 * the program that this one replaced by exec. */
uint64_t peak_memory(void);
