#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/figures.h"
#include "cli/common.h"
#include "cli/signals.h"

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

/* Whether a line is to be shown now; then none is for some time. */
static bool is_due(struct progress *p, uint64_t now)
{
    if (!p->terminal || now - p->shown_ns < PROGRESS_NS)
        return false;
    p->shown_ns = now;
    return true;
}

void progress_show(void *arg, uint64_t done, uint64_t all)
{
    struct progress *p = arg;
    const uint64_t now = clock_ns();
    p->done = done;
    p->all = all;
    if (done == 0 || !is_due(p, now))
        return;
    const double rate = (double)done / (double)(now - p->started_ns) * 1e9;
    const struct figure left = figure_duration((double)(all - done) / rate * 1e9);
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
    const uint64_t now = clock_ns();
    p->done = done;
    if (!is_due(p, now))
        return;
    const double elapsed = (double)(now - p->started_ns);
    const double part = share < 0 || begun == 0 ? 0 : share * (double)done / (double)begun;
    const struct figure rate = figure_rate((double)tokens / elapsed * 1e9);
    struct figure left = {""};
    if (part > 0)
        left = figure_duration(elapsed * (1 - part) / part);
    notice_show("%" PRIu64 " %s done, %s tokens/s%s%s%s", done, p->unit, rate.text,
                part > 0 ? ", " : "", left.text, part > 0 ? " left" : "");
}

void progress_show_share(struct progress *p, uint64_t done, uint64_t all, double share)
{
    const uint64_t now = clock_ns();
    p->done = done;
    p->all = all;
    if (share <= 0 || !is_due(p, now))
        return;
    const double left = (double)(now - p->started_ns) * (1 - share) / share;
    notice_show("%" PRIu64 " of %" PRIu64 " %s, %s left", done, all, p->unit,
                figure_duration(left).text);
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
