#include "base/lines.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define PIECE           ((size_t)64 << 10)
#define MOST_AT_ONCE    ((size_t)1 << 20)
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

enum status lines_open(struct lines *l, const char *path, size_t max, struct err *e)
{
    struct stat st;
    *l = (struct lines){.path = path, .fd = -1, .max = max};
    TRY(file_open_input(path, &l->fd, e));
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
        return file_failure(e, STATUS_BAD_FILE, file_input_name(l->path), "read", errno);
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
