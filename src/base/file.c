/* Files larger than 2 GiB on 32-bit systems too; must precede every include. */
#define _FILE_OFFSET_BITS 64

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define READ_FIRST ((size_t)64 << 10)
#define PATH_SHOWN 250 /* the end of a longer path: a message must leave room for the reason */

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
    /* The file's fault, or that of a process or machine that has no room for it. */
    const enum status s = errno == ENOMEM                      ? STATUS_NO_MEMORY
                          : errno == EMFILE || errno == ENFILE ? STATUS_FAILED
                                                               : STATUS_BAD_FILE;
    return file_failure(e, s, path, "open", errno);
}

static bool is_standard(const char *path)
{
    return str_is(path, "-");
}

static const char *input_name(const char *path)
{
    return is_standard(path) ? "standard input" : path;
}

/* Opens a file of any kind for reading, or standard input for "-": *fd, which the caller closes
 * unless it is that. STATUS_BAD_FILE, or STATUS_FAILED where no more files can be open. */
static enum status open_named(const char *path, int *fd, struct err *e)
{
    *fd = STDIN_FILENO;
    return is_standard(path) ? STATUS_OK : open_input(path, 0, fd, e);
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
        /* Of a regular file that is open for reading; all other reasons are want of room. */
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

/* munmap and madvise take what they do not write through as a plain pointer. */
static void *address_of(const unsigned char *p)
{
    return (void *)(uintptr_t)p;
}

void file_map_close(struct file_map *f)
{
    if (f->own)
        free(address_of(f->data));
    else if (f->data)
        munmap(address_of(f->data), f->len);
    *f = (struct file_map){0};
}

enum status file_map_make_private(const struct file_map *f, size_t len, struct err *e)
{
    assert(len <= f->len);
    const long page = sysconf(_SC_PAGESIZE);
    if (!f->data || f->own || page <= 0)
        return STATUS_OK;
    volatile unsigned char *bytes = address_of(f->data);
    if (mprotect(address_of(f->data), len, PROT_READ | PROT_WRITE) != 0)
        return err_no_memory(e, "a copy of the file's head", len);
    /* The first write to a page of a private mapping copies it. */
    for (size_t at = 0; at < len; at += page)
        bytes[at] = bytes[at];
    mprotect(address_of(f->data), len, PROT_READ);
    return STATUS_OK;
}

void file_map_release(const struct file_map *f, const void *data, size_t len)
{
    const long page = sysconf(_SC_PAGESIZE);
    const uintptr_t mask = (uintptr_t)page - 1, from = (uintptr_t)data;
    const uintptr_t start = (uintptr_t)f->data, end = start + f->len;
    if (!f->data || f->own || page <= 0 || from < start || from > end)
        return;
    const uintptr_t to = len < end - from ? from + len : end;
    const uintptr_t first = (from + mask) & ~mask, last = to & ~mask;
    if (first < last)
        madvise((void *)first, last - first, MADV_DONTNEED);
}

/* One byte above max tells a file of max bytes from a longer one; a regular file says how long it
 * is, so that it is read in one piece. */
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
    int fd;
    *out = NULL;
    *len = 0;
    TRY(open_named(path, &fd, e));
    const enum status s = read_to_end(fd, input_name(path), max, out, len, e);
    if (!is_standard(path))
        close(fd);
    if (s) {
        free(*out);
        *out = NULL;
        *len = 0;
    }
    return s;
}

/* --- lines ------------------------------------------------------------------------------------ */

#define PIECE           ((size_t)64 << 10)
#define MOST_AT_ONCE    ((size_t)1 << 20)
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

enum status lines_open(struct lines *l, const char *path, size_t max, struct err *e)
{
    struct stat st;
    *l = (struct lines){.path = path, .fd = -1, .max = max};
    TRY(open_named(path, &l->fd, e));
    if (fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode))
        l->file_bytes = st.st_size;
    return STATUS_OK;
}

void lines_close(struct lines *l)
{
    if (l->fd > STDIN_FILENO)
        close(l->fd);
    l->fd = -1;
    bytes_free(&l->read);
}

