#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/times.h"

#define WRITE_BUFFER  ((size_t)256 << 10)
#define TEMPORARY_CAP 64
#define READ_FIRST    ((size_t)64 << 10)
#define MAX_LINKS     40  /* what Linux follows */
#define PATH_SHOWN    250 /* the end of a longer path: a message must leave room for the reason */

/* --- messages ------------------------------------------------------------------------------ */

enum status file_failure(struct err *e, enum status s, const char *path, const char *action,
                         int error)
{
    const size_t len = strlen(path), cut = len > PATH_SHOWN ? len - PATH_SHOWN : 0;
    return err_set(e, s, "%s%s: cannot %s: %s", cut ? "..." : "", path + cut, action,
                   strerror(error));
}

/* Returns what a file that is no regular one is called: "a directory". */
static const char *file_kind(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a pipe (FIFO)";
    if (S_ISCHR(mode) || S_ISBLK(mode))
        return "a device";
    return "not a regular file";
}

static enum status fail(struct err *e, const char *path, const char *action)
{
    return file_failure(e, STATUS_FAILED, path, action, errno);
}

/* --- paths --------------------------------------------------------------------------------- */

static bool stat_folder(const char *path, struct stat *st)
{
    char folder[PATH_MAX];
    chars_printf(folder, "%.*s.", (int)(path_name(path) - path), path);
    return stat(folder, st) == 0;
}

/* Sets *target to the file that writing to `path` makes or replaces: symbolic links at its end are
 * followed, also to files that do not exist yet (which realpath refuses). The caller frees it,
 * whatever is returned. STATUS_FAILED, STATUS_NO_MEMORY. */
static enum status path_follow(const char *path, char **target, struct err *e)
{
    *target = strdup(path);
    if (!*target)
        return err_no_memory(e, path, strlen(path) + 1);
    for (int links = 0; links <= MAX_LINKS; links++) {
        struct stat st;
        char to[4096];
        if (lstat(*target, &st) != 0)
            return errno == ENOENT ? STATUS_OK : fail(e, path, "write");
        if (!S_ISLNK(st.st_mode))
            return STATUS_OK;
        const ssize_t n = readlink(*target, to, sizeof to - 1);
        if (n < 0)
            return fail(e, path, "follow the link");
        to[n] = 0;
        const size_t folder = to[0] == '/' ? 0 : path_name(*target) - *target;
        char *next;
        TRY_ZEROED(next, folder + n + 1, path, e);
        memcpy(next, *target, folder);
        strcpy(next + folder, to);
        free(*target);
        *target = next;
    }
    return file_failure(e, STATUS_FAILED, path, "follow the link", ELOOP);
}

