/*
 * score - the likeliest of many tokens.
 */
#ifndef DECODE_MEASURE_SCORE_H
#define DECODE_MEASURE_SCORE_H

struct token_score {
    int id;
    double logprob; /* natural logarithm */
};

/* The k <= n most likely tokens to out [k], the most likely first, equal ones by ascending id;
 * log_sum is what logits_log_sum gives. Or the largest of any numbers, with 0 for log_sum.
 * Allocates nothing; O(n log k). */
void score_top(const float *logits, int n, double log_sum, int k, struct token_score *out);

#endif
