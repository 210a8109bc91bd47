/* Files larger than 2 GiB on 32-bit systems too; must precede every include. */
#define _FILE_OFFSET_BITS 64

#include "base/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/temporary.h"

#define WRITE_BUFFER ((size_t)256 << 10)
#define READ_FIRST   ((size_t)64 << 10)
#define MAX_LINKS    40 /* what Linux follows */
#define TEMP_TRIES   100

/* --- messages ------------------------------------------------------------------------------ */

#define REASON_CAP 128

/* strerror_r comes in two kinds, by what it returns: GNU the text, POSIX a number. */
static inline const char *reason_of_text(const char *text, const char *buffer)
{
    (void)buffer;
    return text;
}

static inline const char *reason_of_number(int failed, const char *buffer)
{
    return failed ? "unknown error" : buffer;
}

static const char *reason(int error, char buffer[REASON_CAP])
{
    return _Generic(strerror_r(error, buffer, REASON_CAP), int
                    : reason_of_number, default
                    : reason_of_text)(strerror_r(error, buffer, REASON_CAP), buffer);
}

/* The end of a path that is too long for a message, which must leave room for the reason. */
#define PATH_SHOWN 250

static enum status fail_errno(struct err *e, enum status s, const char *path, const char *action,
                              int error)
{
    char text[REASON_CAP];
    const size_t len = strlen(path), cut = len > PATH_SHOWN ? len - PATH_SHOWN : 0;
    return err_set(e, s, "%s%s: cannot %s: %s", cut ? "..." : "", path + cut, action,
                   reason(error, text));
}

/* What stands where a regular file was expected. */
static const char *kind_of_file(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a pipe (FIFO)";
    if (S_ISCHR(mode) || S_ISBLK(mode))
        return "a device";
    return "not a regular file";
}

/* --- reading ------------------------------------------------------------------------------- */

static int open_retry(const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = open(path, flags, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Whose fault it is that a file cannot be opened: the file's, or that of a process or machine
 * that has no room for it. */
static enum status status_of_open(int error)
{
    if (error == ENOMEM)
        return STATUS_NO_MEMORY;
    return error == EMFILE || error == ENFILE ? STATUS_FAILED : STATUS_BAD_FILE;
}

static enum status open_input(const char *path, int flags, int *fd, struct err *e)
{
    if (!path[0])
        return err_set(e, STATUS_BAD_FILE, "the file name is empty");
    *fd = open_retry(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | flags, 0);
    if (*fd < 0)
        return fail_errno(e, status_of_open(errno), path, "open", errno);
    return STATUS_OK;
}

static bool is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

static const char *input_name(const char *path)
{
    return is_standard(path) ? "standard input" : path;
}

enum status file_open_input(const char *path, int *fd, struct err *e)
{
    *fd = STDIN_FILENO;
    return is_standard(path) ? STATUS_OK : open_input(path, 0, fd, e);
}

enum status file_read_failure(const char *path, int error, struct err *e)
{
    return fail_errno(e, STATUS_BAD_FILE, input_name(path), "read", error);
}

enum status file_in_folder(const char *folder, const char *name, char **path, struct err *e)
{
    const size_t size = strlen(folder) + 1 + strlen(name) + 1;
    *path = malloc(size);
    if (!*path)
        return err_no_memory(e, "a path", size);
    snprintf(*path, size, "%s/%s", folder, name);
    return STATUS_OK;
}

static enum status map_open_file(struct file_map *f, int fd, const char *path, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail_errno(e, STATUS_BAD_FILE, path, "examine", errno);
    if (!S_ISREG(st.st_mode))
        return err_set(e, STATUS_BAD_FILE, "%s: expected a regular file, found %s", path,
                       kind_of_file(st.st_mode));
    if (st.st_size == 0)
        return STATUS_OK;
    if ((uintmax_t)st.st_size > PTRDIFF_MAX)
        return err_set(e, STATUS_NO_MEMORY, "%s: %jd bytes do not fit into the address space", path,
                       (intmax_t)st.st_size);
    const size_t len = (size_t)st.st_size;
    void *data = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        /* Of a regular file that is open for reading; all other reasons are want of room. */
        const bool refused = errno == EACCES || errno == EPERM || errno == ENODEV;
        return fail_errno(e, refused ? STATUS_BAD_FILE : STATUS_NO_MEMORY, path, "map into memory",
                          errno);
    }
    f->data = data;
    f->len = len;
    return STATUS_OK;
}

enum status file_map_open(struct file_map *f, const char *path, struct err *e)
{
    *f = (struct file_map){0};
    int fd = -1;
    /* O_NONBLOCK: opening a FIFO without a writer would wait for one. */
    enum status s = open_input(path, O_NONBLOCK, &fd, e);
    if (s)
        return s;
    s = map_open_file(f, fd, path, e);
    close(fd); /* the mapping stays */
    return s;
}

enum status file_map_own(struct file_map *f, size_t len, unsigned char **bytes, struct err *e)
{
    assert(len > 0);
    *f = (struct file_map){0};
    *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*bytes == MAP_FAILED) {
        *bytes = NULL;
        return err_no_memory(e, "a file in memory", len);
    }
    *f = (struct file_map){.data = *bytes, .len = len, .own = true};
    return STATUS_OK;
}

