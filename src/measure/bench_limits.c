/*
 * The limits of the machine, and what they let each row of a benchmark reach.
 */
#include "measure/bench_rows.h"

#include <math.h>

/* The limits are measured no longer than the samples take on a slow machine, so that a quick look
 * stays one; but for a moment at least for each working set. */
#define SLOW_BYTES_PER_S 1e9
#define LEAST_SECONDS    0.005

static uint64_t row_bytes(const struct bench_row *row)
{
    return cost_step_bytes(&row->cost, row->batch);
}

/* How long to measure with one of the pools, whose rows' working sets are asked for. */
static double seconds_of_pool(const struct bench_spec *spec, const struct bench *b, int pool)
{
    double slow = 0;
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].pool == pool)
            slow += (double)spec->n * spec->repeats * (double)row_bytes(&b->rows[i]);
    const double least = LEAST_SECONDS * machine_n_wanted(&b->machines[pool]);
    return fmin(spec->roofline_seconds / b->n_machines, fmax(least, slow / SLOW_BYTES_PER_S));
}

enum status bench_measure_limits(const struct bench_spec *spec, struct bench *b,
                                 struct pool *const *pools, struct err *e)
{
    for (int i = 0; i < b->n_rows; i++)
        machine_want(&b->machines[b->rows[i].pool], row_bytes(&b->rows[i]));
    for (int i = 0; i < b->n_machines; i++)
        TRY(machine_measure(&b->machines[i], spec->kernels, pools[i], seconds_of_pool(spec, b, i),
                            e));
    return STATUS_OK;
}

/* What a row reached is no more than the limits: a disturbance while they were measured does no
 * harm. */
static void raise_to_reached(struct machine *m, const struct bench_row *row)
{
    const struct cost_flops *f = &row->cost.flops;
    const double steps_per_s = 1e6 / row->p50_us, rows_per_s = row->batch * steps_per_s;
    machine_raise(m, row_bytes(row),
                  &(struct roofline){(double)row_bytes(row) * steps_per_s,
                                     (double)(f->floats + f->attention) * rows_per_s,
                                     (double)f->quants * rows_per_s});
    /* Products and attention may still take longer, one after the other. */
    const struct roofline l = machine_limits(m, row_bytes(row));
    const double over = cost_step_us(&row->cost, row->batch, &l) / row->p50_us;
    if (over > 1)
        machine_raise(m, row_bytes(row),
                      &(struct roofline){l.bytes_per_s * over, l.fma_flops_per_s * over,
                                         l.dot_flops_per_s * over});
}

static void predict_row(struct bench_row *row, const struct machine *m)
{
    row->limits = machine_limits(m, row_bytes(row));
    row->predicted_us = cost_step_us(&row->cost, row->batch, &row->limits);
    row->limited_by = cost_step_longest(&row->cost, row->batch, &row->limits);
    row->limit_tokens_per_s = row->batch * 1e6 / row->predicted_us;
    if (row->samples)
        row->share_of_limit = row->predicted_us / row->p50_us;
}

void bench_predict(struct bench *b)
{
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i].samples)
            raise_to_reached(&b->machines[b->rows[i].pool], &b->rows[i]);
    for (int i = 0; i < b->n_machines; i++)
        machine_settle(&b->machines[i]);
    for (int i = 0; i < b->n_rows; i++)
        predict_row(&b->rows[i], &b->machines[b->rows[i].pool]);
}
