/*
 * lines - the lines of a file or pipe, one at a time, as they come.
 *
 * Only what has been read and not yet been given is in memory, at most a line of the greatest
 * length and a little more; a longer one is passed over. A line ends with a newline, which does not
 * belong to it, and neither does one carriage return before it. The last one may lack its newline;
 * nothing after the last newline is no line. A byte-order mark (UTF-8) at the start of the file
 * belongs to no line.
 */
#pragma once

#include "base/status.h"
#include "base/text.h"

enum lines_state {
    LINES_LINE,
    LINES_LONG,  /* a line of more than the greatest length, passed over */
    LINES_LATER, /* not yet: it, or more of it, is still to come */
    LINES_END,   /* there is none */
};

struct lines {
    const char *path; /* borrowed */
    int fd;           /* -1: none */
    size_t max;       /* bytes of a line */
    struct bytes read;
    size_t given;    /* bytes at the start of `read`: of lines that were given */
    size_t searched; /* bytes of `read` that have no newline after `given` */
    bool ended;      /* the file was read to its end */
    bool passing;    /* over a long line */
    uint64_t n_bytes;
    uint64_t file_bytes; /* 0: not known, as of a pipe */
};

/* Opens a file of any kind, standard input for "-". STATUS_BAD_FILE, or STATUS_FAILED where no more
 * files can be open. lines_close is due in every case. */
enum status lines_open(struct lines *l, const char *path, size_t max, struct err *e);
void lines_close(struct lines *l);

/*
 * The next line, valid until the next call. Waits no longer than wait_ms (0: not at all) for each
 * piece of it, not at all after a signal, and reads no more than about a MiB of it: if it is not
 * whole then it is LINES_LATER, and the next call goes on. STATUS_BAD_FILE when it cannot be read,
 * STATUS_NO_MEMORY.
 */
enum status lines_next(struct lines *l, int wait_ms, enum lines_state *state, struct text *line,
                       struct err *e);

/* *n = the lines that are left, if there are fewer than `most` and that can be known without
 * waiting; else `most`. Fails as lines_next does. */
enum status lines_left(struct lines *l, int most, int *n, struct err *e);

/* How much of the file the lines given so far are, 0 to 1; negative where that is not known. */
double lines_share(const struct lines *l);
