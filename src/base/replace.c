#include "base/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/times.h"

#define WRITE_BUFFER  ((size_t)256 << 10)
#define TEMPORARY_CAP 64

static enum status fail(struct err *e, const char *path, const char *action)
{
    return file_failure(e, STATUS_FAILED, path, action, errno);
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

/* Makes a rename to this path last, and cuts the path to its folder. A failure is not reported,
 * because the new file is in place, and a crash now leaves either the old or the new one whole. */
static void sync_folder(char *path)
{
    const size_t folder = path_name(path) - path;
    path[folder] = 0;
    const int fd = file_open_retry(folder ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    sync_retry(fd);
    close(fd);
}

/* Makes a malloc'd name beside target that no other writer has, but for bad luck. It does not hold
 * the target's name, which may be as long as names can be. STATUS_NO_MEMORY. */
static enum status name_temporary(const char *target, char **temp, struct err *e)
{
    const size_t folder = path_name(target) - target;
    TRY_ZEROED(*temp, folder + TEMPORARY_CAP, target, e);
    memcpy(*temp, target, folder);
    snprintf(*temp + folder, TEMPORARY_CAP, ".decode-%ld-%" PRIx64 ".tmp", (long)getpid(),
             clock_ns());
    return STATUS_OK;
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

static enum status open_temporary(struct file_writer *w, const char *path, struct err *e)
{
    struct stat old;
    TRY(path_follow(path, &w->target, e));
    const bool replaces = lstat(w->target, &old) == 0;
    /* Renaming over a device or a FIFO would destroy it; a read-only file is meant to stay. */
    if (replaces && !S_ISREG(old.st_mode))
        return err_failed(e, "%s: cannot replace it: expected a regular file, found %s", path,
                          file_kind(old.st_mode));
    if (replaces && faccessat(AT_FDCWD, w->target, W_OK, AT_EACCESS) != 0)
        return fail(e, path, "replace it");
    TRY_ZEROED(w->buffer, WRITE_BUFFER, path, e);
    TRY(name_temporary(w->target, &w->temp, e));
    /* At no moment can others read it than could read the old file. */
    w->fd =
        file_open_retry(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, replaces ? 0600 : 0666);
    if (w->fd < 0)
        return fail(e, path, "create a temporary file in its folder");
    w->temp_exists = true;
    if (!replaces)
        return STATUS_OK;
    /* If the group cannot be kept, the group that the file has gets no rights. */
    const bool kept = fchown(w->fd, (uid_t)-1, old.st_gid) == 0;
    return fchmod(w->fd, old.st_mode & (kept ? 0777 : 0707)) == 0
               ? STATUS_OK
               : fail(e, path, "keep its permissions");
}

enum status file_writer_open(struct file_writer **out, const char *path, struct err *e)
{
    *out = NULL;
    if (!path[0])
        return err_failed(e, "the output file's name is empty");
    struct file_writer *w;
    TRY_ZEROED(w, 1, path, e);
    w->fd = -1;
    const enum status s = open_temporary(w, path, e);
    if (s == STATUS_OK)
        *out = w;
    else
        file_writer_abandon(w);
    return s;
}

static void write_fully(struct file_writer *w, const char *data, size_t len)
{
    while (len && !w->error) {
        /* Some systems refuse writes of 2 GiB and more. */
        const ssize_t n = write(w->fd, data, MIN(len, (size_t)1 << 30));
        if (n > 0) {
            data += n;
            len -= n;
        } else if (n == 0) {
            w->error = EIO;
        } else if (errno != EINTR) {
            w->error = errno;
        }
        /* The bytes are those of a mapped file that was cut short. Reading one raises SIGBUS, which
         * blames that file (see file_map_open) and not the output; it is stored, because valgrind
         * leaves out a read without a use. */
        if (w->error == EFAULT) {
            volatile char byte = *(const volatile char *)data;
            (void)byte;
        }
    }
}

void file_writer_put(struct file_writer *w, const void *data, size_t len)
{
    assert(data || len == 0);
    if (len >= WRITE_BUFFER - w->used) {
        write_fully(w, w->buffer, w->used);
        w->used = 0;
    }
    if (len >= WRITE_BUFFER) {
        write_fully(w, data, len);
    } else if (len) {
        memcpy(w->buffer + w->used, data, len);
        w->used += len;
    }
}

enum status file_writer_commit(struct file_writer *w, struct err *e)
{
    write_fully(w, w->buffer, w->used);
    const char *action = "write";
    if (!w->error)
        w->error = sync_retry(w->fd);
    /* Network file systems report a full disk here. After EINTR the descriptor is gone, too. */
    if (close(w->fd) != 0 && !w->error && errno != EINTR)
        w->error = errno;
    w->fd = -1;
    if (!w->error && rename(w->temp, w->target) != 0) {
        w->error = errno;
        action = "replace it";
    }
    enum status s = STATUS_OK;
    if (w->error) {
        s = file_failure(e, STATUS_FAILED, w->target, action, w->error);
    } else {
        w->temp_exists = false;
        sync_folder(w->target);
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
