#include "measure/draft_bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/stats.h"

/* Steps of a kind that are timed for the prediction. */
#define TIMED_STEPS 9

/* --- a turn ---------------------------------------------------------------------------------- */

/* All texts of a repeat, one way. */
struct turn {
    const struct draft_bench_spec *spec;
    int repeat, n_begun;
    uint64_t hash; /* of all tokens, whatever their order among texts */
    struct schedule_times times;
    uint64_t n_drafted, n_right, draft_ns;
};

static const int32_t *prompt_of(const struct draft_bench_spec *spec, int text)
{
    const uint64_t places = spec->n_tokens - (uint64_t)spec->prompt;
    const uint64_t n = (uint64_t)spec->repeats * (uint64_t)spec->batch;
    return spec->tokens + places * (uint64_t)text / n;
}

static enum status run_schedule(struct turn *t, struct schedule *s, struct err *e)
{
    const struct draft_bench_spec *spec = t->spec;
    TRY(schedule_create(s, e));
    for (struct event event; schedule_next(s, &event, e);) {
        const struct slot *p = event.slot;
        if (event.kind == EVENT_SAMPLED)
            t->hash += rng_derive(p->request.number << 32 | (uint64_t)(p->n_sampled - 1),
                                  (uint64_t)event.token);
        if (event.kind == EVENT_FAILED)
            schedule_end(s, STATUS_FAILED);
        if (event.kind != EVENT_ROUND)
            continue;
        if (spec->stop(spec->arg))
            schedule_end(s, STATUS_INTERRUPTED);
        for (; t->n_begun < spec->batch; t->n_begun++) {
            const int text = t->repeat * spec->batch + t->n_begun;
            const struct request request = {.number = (uint64_t)t->n_begun,
                                            .tokens = prompt_of(spec, text),
                                            .n_tokens = spec->prompt,
                                            .n = spec->n,
                                            .seed = (uint64_t)text};
            const enum status status = schedule_begin(s, schedule_vacant(s), &request, e);
            if (status != STATUS_OK)
                schedule_end(s, status);
        }
    }
    t->times = s->times;
    return s->status;
}

static enum status run_turn(struct turn *t, const struct draft_way *way, struct err *e)
{
    const struct draft_bench_spec *spec = t->spec;
    struct drafter drafter = {.session = NULL};
    struct schedule s = {.session = spec->session,
                         .sampler = spec->sampler,
                         .pool = spec->pool,
                         .tokenizer = spec->tokenizer,
                         .n_slots = spec->batch,
                         .n_vocab = spec->n_vocab,
                         .ignore_eos = true};
    enum status status = STATUS_OK;
    if (way->drafter) {
        drafter = *way->drafter;
        for (int i = 0; drafter.session && i < spec->batch; i++)
            session_rewind(drafter.session, i, 0);
        s.drafter = &drafter;
        status = drafter_create(&drafter, e);
    }
    if (status == STATUS_OK)
        status = run_schedule(t, &s, e);
    t->n_drafted = drafter.n_drafted;
    t->n_right = drafter.n_right;
    t->draft_ns = drafter.draft_ns;
    schedule_free(&s);
    drafter_free(&drafter);
    return status;
}

/* --- what is predicted ----------------------------------------------------------------------- */

/* The median time of a step of `each` rows of every sequence at a depth, for which there is room.
 */
static enum status time_step(struct session *s, int n_sequences, int depth, int each,
                             const struct draft_bench_spec *spec, uint64_t *ns, struct err *e)
{
    const size_t n = (size_t)n_sequences * (size_t)each;
    const size_t bytes = n * (size_t)spec->n_vocab * sizeof(float);
    struct batch_row *rows = calloc(n, sizeof *rows);
    float *logits = malloc(bytes);
    uint64_t times[TIMED_STEPS];
    enum status status = rows && logits ? STATUS_OK : err_no_memory(e, "the steps", bytes);
    *ns = 0;
    for (size_t i = 0; i < n && rows; i++)
        rows[i] = (struct batch_row){
            .sequence = (int)i / each, .position = depth + (int)i % each, .wants_logits = true};
    for (int i = 0; i < TIMED_STEPS && status == STATUS_OK; i++) {
        for (int q = 0; q < n_sequences; q++) {
            session_rewind(s, q, depth);
            session_fill(s, q, depth, (uint64_t)q);
        }
        const uint64_t start = clock_ns();
        status = session_step(s, rows, (int)n, logits, e);
        times[i] = clock_ns() - start;
    }
    free(rows);
    free(logits);
    if (status != STATUS_OK)
        return status;
    stats_sort(times, TIMED_STEPS);
    *ns = stats_percentile(times, TIMED_STEPS, 0.5);
    return STATUS_OK;
}

