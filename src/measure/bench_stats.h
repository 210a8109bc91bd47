/*
 * bench_stats - from samples to a row's figures (private).
 */
#ifndef DECODE_MEASURE_BENCH_STATS_H
#define DECODE_MEASURE_BENCH_STATS_H

#include "measure/bench.h"

/* Fills in the row's percentiles, rates and spread from its samples, `n` a repeat; `sorted`
 * [samples] is scratch. */
void bench_summarise(struct bench_row *row, int n, uint64_t *sorted);

/* Fills in the speed-ups of all rows, which have their predictions, over MHA, which has n_heads K/V
 * heads. */
void bench_compare(struct bench *b, int n_heads);

#endif
