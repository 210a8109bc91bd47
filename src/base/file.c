#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"

#define READ_FIRST ((size_t)64 << 10)
#define MAX_LINKS  40  /* what Linux follows */
#define PATH_SHOWN 250 /* the end of a longer path: a message must leave room for the reason */

/* --- paths --------------------------------------------------------------------------------- */

static bool stat_folder(const char *path, struct stat *st)
{
    char folder[PATH_MAX];
    chars_printf(folder, "%.*s.", (int)(path_name(path) - path), path);
    return stat(folder, st) == 0;
}

enum status path_follow(const char *path, char **target, struct err *e)
{
    *target = strdup(path);
    if (!*target)
        return err_no_memory(e, path, strlen(path) + 1);
    for (int links = 0; links <= MAX_LINKS; links++) {
        struct stat st;
        char to[4096];
        if (lstat(*target, &st) != 0)
            return errno == ENOENT ? STATUS_OK
                                   : file_failure(e, STATUS_FAILED, path, "write", errno);
        if (!S_ISLNK(st.st_mode))
            return STATUS_OK;
        const ssize_t n = readlink(*target, to, sizeof to - 1);
        if (n < 0)
            return file_failure(e, STATUS_FAILED, path, "follow the link", errno);
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

/* --- messages ------------------------------------------------------------------------------ */

enum status file_failure(struct err *e, enum status s, const char *path, const char *action,
                         int error)
{
    const size_t len = strlen(path), cut = len > PATH_SHOWN ? len - PATH_SHOWN : 0;
    return err_set(e, s, "%s%s: cannot %s: %s", cut ? "..." : "", path + cut, action,
                   strerror(error));
}

const char *file_kind(mode_t mode)
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
