#include "cli/generate_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/stats.h"
#include "show/figures.h"

static double percentile_us(const struct generation *g, double p)
{
    return (double)stats_percentile(g->times, g->n_times, p) / 1000;
}

static double rate(uint64_t n, uint64_t ns)
{
    return ns ? (double)n * 1e9 / (double)ns : 0;
}

static double peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
    return (double)usage.ru_maxrss;
#else
    return (double)usage.ru_maxrss * 1024;
#endif
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void say_end(const struct generation *g, const struct common_options *common)
{
    const char *what = g->end == END_EOS           ? "end of text"
                       : g->end == END_STOP        ? "stop text found"
                       : g->end == END_INTERRUPTED ? "interrupted"
                                                   : NULL;
    if (g->end == END_CONTEXT)
        say(common, "context full (%d tokens): stopped after %d of %d", session_cap(g->session),
            g->last_made, g->n);
    else if (what)
        say(common, "%s after %d token%s", what, g->last_made, plural((uint64_t)g->last_made));
}

void generate_report(struct generation *g, const struct runtime *r, uint64_t seed)
{
    say_end(g, r->common);
    if (r->common->quiet)
        return;
    fprintf(stderr, "prompt       %d token%s, %s tokens/s\n", g->n_prefilled,
            plural((uint64_t)g->n_prefilled),
            figure_rate(rate((uint64_t)g->n_prefilled, g->prefill_ns)).text);
    if (g->first_token_at)
        fprintf(stderr, "first token  %s after start\n",
                figure_duration(g->first_token_at - r->inv->start_ns).text);
    fprintf(stderr, "decoded      %" PRIu64 " token%s", g->n_made, plural(g->n_made));
    if (g->n_times > 0) {
        stats_sort(g->times, g->n_times);
        fprintf(stderr, ", %s tokens/s; p50 %.0f µs, p99 %.0f µs per token",
                figure_rate(rate(g->n_steps, g->step_ns)).text, percentile_us(g, 0.5),
                percentile_us(g, 0.99));
    }
    fprintf(stderr, "\nseed         %" PRIu64 "\npeak memory  %s\n", seed,
            figure_bytes(peak_bytes()).text);
}
