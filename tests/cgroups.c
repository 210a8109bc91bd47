#include "cgroups.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "support.h"

char cgroups_mount[512];

void cgroups_make(void)
{
    snprintf(cgroups_mount, sizeof cgroups_mount, "%s", scratch_path("cgroup"));
    ck_assert_int_eq(mkdir(cgroups_mount, 0755), 0);
}

void cgroups_put(const char *name, const char *contents)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", cgroups_mount, name);
    for (char *slash = path + strlen(cgroups_mount) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(contents, f);
    fclose(f);
}
