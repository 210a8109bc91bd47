#include "cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/numbers.h"
#include "cli/common.h"
#include "cli/signals.h"

const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

int terminal_width(int fd)
{
    struct winsize size;
    const char *columns = environment("COLUMNS");
    int width;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return columns && parse_int(columns, 1, USHRT_MAX, &width) ? width : 80;
}

bool terminal_obeys(int fd)
{
    const char *term = environment("TERM");
    return isatty(fd) && term && !str_is(term, "dumb");
}

enum heatmap_ink terminal_ink(void)
{
    const bool coloured = terminal_obeys(STDOUT_FILENO) && !environment("NO_COLOR");
    return coloured ? HEATMAP_COLOURS : HEATMAP_PLAIN;
}

/* --- descriptors ----------------------------------------------------------------------------- */

/* How long an interrupted program waits for a reader that does not read. */
#define PATIENCE_MS 1000

/* An interrupted program does not wait for a reader that has stopped reading. A slow reader still
 * gets the rest, in pieces that a pipe takes whole once it can be written to. */
static bool send_all(struct output *o, const char *data, size_t len)
{
    struct descriptor *d = (struct descriptor *)o;
    struct pollfd p = {.fd = d->fd, .events = POLLOUT};
    while (len > 0 && !d->error) {
        const bool interrupted = signals_interrupted();
        if (interrupted && poll(&p, 1, PATIENCE_MS) != 1) {
            d->error = EINTR;
            break;
        }
        ssize_t n = write(d->fd, data, interrupted ? MIN(len, PIPE_BUF) : len);
        if (n < 0 && errno == EAGAIN && !interrupted) /* the descriptor does not block */
            n = poll(&p, 1, -1) < 0 ? -1 : 0;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            d->error = errno;
        data += MAX(n, 0);
        len -= MAX(n, 0);
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
        return err_failed(e, "cannot write to standard output: %s", strerror(d->error));
    return STATUS_OK;
}

/* --- lines on standard error ----------------------------------------------------------------- */

/* Bytes of a line, which may have the longest path and a sentence. */
#define LOG_MAX        5120
#define SUMMARY_INDENT 13

/* Returns the columns of a line on standard error, a terminal. The terminal's last one stays free,
 * because some go on in the next line behind it. */
static size_t columns(void)
{
    return (size_t)terminal_width(STDERR_FILENO) - 1;
}

static bool is_shown;

void notice_clear(void)
{
    if (is_shown)
        fputs("\r\033[K", stderr);
    is_shown = false;
}

/* Writes a line that stays. Where it is broken, `indent` spaces stand before what goes on. */
static void put_notice(const char *line, int indent)
{
    notice_clear();
    const size_t most = isatty(STDERR_FILENO) ? columns() : SIZE_MAX;
    const bool broken = most / 2 > (size_t)indent;
    struct text rest = text_of(line);
    struct text part = paragraph_line(&rest, broken ? most : SIZE_MAX, false);
    fwrite(part.data, 1, part.len, stderr);
    while (rest.len > 0) {
        part = paragraph_line(&rest, most - indent, false);
        fprintf(stderr, "\n%*s%.*s", indent, "", text_width(part), part.data);
    }
    fputc('\n', stderr);
}

void notice(bool stays, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (stays) {
        put_notice(line, SUMMARY_INDENT);
        return;
    }
    const struct text cut = paragraph_cut(text_of(line), columns());
    fprintf(stderr, "\r%.*s\033[K", text_width(cut), cut.data);
    is_shown = true;
}

void log_error(const char *text)
{
    static const char head[] = "decode: ";
    char line[sizeof head + LOG_MAX];
    chars_printf(line, "%s%s", head, text);
    utf8_strip(line);
    put_notice(line, strlen(head));
}

void log_info(const struct common_options *c, const char *format, ...)
{
    char text[LOG_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!c->quiet)
        log_error(text);
}

/* --- progress -------------------------------------------------------------------------------- */

/* The least time between two lines of progress. */
#define PROGRESS_NS 100000000u

void progress_show(void *arg, uint64_t done, uint64_t all)
{
    struct progress *p = arg;
    const uint64_t now = clock_ns();
    p->done = done;
    p->all = all;
    if (done == 0 || !p->terminal || now - p->shown_ns < PROGRESS_NS)
        return;
    p->shown_ns = now;
    const double share = (double)done / all, rate = done / ((now - p->started_ns) / 1e9);
    const struct figure left = figure_duration((all - done) / rate * 1e9);
    if (p->unit)
        notice_show("%" PRIu64 " of %" PRIu64 " %s%s, %s %ss/s, %s left", done, all, p->unit,
                    plural(all), figure_rate(rate).text, p->unit, left.text);
    else
        notice_show("%.0f%% of %s, %s/s, %s left", 100 * share, figure_bytes(all).text,
                    figure_bytes(rate).text, left.text);
}

void progress_end(const struct progress *p)
{
    if (p->terminal)
        notice_clear();
}

bool progress_stop(void *arg)
{
    (void)arg;
    return signals_interrupted();
}