/* munmap and madvise take what they do not write through as a plain pointer. */
static void *address_of(const unsigned char *p)
{
    return (void *)(uintptr_t)p;
}

void file_map_close(struct file_map *f)
{
    if (f->data)
        munmap(address_of(f->data), f->len);
    *f = (struct file_map){0};
}

enum status file_map_make_private(const struct file_map *f, size_t len, struct err *e)
{
    assert(len <= f->len);
    const long page = sysconf(_SC_PAGESIZE);
    if (!f->data || page <= 0)
        return STATUS_OK;
    volatile unsigned char *bytes = address_of(f->data);
    if (mprotect(address_of(f->data), len, PROT_READ | PROT_WRITE) != 0)
        return err_no_memory(e, "a copy of the file's head", len);
    /* The first write to a page of a private mapping copies it. */
    for (size_t at = 0; at < len; at += (size_t)page)
        bytes[at] = bytes[at];
    mprotect(address_of(f->data), len, PROT_READ);
    return STATUS_OK;
}

void file_map_release(const struct file_map *f, const void *data, size_t len)
{
    const unsigned char *from = data;
    const long page = sysconf(_SC_PAGESIZE);
    if (!f->data || (f->own && !f->once) || page <= 0 || from < f->data ||
        (size_t)(from - f->data) > f->len)
        return;
    const size_t begin = (size_t)(from - f->data);
    if (len > f->len - begin)
        len = f->len - begin;
    const size_t mask = (size_t)page - 1;
    const size_t first = (begin + mask) & ~mask, end = (begin + len) & ~mask;
    if (first < end)
        madvise(address_of(f->data + first), end - first, MADV_DONTNEED);
}

/* Like read, but waits: another process may have made our standard input non-blocking. */
static ssize_t read_some(int fd, char *to, size_t room)
{
    for (;;) {
        const ssize_t n = read(fd, to, room);
        if (n >= 0 || (errno != EINTR && errno != EAGAIN))
            return n;
        if (errno == EAGAIN) {
            struct pollfd ready = {.fd = fd, .events = POLLIN};
            poll(&ready, 1, -1);
        }
    }
}

/* How much to take at first: a regular file's length, so that it is read in one piece. */
static size_t first_room(int fd, size_t max)
{
    struct stat st;
    size_t room = READ_FIRST;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
        room = (uintmax_t)st.st_size < max ? (size_t)st.st_size + 1 : max;
    return room < max ? room : max;
}

static enum status refuse_long(const char *name, size_t max, struct err *e)
{
    return err_set(e, STATUS_USAGE, "%s: more than the %zu bytes allowed", name, max);
}

/* Whether a file just opened says that it is longer: then it need not be read. */
static bool is_longer(int fd, size_t max)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uintmax_t)st.st_size > max;
}

/* Reads to the end. One byte above max tells a file of max bytes from a longer one. */
static enum status read_to_end(int fd, const char *name, size_t max, char **out, size_t *len,
                               struct err *e)
{
    const size_t most = max < PTRDIFF_MAX - 2 ? max + 1 : PTRDIFF_MAX - 1;
    size_t room = first_room(fd, most), used = 0;
    char *text = malloc(room + 1);
    if (!text)
        return err_no_memory(e, name, room + 1);
    *out = text;
    for (;;) {
        const ssize_t n = read_some(fd, text + used, room - used);
        if (n < 0)
            return fail_errno(e, STATUS_BAD_FILE, name, "read", errno);
        used += (size_t)n;
        if (used > max)
            return refuse_long(name, max, e);
        if (n == 0)
            break;
        if (used < room)
            continue;
        room = room < most / 2 ? 2 * room : most;
        char *larger = used < room ? realloc(text, room + 1) : NULL;
        if (!larger)
            return err_no_memory(e, name, room + 1);
        *out = text = larger;
    }
    text[used] = 0;
    *len = used;
    return STATUS_OK;
}

enum status file_read_all(const char *path, size_t max, char **out, size_t *len, struct err *e)
{
    *out = NULL;
    *len = 0;
    const bool standard = is_standard(path);
    int fd;
    TRY(file_open_input(path, &fd, e));
    enum status s = !standard && is_longer(fd, max)
                        ? refuse_long(path, max, e)
                        : read_to_end(fd, input_name(path), max, out, len, e);
    if (!standard)
        close(fd);
    if (s) {
        free(*out);
        *out = NULL;
    }
    return s;
}

/* --- writing ------------------------------------------------------------------------------- */

struct file_writer {
    int fd;           /* of the temporary file; -1 when there is none */
    int error;        /* errno of the first failed write, 0 when none failed */
    char *target;     /* what is replaced: the path with symbolic links followed */
    char *temp;       /* beside target */
    size_t folder;    /* bytes of target up to its last slash, that included; 0 without one */
    size_t used;      /* bytes in buffer */
    char *buffer;     /* [WRITE_BUFFER] */
    bool temp_exists; /* must be removed unless renamed */
};

