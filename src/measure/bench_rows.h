/*
 * bench_rows - what the files of bench know of a row (private).
 */
#ifndef DECODE_MEASURE_BENCH_ROWS_H
#define DECODE_MEASURE_BENCH_ROWS_H

#include "compute/pool.h"
#include "measure/bench.h"

/* Positions that a sequence of the row needs: the timed token's, and the prompt's. */
int bench_row_context(const struct bench_spec *spec, const struct bench_row *row);

int bench_largest_batch(const struct bench_spec *spec);

/* Measures the machine for the rows' working sets, with `pools` [spec.threads.n].
 * STATUS_NO_MEMORY. */
enum status bench_measure_limits(const struct bench_spec *spec, struct bench *b,
                                 struct pool *const *pools, struct err *e);

/* From the limits as measured, and the rows' medians, to those of all rows, and to each row's
 * prediction. */
void bench_predict(struct bench *b);

#endif
