/*
 * cgroups - a made-up mount of cgroups for the suites of what reads them.
 */
#ifndef TESTS_CGROUPS_H
#define TESTS_CGROUPS_H

/* Its path; each test has its own. */
extern char cgroups_mount[512];

/* Makes it, empty; scratch_remove (support.h) removes it. */
void cgroups_make(void);

/* Writes a file below the mount, with the folders on its way. */
void cgroups_put(const char *name, const char *contents);

#endif
