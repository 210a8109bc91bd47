#include "cli/terminal.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/numbers.h"
#include "cli/signals.h"

const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

#define DEFAULT_COLUMNS 80

int terminal_width(int fd)
{
    struct winsize size;
    const char *columns = environment("COLUMNS");
    int width;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return columns && parse_int(columns, 1, USHRT_MAX, &width) ? width : DEFAULT_COLUMNS;
}

void terminal_describe(struct output *out)
{
    out->terminal = isatty(STDOUT_FILENO) == 1;
    if (out->terminal)
        out->columns = terminal_width(STDOUT_FILENO);
    out->colours = terminal_ink(false) != HEATMAP_PLAIN;
}

enum heatmap_ink terminal_ink(bool always)
{
    /* In the name, or the name, of terminals that have 256 colours. */
    static const char *const names[] = {"256color",  "direct", "kitty",
                                        "alacritty", "foot",   "truecolor"};
    const char *term = environment("TERM");
    bool coloured = environment("COLORTERM") != NULL;
    for (size_t i = 0; term && i < sizeof names / sizeof *names; i++)
        coloured |= strstr(term, names[i]) != NULL;
    coloured &= term && strcmp(term, "dumb") != 0;
    if (!always && (!coloured || !isatty(STDOUT_FILENO) || environment("NO_COLOR")))
        return HEATMAP_PLAIN;
    /* Of "foreground;background" or "foreground;other;background", 7 and 15 are white. */
    const char *colours = environment("COLORFGBG");
    const char *last = colours ? strrchr(colours, ';') : NULL;
    const bool is_light = last && (strcmp(last, ";7") == 0 || strcmp(last, ";15") == 0);
    return is_light ? HEATMAP_LIGHT : HEATMAP_DARK;
}

/* --- descriptors ----------------------------------------------------------------------------- */

/* What a reader that does not read gets once the program was interrupted. */
#define LAST_WAIT_MS 1000

/*
 * A reader that has stopped reading must not keep an interrupted program from ending, so from then
 * on only as much is written as does not block.
 */
static bool send_all(struct output *o, const char *data, size_t len)
{
    struct descriptor *d = (struct descriptor *)o;
    struct pollfd p = {.fd = d->fd, .events = POLLOUT};
    while (len > 0 && !d->error) {
        size_t piece = len;
        if (signals_interrupted()) {
            piece = len < PIPE_BUF ? len : PIPE_BUF;
            if (poll(&p, 1, LAST_WAIT_MS) == 0) {
                d->error = EINTR;
                break;
            }
        }
        const ssize_t n = write(d->fd, data, piece);
        if (n >= 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) { /* the descriptor does not block */
            if (poll(&p, 1, -1) < 0 && errno != EINTR)
                d->error = errno;
        } else if (errno != EINTR) {
            d->error = errno;
        }
    }
    return d->error == 0;
}

void descriptor_init(struct descriptor *d, int fd)
{
    output_init(&d->out, send_all);
    d->fd = fd;
    d->error = 0;
}

enum status descriptor_close(struct descriptor *d, struct err *e)
{
    output_flush(&d->out);
    /* Some file systems report a failed write only now. */
    if (close(d->fd) != 0 && !d->error && errno != EINTR)
        d->error = errno;
    if (d->error == EINTR)
        return err_set(e, STATUS_INTERRUPTED,
                       "interrupted while nobody read standard output; the rest of it is lost");
    if (d->error)
        return err_set(e, STATUS_FAILED, "cannot write to standard output: %s", strerror(d->error));
    return STATUS_OK;
}
