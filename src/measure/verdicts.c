#include "measure/verdicts.h"

#include <math.h>

#include "base/figures.h"
#include "base/times.h"

/* --- a row's samples ------------------------------------------------------------------------- */

static void sort_copy(uint64_t *out, const uint64_t *times, int n)
{
    memcpy(out, times, n * sizeof *out);
    stats_sort(out, n);
}

/* Fills in what follows from the row's own samples; `sorted` [samples] is scratch. */
static void summarise_row(struct bench_row *row, uint64_t *sorted)
{
    const int samples = row->samples, n = row->n;
    double sum = 0, low = NO_FIGURE, high = NO_FIGURE; /* fmin and fmax ignore it */
    for (int r = 0; r < row->repeats; r++) {
        sort_copy(sorted, row->times_ns + r * n, n);
        row->medians_us[r] = stats_percentile(sorted, n, 0.5) / 1e3;
        low = fmin(low, row->medians_us[r]);
        high = fmax(high, row->medians_us[r]);
    }
    row->spread = row->repeats > 1 ? (high - low) / low : 0;
    sort_copy(sorted, row->times_ns, samples);
    for (int i = 0; i < samples; i++)
        sum += sorted[i];
    static const double shares[] = {0.1, 0.5, 0.9, 0.99, 1};
    double *const us[] = {&row->p10_us, &row->p50_us, &row->p90_us, &row->p99_us, &row->max_us};
    for (int i = 0; i < 5; i++)
        *us[i] = (double)stats_percentile(sorted, (size_t)samples, shares[i]) / 1e3;
    row->mean_us = sum / samples / 1e3;
    row->us_per_token = row->p50_us / row->plan.batch;
    row->tokens_per_s = row->plan.batch * 1e6 / row->mean_us;
    row->gb_per_s = row->plan.step_bytes / row->p50_us / 1e3;
}

void bench_summarise(struct bench *b)
{
    b->cpu_share = 0;
    for (int i = 0; i < b->n_rows; i++) {
        summarise_row(&b->rows[i], b->sorted);
        b->cpu_share += b->rows[i].cpu_share / b->n_rows;
    }
}

/* --- limits ---------------------------------------------------------------------------------- */

/* The part of what the limits allow that a row's prefill reaches; NaN: it was not measured. */
static double prefill_share(const struct bench *b, const struct bench_row *row,
                            const struct roofline *limits)
{
    if (!(row->prefill_tokens_per_s > 0))
        return NO_FIGURE;
    const struct inspect_variant *v = &row->model->variant;
    return row->prefill_tokens_per_s /
           cost_prompt(&v->shape, &v->weights, b->spec->prompt, limits).tokens_per_s;
}

/* Raises the limits to what a row has reached. */
static void raise_limits(const struct bench *b, const struct bench_row *row)
{
    struct machine *m = &b->machines[row->at[BENCH_THREADS]];
    const uint64_t bytes = row->plan.step_bytes;
    const struct cost_flops *f = &row->plan.each;
    const double steps_per_s = 1e6 / row->p50_us, rows_per_s = row->plan.batch * steps_per_s;
    machine_raise(m, bytes,
                  &(struct roofline){bytes * steps_per_s,
                                     (f->floats + f->attention + f->weights) * rows_per_s,
                                     f->quants * rows_per_s});
    /* Products and attention may still take longer, one after the other, and so may a prompt. */
    const struct roofline l = machine_limits(m, bytes);
    struct cost_plan plan = row->plan;
    cost_predict(&plan, &l);
    const double over = fmax(plan.predicted.us / row->p50_us, prefill_share(b, row, &l));
    if (over > 1)
        machine_raise(m, bytes,
                      &(struct roofline){l.bytes_per_s * over, l.fma_flops_per_s * over,
                                         l.dot_flops_per_s * over});
}