/* Of a way whose row has its counts. */
static enum status predict(const struct draft_bench_spec *spec, const struct drafter *d, int depth,
                           uint64_t n_steps, struct draft_row *row, struct err *e)
{
    const double each = (double)row->drafted / (double)n_steps;
    const int few = (int)each, room = session_cap(spec->session) - depth - few - 2;
    uint64_t one, low, high, draft = 0;
    if (room < 0)
        depth += room;
    if (d->session && depth >= session_cap(d->session))
        depth = session_cap(d->session) - 1;
    TRY(time_step(spec->session, spec->batch, depth, 1, spec, &one, e));
    TRY(time_step(spec->session, spec->batch, depth, 1 + few, spec, &low, e));
    TRY(time_step(spec->session, spec->batch, depth, 2 + few, spec, &high, e));
    if (d->session)
        TRY(time_step(d->session, spec->batch, depth, 1, spec, &draft, e));
    const double verify = (double)low + (each - few) * ((double)high - (double)low);
    row->predicted_speedup = row->tokens_per_step * (double)one / (verify + each * (double)draft);
    return STATUS_OK;
}

/* --- all ways -------------------------------------------------------------------------------- */

static int order_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, order_doubles);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* What all turns of a way came to. */
struct sums {
    uint64_t n_steps, n_decoded, decode_ns, draft_ns;
};

static void add_turn(const struct turn *t, struct draft_row *row, struct sums *sums)
{
    row->drafted += t->n_drafted;
    row->accepted += t->n_right;
    sums->n_steps += t->times.n_steps;
    sums->n_decoded += t->times.n_decoded;
    sums->decode_ns += t->times.decode_ns;
    sums->draft_ns += t->draft_ns;
}

/* All repeats, of which *n are done: rates [n_ways, repeats]. */
static enum status run_repeats(const struct draft_bench_spec *spec, double *rates,
                               struct draft_row *rows, struct sums *sums, int *n, struct err *e)
{
    const uint64_t all = (uint64_t)spec->repeats * (uint64_t)spec->n_ways;
    uint64_t done = 0;
    struct turn warm_up = {.spec = spec};
    TRY(run_turn(&warm_up, &spec->ways[0], e));
    for (int r = 0; r < spec->repeats; *n = ++r) {
        uint64_t expected = 0;
        for (int w = 0; w < spec->n_ways; w++) {
            struct turn t = {.spec = spec, .repeat = r};
            TRY(run_turn(&t, &spec->ways[w], e));
            if (w > 0 && t.hash != expected)
                return err_set(e, STATUS_FAILED, "%s: another text than without a draft",
                               spec->ways[w].name);
            expected = t.hash;
            rates[w * spec->repeats + r] =
                (double)t.times.n_decoded * 1e9 / (double)(t.times.decode_ns + 1);
            add_turn(&t, &rows[w], &sums[w]);
            spec->progress(spec->arg, ++done, all);
        }
    }
    return STATUS_OK;
}

/* Of the first n repeats. */
static void summarise(const struct draft_bench_spec *spec, int way, double *rates, int n,
                      const struct sums *sums, struct draft_row *row)
{
    double *mine = rates + way * spec->repeats;
    double *ratios = rates + spec->n_ways * spec->repeats; /* behind them all */
    for (int r = 0; r < n; r++)
        ratios[r] = mine[r] / rates[r];
    row->repeats = n;
    row->speedup = median(ratios, n);
    row->speedup_min = ratios[0];
    row->speedup_max = ratios[n - 1];
    row->share = row->drafted ? (double)row->accepted / (double)row->drafted : (double)NAN;
    row->tokens_per_step = (double)sums->n_decoded / (double)sums->n_steps;
    row->draft_seconds = (double)sums->draft_ns / 1e9;
    row->target_seconds = (double)(sums->decode_ns - sums->draft_ns) / 1e9;
    row->predicted_speedup = (double)NAN;
}

static enum status measure(const struct draft_bench_spec *spec, double *rates, struct sums *sums,
                           struct draft_row *rows, struct err *e)
{
    int n = 0;
    const enum status s = run_repeats(spec, rates, rows, sums, &n, e);
    if (n == 0 || (s != STATUS_OK && s != STATUS_INTERRUPTED))
        return s;
    for (int w = 0; w < spec->n_ways; w++)
        summarise(spec, w, rates, n, &sums[w], &rows[w]);
    for (int w = 0; w < spec->n_ways; w++) /* ratios need them in their order until here */
        rows[w].tokens_per_s = median(rates + w * spec->repeats, n);
    for (int w = 1; w < spec->n_ways && s == STATUS_OK; w++)
        TRY(predict(spec, spec->ways[w].drafter, spec->prompt + spec->n / 2, sums[w].n_steps,
                    &rows[w], e));
    return s;
}

enum status draft_bench_run(const struct draft_bench_spec *spec, struct draft_row *rows,
                            struct err *e)
{
    const size_t n_rates = ((size_t)spec->n_ways + 1) * (size_t)spec->repeats;
    double *rates = calloc(n_rates, sizeof *rates);
    struct sums *sums = calloc((size_t)spec->n_ways, sizeof *sums);
    for (int w = 0; w < spec->n_ways; w++)
        rows[w] = (struct draft_row){.draft = spec->ways[w].name};
    const enum status s = rates && sums ? measure(spec, rates, sums, rows, e)
                                        : err_no_memory(e, "the rates", n_rates * sizeof *rates);
    free(rates);
    free(sums);
    return s;
}
