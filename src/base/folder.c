/* Files larger than 2 GiB on 32-bit systems too; must precede every include. */
#define _FILE_OFFSET_BITS 64

#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/temporary.h"

#define EXCHANGE 2 /* RENAME_EXCHANGE of renameat2(2) */

struct folder_writer {
    char *target; /* symbolic links followed, no slash at the end */
    char *temp;   /* beside it */
    int fd;       /* of temp, locked; -1: there is none */
    int old;      /* of the folder to be replaced; -1: none */
    int parent;   /* of the folder that both are in; locked while they change places */
};

static enum status fail(struct err *e, const char *path, const char *action)
{
    return err_set(e, STATUS_FAILED, "%.200s: cannot %s: %s", path, action, strerror(errno));
}

/* Calls `visit` for every entry of a folder but itself and the one above it. */
static enum status each_entry(const struct folder_writer *w, int fd,
                              enum status (*visit)(const struct folder_writer *w, int fd,
                                                   const char *name, struct err *e),
                              struct err *e)
{
    const int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = own < 0 ? NULL : fdopendir(own);
    enum status s = d ? STATUS_OK : fail(e, w->target, "list it");
    if (!d && own >= 0)
        close(own);
    for (const struct dirent *entry; d && s == STATUS_OK && (entry = readdir(d));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            s = visit(w, fd, entry->d_name, e);
    if (d)
        closedir(d);
    return s;
}

static enum status remove_entry(const struct folder_writer *w, int fd, const char *name,
                                struct err *e)
{
    (void)w, (void)e;
    if (unlinkat(fd, name, 0) != 0)
        unlinkat(fd, name, AT_REMOVEDIR); /* which takes empty ones only */
    return STATUS_OK;
}

void folder_writer_abandon(struct folder_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0) {
        each_entry(w, w->fd, remove_entry, NULL);
        close(w->fd);
        rmdir(w->temp);
    }
    if (w->old >= 0)
        close(w->old);
    if (w->parent >= 0)
        close(w->parent);
    free(w->target);
    free(w->temp);
    free(w);
}

const char *folder_writer_path(const struct folder_writer *w)
{
    return w->temp;
}