void bench_predict(struct bench *b)
{
    for (int i = 0; i < b->n_rows; i++)
        raise_limits(b, &b->rows[i]);
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        const struct machine *m = &b->machines[row->at[BENCH_THREADS]];
        const struct roofline limits = machine_limits(m, row->plan.step_bytes);
        cost_predict(&row->plan, &limits);
        row->share_of_limit = row->plan.predicted.us / row->p50_us;
        row->prefill_share = prefill_share(b, row, &limits);
    }
}

/* --- rows beside each other ------------------------------------------------------------------ */

/* How much a row's median may differ in another run, whose memory lies in other places. */
#define OTHER_RUN 1.02
/* Where a row's mean is so many times its median, most of the time is in steps far above the
 * median. */
#define MEAN_OVER_MEDIAN 2

/* Whether the head of verdicts.h tells the rows apart; it needs two repeats of each. */
static bool told_apart(const struct bench_row *faster, const struct bench_row *slower)
{
    const int repeats = MIN(faster->repeats, slower->repeats);
    bool apart = repeats > 1 && faster->mean_us < MEAN_OVER_MEDIAN * faster->p50_us &&
                 slower->mean_us < MEAN_OVER_MEDIAN * slower->p50_us;
    for (int r = 0; r < repeats; r++)
        apart &= slower->medians_us[r] * slower->cpu_share > faster->medians_us[r] * OTHER_RUN;
    return apart;
}

/* Other work disturbed a row, or the limits, if the threads had the processors for less than this
 * share of their time. */
#define LEAST_SHARE 0.65
/* A row is noisy if the medians of its repeats differ by more than this share. */
#define NOISY 0.15
/* A mean further from the median than this share of it says that some steps took much longer. */
#define UNEVEN 0.1

/* Whether other work, or steps of very different length, leave its times without a meaning. */
static bool is_disturbed(const struct bench_row *row)
{
    return row->cpu_share < LEAST_SHARE || row->spread > NOISY ||
           fabs(row->mean_us / row->p50_us - 1) > UNEVEN;
}

/* The row of the base at the same setting; NULL: there is none. */
static const struct bench_row *base_of(const struct bench *b, const struct bench_row *row)
{
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *base = &b->rows[i];
        bool same = base->at[BENCH_SUBJECTS] == 0 &&
                    base->plan.n_kv_heads == b->spec->subjects[0].config.n_kv_heads;
        for (int a = 0; a < BENCH_AXES; a++)
            same &= a == BENCH_VARIANTS || a == BENCH_SUBJECTS || base->at[a] == row->at[a];
        if (same)
            return base;
    }
    return NULL;
}

void bench_compare(struct bench *b)
{
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        const struct bench_row *base = base_of(b, row);
        row->speedup = row->predicted_speedup = NO_FIGURE;
        row->like_base = row->unsure = false;
        if (!base)
            continue;
        /* Of one sequence bytes are the limit, and need no measurement. */
        row->predicted_speedup = row->plan.batch == 1
                                     ? base->plan.step_bytes / (double)row->plan.step_bytes
                                     : base->plan.predicted.us / row->plan.predicted.us;
        row->speedup = base->p50_us / row->p50_us;
        const bool apart = row == base || told_apart(row, base) || told_apart(base, row);
        row->like_base = !apart && MIN(row->repeats, base->repeats) > 1;
        row->unsure = !apart && (is_disturbed(row) || is_disturbed(base));
    }
}

static bool same_place(const struct bench_row *a, const struct bench_row *b)
{
    return a->plan.depth == b->plan.depth && a->plan.batch == b->plan.batch;
}

/* A run with a smaller share of its processors does not tell which row is the fastest. */
#define LEAST_SHARE_OF_RUN 0.5

bool bench_may_choose(const struct bench *b)
{
    return b->cpu_share >= LEAST_SHARE_OF_RUN;
}

