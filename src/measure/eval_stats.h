/*
 * eval_stats - from single tokens to the figures of a text (private).
 */
#ifndef DECODE_MEASURE_EVAL_STATS_H
#define DECODE_MEASURE_EVAL_STATS_H

#include "measure/eval.h"

/* What is known of each scored token, in the order of the text; the last three are NULL without
 * another model. */
struct eval_tokens {
    double *nll;
    double *other_nll;
    double *kl;
    unsigned char *same_top; /* whether both models' most likely tokens are one */
};

/* The standard error of the mean of n values, those of neighbours: see nll_stderr. */
double eval_mean_error(const double *x, uint64_t n, double mean);

/* Fills in all of the result but tokens, bytes and seconds, of which it reads the first two. The
 * order of the divergences is lost. */
void eval_summarise(struct eval_tokens *t, struct eval_result *r);

#endif
