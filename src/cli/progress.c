#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common.h"
#include "cli/signals.h"
#include "show/figures.h"

/* Between two lines. */
#define PROGRESS_NS 100000000u

struct progress progress_start(const struct common_options *c)
{
    const uint64_t now = clock_ns();
    return (struct progress){
        .terminal = isatty(STDERR_FILENO) && !c->quiet, .started_ns = now, .shown_ns = now};
}

/* Whether it is time for another line; then it counts as shown. */
static bool is_due(struct progress *p)
{
    const uint64_t now = clock_ns();
    if (!p->terminal || now - p->shown_ns < PROGRESS_NS)
        return false;
    p->shown_ns = now;
    return true;
}

static double rate_of(const struct progress *p, double done)
{
    return done / (double)(p->shown_ns - p->started_ns) * 1e9;
}

static struct figure time_left(double left, double rate)
{
    return figure_duration((uint64_t)(left / rate * 1e9));
}

void progress_show(struct progress *p, const char *unit, double done, double all)
{
    if (!is_due(p))
        return;
    const double rate = rate_of(p, done);
    fprintf(stderr, "\r%.0f of %.0f %s, %s %s/s, %s left\033[K", done, all, unit,
            figure_rate(rate).text, unit, time_left(all - done, rate).text);
}

void progress_show_bytes(struct progress *p, double done, double all)
{
    if (!is_due(p))
        return;
    const double rate = rate_of(p, done);
    fprintf(stderr, "\r%.0f%% of %s, %s/s, %s left\033[K", 100 * done / all, figure_bytes(all).text,
            figure_bytes(rate).text, time_left(all - done, rate).text);
}

void progress_end(const struct progress *p)
{
    if (p->terminal)
        fputs("\r\033[K", stderr);
}

bool progress_stop(void *arg)
{
    (void)arg;
    return signals_interrupted();
}
