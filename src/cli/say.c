#include "cli/say.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/figures.h"
#include "base/text.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "show/paragraph.h"

/* Bytes of a line said on standard error: a path as long as they can be, and a sentence. */
#define SAY_MAX        5120
#define SUMMARY_INDENT 13

/* Of a line on standard error, which is a terminal; the last column stays free, because some
 * terminals go on in the next line after it. */
static size_t columns(void)
{
    return (size_t)terminal_width(STDERR_FILENO) - 1;
}

static bool is_shown;

void notice_show(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const struct text cut = paragraph_cut(text_of(line), columns());
    fprintf(stderr, "\r%.*s\033[K", text_width(cut), cut.data);
    is_shown = true;
}

void notice_clear(void)
{
    if (is_shown)
        fputs("\r\033[K", stderr);
    is_shown = false;
}

void notice_put(const char *line, int indent)
{
    notice_clear();
    const size_t most = isatty(STDERR_FILENO) ? columns() : SIZE_MAX;
    const bool broken = most / 2 > (size_t)indent;
    struct text rest = text_of(line);
    struct text part = paragraph_line(&rest, broken ? most : SIZE_MAX, false);
    fwrite(part.data, 1, part.len, stderr);
    while (rest.len > 0) {
        part = paragraph_line(&rest, most - (size_t)indent, false);
        fprintf(stderr, "\n%*s%.*s", indent, "", text_width(part), part.data);
    }
    fputc('\n', stderr);
}

void notice_summary(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    notice_put(line, SUMMARY_INDENT);
}

void say(const struct common_options *c, const char *format, ...)
{
    char line[SAY_MAX] = "decode: ";
    const size_t head = strlen(line);
    va_list args;
    if (c->quiet)
        return;
    va_start(args, format);
    vsnprintf(line + head, sizeof line - head, format, args);
    va_end(args);
    utf8_strip(line);
    notice_put(line, NOTICE_INDENT);
}

/* --- progress -------------------------------------------------------------------------------- */

/* Between two lines. */
#define PROGRESS_NS 100000000u

struct progress progress_start(const struct common_options *c, const char *unit)
{
    const uint64_t now = clock_ns();
    return (struct progress){.unit = unit,
                             .terminal = isatty(STDERR_FILENO) && !c->quiet,
                             .started_ns = now,
                             .shown_ns = now};
}

/* Whether a line is to be shown now; then none is for some time. *elapsed is in nanoseconds; *left
 * is said where the share of the work that is done is known, above 0. */
static bool is_due(struct progress *p, double share, double *elapsed, struct figure *left)
{
    const uint64_t now = clock_ns();
    if (!p->terminal || now - p->shown_ns < PROGRESS_NS)
        return false;
    p->shown_ns = now;
    *elapsed = (double)(now - p->started_ns);
    *left = (struct figure){""};
    if (share > 0)
        *left = figure_duration(*elapsed * (1 - share) / share);
    return true;
}

void progress_show(void *arg, uint64_t done, uint64_t all)
{
    struct progress *p = arg;
    struct figure left;
    double elapsed;
    p->done = done;
    p->all = all;
    if (done == 0 || !is_due(p, (double)done / (double)all, &elapsed, &left))
        return;
    const double rate = (double)done / elapsed * 1e9;
    if (p->unit)
        notice_show("%" PRIu64 " of %" PRIu64 " %s, %s %s/s, %s left", done, all, p->unit,
                    figure_rate(rate).text, p->unit, left.text);
    else
        notice_show("%.0f%% of %s, %s/s, %s left", 100 * (double)done / (double)all,
                    figure_bytes((double)all).text, figure_bytes(rate).text, left.text);
}

void progress_show_texts(struct progress *p, uint64_t done, uint64_t begun, uint64_t tokens,
                         double share)
{
    struct figure left;
    double elapsed;
    p->done = done;
    if (is_due(p, begun ? share * (double)done / (double)begun : 0, &elapsed, &left))
        notice_show("%" PRIu64 " %s done, %s tokens/s%s%s%s", done, p->unit,
                    figure_rate((double)tokens / elapsed * 1e9).text, left.text[0] ? ", " : "",
                    left.text, left.text[0] ? " left" : "");
}

void progress_show_share(struct progress *p, uint64_t done, uint64_t all, double share)
{
    struct figure left;
    double elapsed;
    p->done = done;
    p->all = all;
    if (share > 0 && is_due(p, share, &elapsed, &left))
        notice_show("%" PRIu64 " of %" PRIu64 " %s, %s left", done, all, p->unit, left.text);
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