/* --- reading --------------------------------------------------------------------------------- */

/* Reads another piece, or finds the end; *came: either. */
static enum status read_piece(struct lines *l, int wait_ms, bool *came, struct err *e)
{
    struct pollfd ready = {.fd = l->fd, .events = POLLIN};
    *came = false;
    if (l->given > 0) { /* what was given is not needed any more */
        l->read.len -= l->given;
        l->searched -= l->given;
        memmove(l->read.data, l->read.data + l->given, l->read.len);
        l->given = 0;
    }
    if (!bytes_reserve(&l->read, PIECE))
        return err_no_memory(e, "a line", l->read.len + PIECE);
    if (poll(&ready, 1, wait_ms) <= 0)
        return STATUS_OK;
    const ssize_t n = read(l->fd, l->read.data + l->read.len, PIECE);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) /* another process may have emptied it */
        return STATUS_OK;
    if (n < 0)
        return file_failure(e, STATUS_BAD_FILE, input_name(l->path), "read", errno);
    l->ended = n == 0;
    l->read.len += n;
    if (l->n_bytes == 0 && text_starts_with(bytes_text(&l->read), BYTE_ORDER_MARK))
        l->n_bytes = l->given = l->searched = strlen(BYTE_ORDER_MARK);
    *came = true;
    return STATUS_OK;
}

/* --- lines ----------------------------------------------------------------------------------- */

/* Takes a line out of what has been read, but for a carriage return at its end. */
static bool take_read(struct lines *l, enum lines_state *state, struct text *line)
{
    const char *start = l->read.data;
    const char *newline = l->searched < l->read.len
                              ? memchr(start + l->searched, '\n', l->read.len - l->searched)
                              : NULL;
    const size_t end = newline ? (size_t)(newline - start) : l->read.len;
    l->searched = end + (newline != NULL);
    if (!newline && !(l->ended && (l->passing || l->given < end)))
        return false;
    const bool has_return = end > l->given && start[end - 1] == '\r';
    *line = text_span(start + l->given, end - has_return - l->given);
    *state = l->passing || line->len > l->max ? LINES_LONG : LINES_LINE;
    l->passing = false;
    l->n_bytes += l->searched - l->given;
    l->given = l->searched;
    return true;
}

enum status lines_next(struct lines *l, int wait_ms, enum lines_state *state, struct text *line,
                       struct err *e)
{
    for (size_t asked = 0; !take_read(l, state, line); asked += PIECE) {
        bool came;
        *state = l->ended ? LINES_END : LINES_LATER;
        if (l->ended || asked >= MOST_AT_ONCE)
            return STATUS_OK;
        /* The start of a line that is too long already is forgotten; a byte more may be its
         * carriage return. */
        if (l->passing || l->read.len - l->given > l->max + 1) {
            l->passing = true;
            l->n_bytes += l->read.len - l->given;
            l->given = l->searched = l->read.len;
        }
        TRY(read_piece(l, wait_ms, &came, e));
        if (!came)
            return STATUS_OK;
    }
    return STATUS_OK;
}

static int count_read(const struct lines *l, int most)
{
    if (l->given == l->read.len) /* perhaps without memory yet */
        return 0;
    const char *at = l->read.data + l->given, *end = l->read.data + l->read.len;
    int n = 0;
    while (n < most && at < end) {
        const char *newline = memchr(at, '\n', end - at);
        at = newline ? newline + 1 : end;
        n++;
    }
    return n;
}

enum status lines_left(struct lines *l, int most, int *n, struct err *e)
{
    bool came = true;
    while (came && !l->ended && l->read.len < MOST_AT_ONCE && count_read(l, most) < most)
        TRY(read_piece(l, 0, &came, e));
    *n = l->ended ? count_read(l, most) : most;
    return STATUS_OK;
}

double lines_share(const struct lines *l)
{
    return l->file_bytes ? (double)l->n_bytes / l->file_bytes : -1;
}
