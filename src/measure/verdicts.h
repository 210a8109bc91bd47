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

/* Fills in all that follows from the samples that bench_run has measured, by the four stages below
 * and each row's note. */
void bench_conclude(struct bench *b);

void bench_summarise(struct bench *b); /* what each row's own samples say; b.cpu_share */
void bench_predict(struct bench *b);   /* limits, raised to what rows have reached; predictions */
void bench_compare(struct bench *b);   /* speed-ups over the first subject as it is */
void bench_judge(struct bench *b);     /* verdicts */

/* The most that a row may lose, take and hold; 0: any. */
enum { BENCH_LOST, BENCH_US, BENCH_CACHE, BENCH_LIMITS };
struct bench_limits {
    double at[BENCH_LIMITS]; /* bits per byte, microseconds of a step, bytes of all caches */
};

/* Whether the times tell which row is the fastest: not those of a run that had less than half of
 * its processors. */
bool bench_may_choose(const struct bench *b);

/* Fills in which limits rows exceed, whose losses are known; and chooses, if there is a limit, the
 * smallest cache within all of them at each depth and batch, of several the fastest. Where
 * bench_may_choose says no, a limit of time chooses none, and of several the least loss. */
void bench_choose(struct bench *b, const struct bench_limits *limits);

/* The row that exceeds the limits by the least, in shares of them; behind bench_choose. */
const struct bench_row *bench_nearest(const struct bench *b);
