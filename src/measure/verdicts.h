/*
 * verdicts - what the samples of a benchmark say: percentiles, limits, speed-ups, and which rows
 * can be told apart.
 *
 * Two rows are told apart if one is faster in every repeat, by more than a row differs from itself
 * in another run, also after the time that other programs took from the slower one is given back to
 * it; and if the mean of neither is so far above its median that the median says little of a step.
 */
#pragma once

#include "measure/bench.h"

/* Fills in all that follows from the samples that bench_run has measured: calls the four functions
 * below, one after the other. */
void bench_conclude(struct bench *b);

/* Fills in what follows from each row's own samples, spec.n a repeat, and b.cpu_share. */
void bench_summarise(struct bench *b);

/* Fills in the limits of all rows, from those measured and the rows' medians, and each row's
 * prediction. */
void bench_predict(struct bench *b);

/* Fills in the speed-ups of all rows, which have their predictions, over the base: the first
 * subject with its own number of K/V heads. */
void bench_compare(struct bench *b);

/* Fills in the verdicts of all rows. */
void bench_judge(struct bench *b);

/* The most that a row may lose, take and hold; 0: any. */
struct bench_limits {
    double lost, us;    /* bits per byte, microseconds of a step */
    size_t cache_bytes; /* that all caches take */
};

/* Whether a row may be called the fastest or the best: not of a run that had less than half of its
 * processors. */
bool bench_may_choose(const struct bench *b);

/* Fills in which limits rows exceed, whose losses are known; and chooses, if there is a limit and
 * bench_may_choose, the smallest cache within all of them at each depth and batch, of several the
 * fastest. */
void bench_choose(struct bench *b, const struct bench_limits *limits);
