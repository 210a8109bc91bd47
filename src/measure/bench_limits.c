/*
 * The limits of the machine, and what they let each row of a benchmark reach.
 */
#include "measure/bench_rows.h"

#include <math.h>

/* The parts of the time for the limits that go to each of the two peaks. */
#define PEAK_SHARE 0.05
/* A row's limits are measured no longer than its samples take on a slow machine, so that a quick
 * look stays one; but for a few samples at least. */
#define SLOW_BYTES_PER_S 1e9
#define LEAST_SECONDS    0.005

enum status bench_measure_limits(const struct bench_spec *spec, struct bench *b,
                                 struct pool *const *pools, struct err *e)
{
    const double samples = (double)spec->n * (double)spec->repeats;
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        struct pool *pool = pools[row->pool];
        const uint64_t bytes = cost_step_bytes(&row->cost, row->batch);
        const double slow = samples * (double)bytes / SLOW_BYTES_PER_S;
        const double seconds = fmin(spec->roofline_seconds / b->n_rows, fmax(LEAST_SECONDS, slow));
        row->limits.fma_flops_per_s = roofline_fma(spec->kernels, pool, seconds * PEAK_SHARE);
        row->limits.dot_flops_per_s = roofline_dot(spec->kernels, pool, seconds * PEAK_SHARE);
        TRY(roofline_read(spec->kernels, pool, (size_t)bytes, seconds * (1 - 2 * PEAK_SHARE),
                          &row->limits.bytes_per_s, e));
    }
    return STATUS_OK;
}

static void raise_limit(double *limit, double to)
{
    *limit = to > *limit ? to : *limit;
}

/* What a row reached is no more than the limits: a disturbance while they were measured does no
 * harm. */
static void raise_to_reached(struct bench_row *row)
{
    struct roofline *l = &row->limits;
    const struct cost_flops *f = &row->cost.flops;
    const double steps_per_s = 1e6 / row->p50_us, rows_per_s = row->batch * steps_per_s;
    raise_limit(&l->bytes_per_s, (double)cost_step_bytes(&row->cost, row->batch) * steps_per_s);
    raise_limit(&l->fma_flops_per_s, (double)(f->floats + f->attention) * rows_per_s);
    raise_limit(&l->dot_flops_per_s, (double)f->quants * rows_per_s);
    /* Products and attention may still take longer, one after the other. */
    const double over = cost_step_us(&row->cost, row->batch, l) / row->p50_us;
    if (over > 1) {
        l->bytes_per_s *= over;
        l->fma_flops_per_s *= over;
        l->dot_flops_per_s *= over;
    }
}

/* The best of a row's own limits and all that cannot be better: with as many threads, and, for the
 * bandwidth, of at least as many bytes. */
static void raise_to_others(const struct bench *b, struct bench_row *row)
{
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *other = &b->rows[i];
        if (other->threads != row->threads)
            continue;
        raise_limit(&row->limits.fma_flops_per_s, other->limits.fma_flops_per_s);
        raise_limit(&row->limits.dot_flops_per_s, other->limits.dot_flops_per_s);
        if (cost_step_bytes(&other->cost, other->batch) >= cost_step_bytes(&row->cost, row->batch))
            raise_limit(&row->limits.bytes_per_s, other->limits.bytes_per_s);
    }
}

void bench_predict(struct bench *b)
{
    uint64_t largest = 0;
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].samples)
            raise_to_reached(&b->rows[i]);
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_row *row = &b->rows[i];
        raise_to_others(b, row);
        row->predicted_us = cost_step_us(&row->cost, row->batch, &row->limits);
        row->limited_by = cost_step_longest(&row->cost, row->batch, &row->limits);
        row->limit_tokens_per_s = row->batch * 1e6 / row->predicted_us;
        if (row->samples)
            row->share_of_limit = row->predicted_us / row->p50_us;
        const uint64_t bytes = cost_step_bytes(&row->cost, row->batch);
        if (row->threads == b->rows[0].threads && bytes > largest) {
            largest = bytes;
            b->limits = row->limits;
        }
    }
}
