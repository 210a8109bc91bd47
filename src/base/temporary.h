/*
 * temporary - the names under which outputs are made before they take their place.
 *
 * They are .decode-PID-TIME.tmp, files and folders, beside what they become. A writer holds a lock
 * (flock) on its own while it lives; one that nobody locks was left by a process that was killed.
 */
#ifndef DECODE_BASE_TEMPORARY_H
#define DECODE_BASE_TEMPORARY_H

#include "base/status.h"

#define TEMPORARY_CAP 64

/* A name that no other writer has, but for bad luck. */
void temporary_name(char name[TEMPORARY_CAP]);

/* Removes what the dead have left in a folder ("": the current one); not the folders in theirs.
 * STATUS_NO_MEMORY. */
enum status temporaries_clean(const char *folder, struct err *e);

#endif
