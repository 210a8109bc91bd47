/* Files larger than 2 GiB on 32-bit systems too; must precede every include. */
#define _FILE_OFFSET_BITS 64

#include "base/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

#define START ".decode-"
#define END   ".tmp"
#define OLD_S 60 /* a younger one may not yet be locked by its writer */

void temporary_name(char name[TEMPORARY_CAP])
{
    snprintf(name, TEMPORARY_CAP, START "%ld-%" PRIx64 END, (long)getpid(), clock_ns());
}

/* The files and empty folders in a folder, and it, if it is then empty. Takes its descriptor. */
static void remove_folder(int parent, const char *name, int fd)
{
    DIR *d = fdopendir(fd);
    for (const struct dirent *entry; d && (entry = readdir(d));)
        if (unlinkat(fd, entry->d_name, 0) != 0)
            unlinkat(fd, entry->d_name, AT_REMOVEDIR);
    if (d)
        closedir(d);
    else
        close(fd);
    unlinkat(parent, name, AT_REMOVEDIR);
}

static void remove_dead(int parent, const char *name)
{
    struct stat st;
    const int fd = openat(parent, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    const bool dead = fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
                      st.st_mtime < time(NULL) - OLD_S && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (dead && S_ISDIR(st.st_mode)) {
        remove_folder(parent, name, fd);
        return;
    }
    if (dead)
        unlinkat(parent, name, 0);
    close(fd);
}

enum status temporaries_clean(const char *folder, struct err *e)
{
    DIR *d = opendir(folder[0] ? folder : ".");
    if (!d)
        return errno == ENOMEM ? err_no_memory(e, "the list of a folder", 0) : STATUS_OK;
    for (const struct dirent *entry; (entry = readdir(d));) {
        const struct text name = text_of(entry->d_name);
        if (text_starts_with(name, START) && text_ends_with(name, END))
            remove_dead(dirfd(d), entry->d_name);
    }
    closedir(d);
    return STATUS_OK;
}