void bench_judge(struct bench *b)
{
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        const struct bench_row *fastest = row;
        bool tied = false; /* with the fastest one, or as that with another */
        for (int k = 0; k < b->n_rows; k++) {
            const struct bench_row *other = &b->rows[k];
            if (same_place(row, other) && other->p50_us < fastest->p50_us)
                fastest = other;
        }
        for (int k = 0; k < b->n_rows; k++) {
            const struct bench_row *other = &b->rows[k];
            if (other != fastest && same_place(row, other) && (row == fastest || row == other))
                tied |= !told_apart(fastest, other);
        }
        row->verdict = tied ? BENCH_TOSS_UP : row == fastest ? BENCH_FASTEST : BENCH_SLOWER;
        if (row->repeats < 2 || fastest->repeats < 2 || !bench_may_choose(b))
            row->verdict = BENCH_UNJUDGED;
    }
}

/* --- what to take on a text ------------------------------------------------------------------- */

/* Lists the limits that a row exceeds, and by how much together. A limit of 0 is none. */
static void compare_with_limits(struct bench_row *row, const struct bench_limits *l)
{
    static const char *const names[BENCH_LIMITS] = {"loss", "time", "cache"};
    const double of[BENCH_LIMITS] = {row->loss.lost, row->p50_us, row->plan.allocated_bytes};
    row->beyond[0] = 0;
    row->excess = 0;
    for (int i = 0; i < BENCH_LIMITS; i++)
        if (l->at[i] > 0 && !(of[i] <= l->at[i])) {
            chars_append(row->beyond, "%s%s", row->beyond[0] ? ", " : "", names[i]);
            row->excess += of[i] / l->at[i] - 1;
        }
}

/* Whether x is of y's depth and batch and has a smaller cache, or one as small and shorter steps;
 * where times are not to be trusted, one as small and less of a loss. */
static bool is_better(const struct bench_row *x, const struct bench_row *y, bool timed)
{
    const uint64_t x_bytes = x->plan.allocated_bytes, y_bytes = y->plan.allocated_bytes;
    const bool first = timed ? x->p50_us < y->p50_us : x->loss.lost < y->loss.lost;
    return same_place(x, y) && (x_bytes < y_bytes || (x_bytes == y_bytes && first));
}

void bench_choose(struct bench *b, const struct bench_limits *limits)
{
    const bool timed = bench_may_choose(b);
    bool limited = false;
    for (int i = 0; i < BENCH_LIMITS; i++)
        limited |= limits->at[i] > 0;
    for (int i = 0; i < b->n_rows; i++)
        compare_with_limits(&b->rows[i], limits);
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        row->chosen = limited && (timed || limits->at[BENCH_US] <= 0) && !row->beyond[0];
        for (int k = 0; k < b->n_rows; k++)
            row->chosen &= b->rows[k].beyond[0] || !is_better(&b->rows[k], row, timed);
    }
}

const struct bench_row *bench_nearest(const struct bench *b)
{
    const struct bench_row *nearest = b->rows;
    for (int i = 1; i < b->n_rows; i++)
        if (b->rows[i].excess < nearest->excess)
            nearest = &b->rows[i];
    return nearest;
}

/* --- all of it -------------------------------------------------------------------------------- */

static void write_note(const struct bench *b, struct bench_row *row)
{
    const double limits_share = b->machines[row->at[BENCH_THREADS]].cpu_share;
    row->note[0] = 0;
    if (row->repeats < b->spec->repeats)
        chars_append(row->note, ", %d of %d repeats", row->repeats, b->spec->repeats);
    if (row->cpu_share < LEAST_SHARE)
        chars_append(row->note, ", got %.0f%% of its processors", row->cpu_share * 100);
    if (row->spread > NOISY)
        chars_append(row->note, ", noisy: %.0f%%", row->spread * 100);
    if (fabs(row->mean_us / row->p50_us - 1) > UNEVEN)
        chars_append(row->note, ", mean %.2f of p50", row->mean_us / row->p50_us);
    if (limits_share < LEAST_SHARE)
        chars_append(row->note, ", limits measured with %.0f%%", limits_share * 100);
    if (row->note[0])
        memmove(row->note, row->note + 2, strlen(row->note + 2) + 1);
}

void bench_conclude(struct bench *b)
{
    bench_summarise(b);
    bench_predict(b);
    bench_compare(b);
    bench_judge(b);
    for (int i = 0; i < b->n_rows; i++)
        write_note(b, &b->rows[i]);
}