bool path_same(const char *a, const char *b)
{
    struct stat x, y;
    char *to_a = NULL, *to_b = NULL;
    bool a_is = stat(a, &x) == 0, b_is = stat(b, &y) == 0;
    if (!a_is && !b_is && path_follow(a, &to_a, NULL) == STATUS_OK &&
        path_follow(b, &to_b, NULL) == STATUS_OK &&
        str_is(path_name(to_a), path_name(to_b))) { /* one name in one folder */
        a_is = stat_folder(to_a, &x);
        b_is = stat_folder(to_b, &y);
    }
    free(to_a);
    free(to_b);
    return a_is && b_is && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* --- reading ------------------------------------------------------------------------------- */

int file_open_retry(const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = open(path, flags, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static enum status open_input(const char *path, int flags, int *fd, struct err *e)
{
    if (!path[0])
        return err_bad_file(e, "the file name is empty");
    *fd = file_open_retry(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | flags, 0);
    if (*fd >= 0)
        return STATUS_OK;
    /* The fault is the file's, unless this process or the machine has no room for it. */
    const enum status s = errno == ENOMEM                      ? STATUS_NO_MEMORY
                          : errno == EMFILE || errno == ENFILE ? STATUS_FAILED
                                                               : STATUS_BAD_FILE;
    return file_failure(e, s, path, "open", errno);
}

const char *file_input_name(const char *path)
{
    return str_is(path, "-") ? "standard input" : path;
}

enum status file_map_open(struct file_map *f, const char *path, struct err *e)
{
    struct stat st;
    int fd;
    *f = (struct file_map){0};
    /* O_NONBLOCK: opening a FIFO without a writer would wait for one. */
    TRY(open_input(path, O_NONBLOCK, &fd, e));
    enum status s = STATUS_OK;
    if (fstat(fd, &st) != 0) {
        s = file_failure(e, STATUS_BAD_FILE, path, "examine", errno);
    } else if (!S_ISREG(st.st_mode)) {
        s = err_bad_file(e, "%s: expected a regular file, found %s", path, file_kind(st.st_mode));
    } else if (st.st_size > 0) {
        const size_t len = MIN((uintmax_t)st.st_size, SIZE_MAX);
        void *data = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
        /* A regular file that is open for reading is refused for these; else there is no room. */
        const bool refused = errno == EACCES || errno == EPERM || errno == ENODEV;
        if (data != MAP_FAILED)
            *f = (struct file_map){.data = data, .len = len};
        else
            s = file_failure(e, refused ? STATUS_BAD_FILE : STATUS_NO_MEMORY, path,
                             "map into memory", errno);
    }
    close(fd); /* the mapping stays */
    return s;
}

void file_map_close(struct file_map *f)
{
    if (f->data)
        munmap((void *)(uintptr_t)f->data, f->len);
    *f = (struct file_map){0};
}

void file_map_release(const struct file_map *f, const void *data, size_t len)
{
    const long page = sysconf(_SC_PAGESIZE);
    const uintptr_t mask = (uintptr_t)page - 1, from = (uintptr_t)data;
    const uintptr_t start = (uintptr_t)f->data, end = start + f->len;
    if (!f->data || page <= 0 || from < start || from > end)
        return;
    const uintptr_t to = len < end - from ? from + len : end;
    const uintptr_t first = (from + mask) & ~mask, last = to & ~mask;
    if (first < last)
        madvise((void *)first, last - first, MADV_DONTNEED);
}

/* Reads up to one byte more than max, which tells a file of max bytes from a longer one. A regular
 * file says how long it is, so that it is read in one piece. */
static enum status read_to_end(int fd, const char *name, size_t max, char **out, size_t *len,
                               struct err *e)
{
    const size_t most = max < PTRDIFF_MAX - 2 ? max + 1 : PTRDIFF_MAX - 1;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    struct stat st;
    size_t room = READ_FIRST;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
        room = MIN((uintmax_t)st.st_size, most - 1) + 1;
    for (; *len <= max; room *= 2) {
        room = MIN(room, most);
        char *larger = realloc(*out, room + 1);
        if (!larger)
            return err_no_memory(e, name, room + 1);
        *out = larger;
        while (*len < room) {
            const ssize_t n = read(fd, *out + *len, room - *len);
            if (n < 0 && errno == EAGAIN)
                poll(&ready, 1, -1); /* another process made our standard input non-blocking */
            else if (n < 0 && errno != EINTR)
                return file_failure(e, STATUS_BAD_FILE, name, "read", errno);
            *len += MAX(n, 0);
            (*out)[*len] = 0;
            if (n == 0)
                return STATUS_OK;
        }
    }
    return err_usage(e, "%s: more than the %zu bytes allowed", name, max);
}

enum status file_read_all(const char *path, size_t max, char **out, size_t *len, struct err *e)
{
    const bool is_standard = str_is(path, "-");
    int fd = STDIN_FILENO;
    *out = NULL;
    *len = 0;
    if (!is_standard)
        TRY(open_input(path, 0, &fd, e));
    const enum status s = read_to_end(fd, file_input_name(path), max, out, len, e);
    if (!is_standard)
        close(fd);
    if (s) {
        free(*out);
        *out = NULL;
        *len = 0;
    }
    return s;
}

/* --- replacing ----------------------------------------------------------------------------- */

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
