/*
 * logits - softmax arithmetic on rows of logits, in double.
 *
 * Sums run in a fixed number of interleaved partial sums and exp() is made of additions and
 * multiplications, so that a figure does not depend on the instruction set, and on the libm only
 * by its log().
 * Nothing here allocates; any threads may call it at once.
 */
#ifndef DECODE_ENGINE_LOGITS_H
#define DECODE_ENGINE_LOGITS_H

#include "base/status.h"

/* STATUS_FAILED naming the first of n logits that is NaN or infinite. */
enum status logits_check(const float *logits, int n, struct err *e);

/* The lowest id of the largest of n >= 1 logits, none of them NaN. */
int logits_argmax(const float *logits, int n);

/*
 * *log_sum = log sum_i exp(logits[i]) over n >= 1 logits: token i has the log-probability
 * logits[i] - log_sum, at most 0. Fails as logits_check does.
 */
enum status logits_log_sum(const float *logits, int n, double *log_sum, struct err *e);

/*
 * The Kullback-Leibler divergence, in nats, of the distribution q from the reference p:
 * sum_i p_i log(p_i / q_i) with p = softmax(p_logits), q = softmax(q_logits), both finite and
 * with the log_sum that logits_log_sum gives. At least 0; exactly 0 for equal rows.
 * (Kullback and Leibler 1951)
 */
double logits_divergence(const float *p_logits, double p_log_sum, const float *q_logits,
                         double q_log_sum, int n);

/* x[i] = e^x[i] for n numbers <= 0 (-INFINITY too), within 2 ulp; 0 below the normal numbers,
 * and exactly 1 for 0. */
void logits_exp(double *x, int n);

/* -log(u) for 2^-60 <= u <= 1, within 2 ulp. */
double logits_minus_log(double u);

#endif
