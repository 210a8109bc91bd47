/*
 * cgroup - what the control groups (v1 and v2) of this process allow it: the tightest limit up the
 * ancestors. And the small files of the system's that say such things.
 */
#ifndef DECODE_BASE_CGROUP_H
#define DECODE_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CGROUP_NO_LIMIT  UINT64_MAX
#define CGROUP_MOUNT     "/sys/fs/cgroup"
#define CGROUP_SELF_CAP  8192 /* room for /proc/self/cgroup */
#define CGROUP_VALUE_CAP 64   /* room for a file of a number or two */
#define CGROUP_MOUNTS    2

/* What the group of this folder allows, in the controller's own unit. */
typedef uint64_t cgroup_limit(const char *folder);

struct cgroup_controller {
    const char *name; /* in the lists of version 1 */
    const char
        *mounts[CGROUP_MOUNTS]; /* below it, where version 1 may have it; NULL after the last */
    cgroup_limit *limit_v1, *limit_v2;
};

/* The tightest limit below a cgroup mount of the groups that the text of /proc/self/cgroup names;
 * CGROUP_NO_LIMIT when there is none. */
uint64_t cgroup_tightest(const struct cgroup_controller *c, const char *mount,
                         const char *self_cgroup);

/* The text of /proc/self/cgroup. False when there is none. */
bool cgroup_self(char self_cgroup[CGROUP_SELF_CAP]);

/* A group's file in text[cap], terminated, its end cut; the number at its start. False when there
 * is none. */
bool cgroup_read(const char *folder, const char *name, char *text, size_t cap);
bool cgroup_number(const char *folder, const char *name, uint64_t *out);

/* Reads any file's start into text[cap], terminated. False when there is no such file. */
bool cgroup_file_start(const char *path, char *text, size_t cap);

/* Takes a decimal number after blanks; false (a sign, "max", too large, nothing) takes nothing. */
bool cgroup_take_number(const char **at, uint64_t *out);

/* The number after `name` ("MemAvailable:") at the start of a line. */
bool cgroup_field(const char *text, const char *name, uint64_t *out);

#endif