static bool is_folder(int fd, const char *name)
{
    struct stat st;
    return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* A file as a link; a folder as an empty one, whose place it takes at the end. */
static enum status keep_entry(const struct folder_writer *w, int fd, const char *name,
                              struct err *e)
{
    const bool folder = is_folder(fd, name);
    if ((folder ? mkdirat(w->fd, name, 0700) : linkat(fd, name, w->fd, name, 0)) == 0)
        return STATUS_OK;
    return err_set(e, STATUS_FAILED,
                   "%.200s: cannot keep its file %.100s: %s; write to a new folder", w->target,
                   name, strerror(errno));
}

/* A folder of the old one to the new one. What cannot move stays, in the old one. */
static enum status move_folder(const struct folder_writer *w, int fd, const char *name,
                               struct err *e)
{
    (void)e;
    if (is_folder(fd, name))
        renameat(fd, name, w->fd, name);
    return STATUS_OK;
}

/* The target without slashes at its end. */
static enum status find_target(struct folder_writer *w, const char *path, struct err *e)
{
    char *plain = strdup(path);
    if (!plain)
        return err_no_memory(e, path, strlen(path));
    for (size_t n = strlen(plain); n > 1 && plain[n - 1] == '/'; n--)
        plain[n - 1] = 0;
    const enum status s = file_follow_links(plain, &w->target, e);
    free(plain);
    return s;
}

static enum status open_old(struct folder_writer *w, struct stat *old, struct err *e)
{
    struct stat here;
    if (stat(w->target, old) != 0)
        return errno == ENOENT ? STATUS_OK : fail(e, w->target, "make the folder");
    if (!S_ISDIR(old->st_mode))
        return err_set(e, STATUS_FAILED,
                       "%.200s: cannot make the folder: there is a file of this name", w->target);
    if (stat(".", &here) == 0 && here.st_dev == old->st_dev && here.st_ino == old->st_ino)
        return err_set(e, STATUS_FAILED,
                       "%.200s: cannot replace the folder that this runs in; run it from another",
                       w->target);
    w->old = open(w->target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return w->old >= 0 ? STATUS_OK : fail(e, w->target, "open it");
}

static enum status make_temp(struct folder_writer *w, const struct stat *old, struct err *e)
{
    const char *slash = strrchr(w->target, '/');
    const size_t parent = slash ? (size_t)(slash - w->target) + 1 : 0;
    w->temp = malloc(parent + TEMPORARY_CAP);
    if (!w->temp)
        return err_no_memory(e, w->target, parent + TEMPORARY_CAP);
    memcpy(w->temp, w->target, parent);
    w->temp[parent] = 0;
    TRY(temporaries_clean(w->temp, e));
    w->parent = open(parent ? w->temp : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->parent < 0)
        return fail(e, w->target, "make the folder");
    temporary_name(w->temp + parent);
    if (mkdir(w->temp, w->old >= 0 ? 0700 : 0777) != 0)
        return fail(e, w->target, "make the folder");
    w->fd = open(w->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->fd < 0) {
        rmdir(w->temp);
        return fail(e, w->target, "make the folder");
    }
    flock(w->fd, LOCK_EX | LOCK_NB); /* says that its writer lives, where folders can be locked */
    if (w->old < 0)
        return STATUS_OK;
    /* Its group may be one that we are not in: then the group has no rights to what is new. */
    const bool group = fchown(w->fd, (uid_t)-1, old->st_gid) == 0;
    if (fchmod(w->fd, old->st_mode & (group ? 07777 : 07707)) != 0)
        return fail(e, w->target, "keep its permissions");
    return each_entry(w, w->old, keep_entry, e);
}

enum status folder_writer_open(struct folder_writer **out, const char *path, struct err *e)
{
    struct stat old;
    struct folder_writer *w = *out = calloc(1, sizeof *w);
    if (!w)
        return err_no_memory(e, path, sizeof *w);
    w->fd = w->old = w->parent = -1;
    enum status s = find_target(w, path, e);
    if (s == STATUS_OK)
        s = open_old(w, &old, e);
    if (s == STATUS_OK)
        s = make_temp(w, &old, e);
    if (s != STATUS_OK) {
        folder_writer_abandon(w);
        *out = NULL;
    }
    return s;
}

/* The two change places. Where the system cannot do it at once, for a moment there is only the old
 * one, under a name beside it. */
static bool change_places(struct folder_writer *w)
{
    if (syscall(SYS_renameat2, AT_FDCWD, w->temp, AT_FDCWD, w->target, EXCHANGE) == 0)
        return true;
    if (errno != EINVAL && errno != ENOSYS)
        return false;
    const size_t n = strlen(w->temp) + 2;
    char *aside = malloc(n);
    if (!aside)
        return false;
    snprintf(aside, n, "%s~", w->temp);
    bool done = rename(w->target, aside) == 0;
    if (done && rename(w->temp, w->target) != 0) {
        rename(aside, w->target);
        done = false;
    }
    done = done && rename(aside, w->temp) == 0;
    free(aside);
    return done;
}

enum status folder_writer_commit(struct folder_writer *w, struct err *e)
{
    enum status s = STATUS_OK;
    fsync(w->fd);
    flock(w->parent, LOCK_EX); /* or two writers would move folders into what the other removes */
    if (w->old < 0 ? rename(w->temp, w->target) != 0 : !change_places(w)) {
        s = fail(e, w->target, "put the new folder in its place");
    } else if (w->old < 0) {
        close(w->fd);
        w->fd = -1;
    } else { /* the temporary name is that of what was there, perhaps another writer's by now */
        const int was = open(w->temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (was >= 0)
            each_entry(w, was, move_folder, NULL);
        close(w->fd);
        w->fd = was;
    }
    fsync(w->parent);
    folder_writer_abandon(w);
    return s;
}
