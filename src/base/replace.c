/*
 * Files and folders that are made or replaced as a whole: what is new grows under a temporary name
 * beside the old one, .decode-PID-TIME.tmp, and then takes its place. A writer holds a lock (flock)
 * on its own while it lives; one that nobody locks was left by a process that was killed.
 */

/* Files larger than 2 GiB on 32-bit systems too; must precede every include. */
#define _FILE_OFFSET_BITS 64

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"

#define WRITE_BUFFER ((size_t)256 << 10)
#define MAX_LINKS    40 /* what Linux follows */
#define EXCHANGE     2  /* RENAME_EXCHANGE of renameat2(2) */

static enum status fail(struct err *e, const char *path, const char *action)
{
    return file_failure(e, STATUS_FAILED, path, action, errno);
}

/* --- folders' entries ------------------------------------------------------------------------ */

/* A folder's list, apart from its descriptor; NULL on failure. */
static DIR *open_list(int folder)
{
    const int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = own < 0 ? NULL : fdopendir(own);
    if (!d && own >= 0)
        close(own);
    return d;
}

/* The next name but for the folder itself and the one above it; NULL, and the list closed, at the
 * end. */
static const char *next_name(DIR *d)
{
    const struct dirent *entry;
    while (d && (entry = readdir(d)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return entry->d_name;
    if (d)
        closedir(d);
    return NULL;
}

/* The files and empty folders in a folder. */
static void remove_entries(int folder)
{
    DIR *d = open_list(folder);
    for (const char *name; (name = next_name(d));)
        if (unlinkat(folder, name, 0) != 0)
            unlinkat(folder, name, AT_REMOVEDIR);
}

static bool is_folder(int folder, const char *name)
{
    struct stat st;
    return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* --- temporary names ------------------------------------------------------------------------- */

#define START         ".decode-"
#define END           ".tmp"
#define OLD_S         60 /* a younger one may not yet be locked by its writer */
#define TEMPORARY_CAP 64

/* A name that no other writer has, but for bad luck. */
static void temporary_name(char name[TEMPORARY_CAP])
{
    snprintf(name, TEMPORARY_CAP, START "%ld-%" PRIx64 END, (long)getpid(), clock_ns());
}

/* A file, or a folder with the files and empty folders in it, that a dead writer has left. */
static void remove_dead(int parent, const char *name)
{
    struct stat st;
    const int fd = openat(parent, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    const bool known = fstat(fd, &st) == 0, folder = known && S_ISDIR(st.st_mode);
    if (known && (folder || S_ISREG(st.st_mode)) && st.st_mtime < time(NULL) - OLD_S &&
        flock(fd, LOCK_EX | LOCK_NB) == 0) {
        if (folder)
            remove_entries(fd);
        unlinkat(parent, name, folder ? AT_REMOVEDIR : 0);
    }
    close(fd);
}

/* Bytes of path up to its last slash, that included. */
static size_t folder_len(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* The path of target's folder, with room for a temporary name behind it: the name does not grow
 * from the target's, which may be as long as names can be. Removes what the dead have left there;
 * not the folders in theirs. STATUS_NO_MEMORY. */
static enum status prepare_temp(const char *target, char **temp, struct err *e)
{
    const size_t folder = folder_len(target);
    *temp = malloc(folder + TEMPORARY_CAP);
    if (!*temp)
        return err_no_memory(e, target, folder + TEMPORARY_CAP);
    memcpy(*temp, target, folder);
    (*temp)[folder] = 0;
    DIR *d = opendir(folder ? *temp : ".");
    if (!d && errno == ENOMEM)
        return err_no_memory(e, "the list of a folder", 0);
    for (const char *name; (name = next_name(d));)
        if (text_starts_with(text_of(name), START) && text_ends_with(text_of(name), END))
            remove_dead(dirfd(d), name);
    return STATUS_OK;
}

/* --- links ----------------------------------------------------------------------------------- */

/* The first n bytes of a path and what follows them, malloc'd; NULL without memory. */
static char *joined(const char *path, size_t n, const char *rest)
{
    const size_t size = n + strlen(rest) + 1;
    char *whole = malloc(size);
    if (whole)
        snprintf(whole, size, "%.*s%s", (int)n, path, rest);
    return whole;
}

/* Whether the link lies in a folder where all may put links, such as /tmp, and is neither ours nor
 * the folder's owner's: the system would not follow it either (proc(5), protected_symlinks). */
static bool is_planted(const char *path, const struct stat *link)
{
    const size_t len = folder_len(path);
    char *folder = strndup(len ? path : ".", len ? len : 1);
    struct stat st;
    const mode_t open_to_all = S_ISVTX | S_IWOTH;
    const bool planted =
        !folder || (stat(folder, &st) == 0 && (st.st_mode & open_to_all) == open_to_all &&
                    link->st_uid != geteuid() && link->st_uid != st.st_uid);
    free(folder);
    return planted;
}

enum status file_follow_links(const char *path, char **target, struct err *e)
{
    *target = strdup(path);
    if (!*target)
        return err_no_memory(e, path, strlen(path) + 1);
    for (int links = 0; links <= MAX_LINKS; links++) {
        struct stat st, process;
        char to[4096], *next;
        if (lstat(*target, &st) != 0)
            return errno == ENOENT ? STATUS_OK : fail(e, path, "write");
        if (!S_ISLNK(st.st_mode))
            return STATUS_OK;
        /* What /dev/stdout leads to is not what the user named, and replacing it would leave the
         * descriptor behind. */
        if (stat("/proc/self", &process) == 0 && st.st_dev == process.st_dev)
            return err_set(e, STATUS_FAILED,
                           "%s: cannot replace it: expected a file's own name, found an open "
                           "descriptor's",
                           path);
        if (is_planted(*target, &st))
            return err_set(e, STATUS_FAILED,
                           "%s: cannot replace it: expected a link of one's own in a folder that "
                           "all may write, found another user's",
                           path);
        const ssize_t n = readlink(*target, to, sizeof to - 1);
        if (n < 0)
            return fail(e, path, "follow the link");
        to[n] = 0;
        next = joined(*target, to[0] == '/' ? 0 : folder_len(*target), to);
        if (!next)
            return err_no_memory(e, path, sizeof to);
        free(*target);
        *target = next;
    }
    return file_failure(e, STATUS_FAILED, path, "follow the link", ELOOP);
}

/* --- a file ---------------------------------------------------------------------------------- */

struct file_writer {
    int fd;           /* of the temporary file; -1 when there is none */
    int error;        /* errno of the first failed write, 0 when none failed */
    char *target;     /* what is replaced: the path with symbolic links followed */
    char *temp;       /* beside target */
    size_t used;      /* bytes in buffer */
    char *buffer;     /* [WRITE_BUFFER] */
    bool temp_exists; /* must be removed unless renamed */
};

/* The old one's group and, of these bits, its mode; where the group cannot be kept, another gets no
 * rights of its. */
static int keep_rights(int fd, const struct stat *old, mode_t bits)
{
    if (fchown(fd, (uid_t)-1, old->st_gid) != 0)
        bits &= ~(mode_t)S_IRWXG;
    return fchmod(fd, old->st_mode & bits);
}

static enum status open_temp(struct file_writer *w, const char *path, struct err *e)
{
    struct stat old;
    TRY(file_follow_links(path, &w->target, e));
    const bool replaces = lstat(w->target, &old) == 0;
    /* Renaming over a device or a FIFO would destroy it; a read-only file is meant to stay. */
    if (replaces && !S_ISREG(old.st_mode))
        return err_set(e, STATUS_FAILED, "%s: cannot replace it: expected a regular file, found %s",
                       path, file_kind(old.st_mode));
    if (replaces && faccessat(AT_FDCWD, w->target, W_OK, AT_EACCESS) != 0)
        return fail(e, path, "replace it");
    w->buffer = malloc(WRITE_BUFFER);
    if (!w->buffer)
        return err_no_memory(e, path, WRITE_BUFFER);
    TRY(prepare_temp(w->target, &w->temp, e));
    temporary_name(w->temp + strlen(w->temp));
    /* Not readable by more than the old file's readers at any moment. */
    w->fd =
        file_open_retry(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaces ? 0600 : 0666);
    if (w->fd < 0)
        return fail(e, path, "create a temporary file in its folder");
    w->temp_exists = true;
    flock(w->fd, LOCK_EX | LOCK_NB); /* says that its writer lives, where files can be locked */
    if (replaces && keep_rights(w->fd, &old, 0777) != 0)
        return fail(e, path, "keep its permissions");
    return STATUS_OK;
}

enum status file_writer_open(struct file_writer **out, const char *path, struct err *e)
{
    *out = NULL;
    if (!path[0])
        return err_set(e, STATUS_FAILED, "the output file's name is empty");
    struct file_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_no_memory(e, path, sizeof *w);
    w->fd = -1;
    const enum status s = open_temp(w, path, e);
    if (s == STATUS_OK)
        *out = w;
    else
        file_writer_abandon(w);
    return s;
}

/* The bytes are those of a mapped file that was cut short: to be told like every other access to
 * them (see file_map_open), not as a failure of the output. The byte is stored, because valgrind
 * leaves out a read of which nothing comes. */
static void fault(const char *data)
{
    volatile char byte = *(const volatile char *)data;
    (void)byte;
}

static void write_fully(struct file_writer *w, const char *data, size_t len)
{
    while (len && !w->error) {
        /* Some systems refuse writes of 2 GiB and more. */
        const size_t piece = len < (size_t)1 << 30 ? len : (size_t)1 << 30;
        const ssize_t n = write(w->fd, data, piece);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        } else if (n == 0) {
            w->error = EIO;
        } else if (errno != EINTR) {
            w->error = errno;
            if (errno == EFAULT)
                fault(data);
        }
    }
}

static void flush_buffer(struct file_writer *w)
{
    write_fully(w, w->buffer, w->used);
    w->used = 0;
}

void file_writer_put(struct file_writer *w, const void *data, size_t len)
{
    assert(data || len == 0);
    if (len >= WRITE_BUFFER - w->used)
        flush_buffer(w);
    if (len >= WRITE_BUFFER) {
        write_fully(w, data, len);
    } else if (len) {
        memcpy(w->buffer + w->used, data, len);
        w->used += len;
    }
}

static int sync_retry(int fd)
{
    while (fsync(fd) != 0) {
        if (errno == EINVAL)
            return 0; /* the file system has no notion of it */
        if (errno != EINTR)
            return errno;
    }
    return 0;
}

/* Makes the rename last. Its failure is not reported: the new file is already in place, and a
 * crash now leaves either the old or the new one whole. */
static void sync_folder(struct file_writer *w)
{
    const size_t folder = folder_len(w->target);
    w->target[folder] = 0;
    const int fd = file_open_retry(folder ? w->target : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    sync_retry(fd);
    close(fd);
}

enum status file_writer_commit(struct file_writer *w, struct err *e)
{
    flush_buffer(w);
    const char *action = "write";
    if (!w->error)
        w->error = sync_retry(w->fd);
    /* As long as the temporary file is there it is open, so that who ends the program finds it. */
    const int fd = w->fd;
    w->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    /* Network file systems report a full disk here. After EINTR the descriptor is gone too. */
    if (close(fd) != 0 && !w->error && errno != EINTR)
        w->error = errno;
    if (!w->error && rename(w->temp, w->target) != 0) {
        w->error = errno;
        action = "replace it";
    }
    enum status s = STATUS_OK;
    if (w->error) {
        s = file_failure(e, STATUS_FAILED, w->target, action, w->error);
    } else {
        w->temp_exists = false;
        sync_folder(w);
    }
    file_writer_abandon(w);
    return s;
}

void file_writer_abandon(struct file_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0)
        close(w->fd);
    if (w->temp_exists)
        unlink(w->temp);
    free(w->target);
    free(w->temp);
    free(w->buffer);
    free(w);
}

/* --- a folder -------------------------------------------------------------------------------- */

struct folder_writer {
    char *target; /* symbolic links followed, no slash at the end */
    char *temp;   /* beside it */
    int fd;       /* of temp, locked; -1: there is none */
    int old;      /* of the folder to be replaced; -1: none */
    int parent;   /* of the folder that both are in; locked while they change places */
};

void folder_writer_abandon(struct folder_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0) {
        remove_entries(w->fd);
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

/* Sets the target, without slashes at its end, and opens what is there. */
static enum status open_old(struct folder_writer *w, const char *path, struct stat *old,
                            struct err *e)
{
    struct stat here;
    char *plain = strdup(path);
    if (!plain)
        return err_no_memory(e, path, strlen(path));
    for (size_t n = strlen(plain); n > 1 && plain[n - 1] == '/'; n--)
        plain[n - 1] = 0;
    const enum status s = file_follow_links(plain, &w->target, e);
    free(plain);
    TRY(s);
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

/* What is in the old folder: a file as a link; a folder as an empty one, whose place it takes at
 * the end. */
static enum status keep_entries(const struct folder_writer *w, struct err *e)
{
    enum status s = STATUS_OK;
    DIR *d = open_list(w->old);
    if (!d)
        return fail(e, w->target, "list it");
    for (const char *name; (name = next_name(d));)
        if (s == STATUS_OK && (is_folder(w->old, name) ? mkdirat(w->fd, name, 0700)
                                                       : linkat(w->old, name, w->fd, name, 0)) != 0)
            s = err_set(e, STATUS_FAILED,
                        "%.200s: cannot keep its file %.100s: %s; write to a new folder", w->target,
                        name, strerror(errno));
    return s;
}

static enum status make_temp(struct folder_writer *w, const struct stat *old, struct err *e)
{
    TRY(prepare_temp(w->target, &w->temp, e));
    char *name = w->temp + strlen(w->temp);
    w->parent = open(name > w->temp ? w->temp : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->parent < 0)
        return fail(e, w->target, "make the folder");
    temporary_name(name);
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
    if (keep_rights(w->fd, old, 07777) != 0)
        return fail(e, w->target, "keep its permissions");
    return keep_entries(w, e);
}

enum status folder_writer_open(struct folder_writer **out, const char *path, struct err *e)
{
    struct stat old;
    struct folder_writer *w = *out = calloc(1, sizeof *w);
    if (!w)
        return err_no_memory(e, path, sizeof *w);
    w->fd = w->old = w->parent = -1;
    enum status s = open_old(w, path, &old, e);
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
    char *aside = joined(w->temp, strlen(w->temp), "~");
    if (!aside)
        return false;
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
        DIR *d = was < 0 ? NULL : open_list(was);
        for (const char *name; (name = next_name(d));)
            if (is_folder(was, name))
                renameat(was, name, w->fd, name); /* what cannot move stays, in the old one */
        close(w->fd);
        w->fd = was;
    }
    fsync(w->parent);
    folder_writer_abandon(w);
    return s;
}