/* Bytes of path up to its last slash, that included. */
static size_t folder_len(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Replaces *path, a link that names `to`, by what it stands for. */
static bool follow_link(char **path, const char *to)
{
    const size_t folder = to[0] == '/' ? 0 : folder_len(*path), n = strlen(to);
    char *next = malloc(folder + n + 1);
    if (!next)
        return false;
    memcpy(next, *path, folder);
    memcpy(next + folder, to, n + 1);
    free(*path);
    *path = next;
    return true;
}

/* Whether a link is one of those that stand for open descriptors: /dev/stdout leads to one. What
 * it names is not what the user named, and replacing it would leave the descriptor behind. */
static bool is_descriptor(const struct stat *link)
{
    struct stat process;
    return stat("/proc/self", &process) == 0 && link->st_dev == process.st_dev;
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
        struct stat st;
        if (lstat(*target, &st) != 0)
            return errno == ENOENT ? STATUS_OK : fail_errno(e, STATUS_FAILED, path, "write", errno);
        if (!S_ISLNK(st.st_mode))
            return STATUS_OK;
        if (is_descriptor(&st))
            return err_set(e, STATUS_FAILED,
                           "%s: cannot replace it: expected a file's own name, found an open "
                           "descriptor's",
                           path);
        if (is_planted(*target, &st))
            return err_set(e, STATUS_FAILED,
                           "%s: cannot replace it: expected a link of one's own in a folder that "
                           "all may write, found another user's",
                           path);
        char to[4096];
        const ssize_t n = readlink(*target, to, sizeof to - 1);
        if (n < 0)
            return fail_errno(e, STATUS_FAILED, path, "follow the link", errno);
        to[n] = 0;
        if (!follow_link(target, to))
            return err_no_memory(e, path, sizeof to);
    }
    return fail_errno(e, STATUS_FAILED, path, "follow the link", ELOOP);
}

/* Sets *old to what is there, its mode 0 for nothing. Renaming over a device or a FIFO would
 * destroy it; a read-only file is meant to stay. */
static enum status check_target(const struct file_writer *w, struct stat *old, const char *path,
                                struct err *e)
{
    if (lstat(w->target, old) != 0)
        old->st_mode = 0;
    if (old->st_mode && !S_ISREG(old->st_mode))
        return err_set(e, STATUS_FAILED, "%s: cannot replace it: expected a regular file, found %s",
                       path, kind_of_file(old->st_mode));
    if (old->st_mode && faccessat(AT_FDCWD, w->target, W_OK, AT_EACCESS) != 0)
        return fail_errno(e, STATUS_FAILED, path, "replace it", errno);
    return STATUS_OK;
}

/* The old file's group and mode; where the group cannot be kept, another gets no rights of its. */
static int keep_rights(int fd, const struct stat *old)
{
    struct stat own;
    mode_t mode = old->st_mode & 0777;
    if (fstat(fd, &own) != 0)
        return -1;
    if (own.st_gid != old->st_gid && fchown(fd, (uid_t)-1, old->st_gid) != 0)
        mode &= ~(mode_t)(S_IRWXG);
    return fchmod(fd, mode);
}

/* The name does not grow from the target's, which may be as long as names can be. */
static enum status create_temp(struct file_writer *w, const struct stat *old, const char *path,
                               struct err *e)
{
    w->folder = folder_len(w->target);
    const size_t room = w->folder + TEMPORARY_CAP;
    w->temp = malloc(room);
    w->buffer = malloc(WRITE_BUFFER);
    if (!w->temp || !w->buffer)
        return err_no_memory(e, path, room + WRITE_BUFFER);
    memcpy(w->temp, w->target, w->folder);
    w->temp[w->folder] = 0;
    TRY(temporaries_clean(w->temp, e));
    for (int i = 0; i < TEMP_TRIES; i++) { /* each with another name, by the time */
        temporary_name(w->temp + w->folder);
        /* Not readable by more than the old file's readers at any moment. */
        w->fd = open_retry(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                           old->st_mode ? 0600 : 0666);
        if (w->fd >= 0 || errno != EEXIST)
            break;
    }
    if (w->fd < 0)
        return fail_errno(e, STATUS_FAILED, path, "create a temporary file in its folder", errno);
    w->temp_exists = true;
    flock(w->fd, LOCK_EX | LOCK_NB); /* says that its writer lives, where files can be locked */
    if (old->st_mode && keep_rights(w->fd, old) != 0)
        return fail_errno(e, STATUS_FAILED, path, "keep its permissions", errno);
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
    struct stat old;
    enum status s = file_follow_links(path, &w->target, e);
    if (!s)
        s = check_target(w, &old, path, e);
    if (!s)
        s = create_temp(w, &old, path, e);
    if (s) {
        file_writer_abandon(w);
        return s;
    }
    *out = w;
    return STATUS_OK;
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
    if (w->folder)
        w->target[w->folder] = 0;
    const int fd = open_retry(w->folder ? w->target : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
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
        s = fail_errno(e, STATUS_FAILED, w->target, action, w->error);
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
