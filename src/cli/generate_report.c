#include "cli/generate_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

#include "base/figures.h"
#include "base/stats.h"
#include "cli/common.h"
#include "cli/generate_draft.h"

static double percentile_us(const struct schedule_times *t, double p)
{
    return (double)stats_percentile(t->rounds, t->n_rounds, p) / 1000;
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

void generate_say_end(const struct generation *g, const struct common_options *common)
{
    const int cap = session_cap(g->schedule.session);
    const char *what = g->end == END_EOS         ? "end of text"
                       : g->end == END_STOP      ? "stop text found"
                       : g->schedule.interrupted ? "interrupted"
                                                 : NULL;
    if (g->end == END_CONTEXT)
        say(common, "context full (%d token%s): stopped after %d of %d; --shift goes on", cap,
            plural((uint64_t)cap), g->last_sampled, g->n);
    else if (what)
        say(common, "%s after %d token%s", what, g->last_sampled,
            plural((uint64_t)g->last_sampled));
}

/* After what is said of the prompts. */
static void report_prompts(const char *what, const struct schedule_times *t)
{
    const uint64_t n = t->n_prefilled - t->n_fed_again;
    notice_summary("%s%" PRIu64 " token%s, %s tokens/s", what, n, plural(n),
                   figure_rate(rate(t->n_prefilled, t->prefill_ns)).text);
}

static void report_decoding(struct schedule *s)
{
    struct schedule_times *t = &s->times;
    char times[160] = "";
    if (t->n_rounds > 0) {
        stats_sort(t->rounds, t->n_rounds);
        snprintf(times, sizeof times, ", %s tokens/s; p50 %.0f µs, p99 %.0f µs per %s",
                 figure_rate(rate(t->n_decoded, t->decode_ns)).text, percentile_us(t, 0.5),
                 percentile_us(t, 0.99), s->n_slots > 1 || s->drafter ? "step" : "token");
    }
    notice_summary("decoded      %" PRIu64 " token%s%s", t->n_sampled, plural(t->n_sampled), times);
}

/* All that is the same for one text and many. A step makes a token for each of its texts, and more
 * where they were drafted. */
static void report_schedule(struct schedule *s, const struct job *r, uint64_t seed, bool json)
{
    const struct schedule_times *t = &s->times;
    if (t->first_token_at)
        notice_summary("first token  %s after start",
                       figure_duration(t->first_token_at - r->start_ns).text);
    report_decoding(s);
    if (t->n_shifts > 0)
        notice_summary("shifts       %" PRIu64 ", %" PRIu64 " tokens fed again", t->n_shifts,
                       t->n_fed_again);
    if (s->n_slots > 1)
        notice_summary("batch        %d sequences", s->n_slots);
    notice_summary("seed         %" PRIu64, seed);
    notice_summary("peak memory  %s", figure_bytes(peak_bytes()).text);
    draft_report(s, json);
}

void generate_report(struct generation *g, const struct job *r, uint64_t seed)
{
    if (g->out->failed) /* and program_run says why, if that is to be said */
        return;
    if (r->common->quiet)
        return;
    report_prompts("prompt       ", &g->schedule.times);
    report_schedule(&g->schedule, r, seed, g->records);
}

void generate_many_report(struct generation_many *g, const struct job *r, uint64_t seed)
{
    char done[128], cut[32] = "";
    if (g->out->failed)
        return;
    if (g->schedule.interrupted)
        say(r->common, "interrupted after %" PRIu64 " prompt%s", g->n_done, plural(g->n_done));
    if (r->common->quiet)
        return;
    if (g->n_cut > 0)
        snprintf(cut, sizeof cut, ", %" PRIu64 " cut", g->n_cut);
    snprintf(done, sizeof done, "prompts      %" PRIu64 " done, %" PRIu64 " error%s%s; ", g->n_done,
             g->n_errors, plural(g->n_errors), cut);
    report_prompts(done, &g->schedule.times);
    report_schedule(&g->schedule, r, seed, false);
}
