/*
 * score - log-probabilities of tokens under a model.
 *
 * Softmax sums are in double and in a fixed order (see engine/sampler.h), so that figures do not
 * depend on how the tokens were fed.
 */
#ifndef DECODE_MEASURE_SCORE_H
#define DECODE_MEASURE_SCORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/session.h"

struct token_score {
    int id;
    double logprob; /* natural logarithm */
};

/* The k <= n most likely tokens to out [k], the most likely first, equal ones by ascending id;
 * log_sum is what logits_log_sum gives. Or the largest of any numbers, with 0 for log_sum.
 * Allocates nothing; O(n log k). */
void score_top(const float *logits, int n, double log_sum, int k, struct token_score *out);

/* What is known about one token of the sequence. */
struct score_row {
    int position;
    int32_t id;
    bool predicted;                /* false for the first token: nothing comes before it */
    double logprob;                /* of id, given the tokens before; 0 if not predicted */
    const struct token_score *top; /* [n_top] the model's favourites for this position */
    int n_top;                     /* 0 if not predicted */
    const float *logits;           /* [n_vocab] after this token: they predict the next one */
};

/* Called once a token, in order; the row is valid during the call. Another status than STATUS_OK
 * ends the run and is returned. */
typedef enum status score_visit(void *arg, const struct score_row *row, struct err *e);

struct score_spec {
    int n_vocab;           /* of the session's model */
    const int32_t *tokens; /* [n_tokens] of the vocabulary (asserted), at least one */
    int n_tokens;
    int n_top; /* 0 to n_vocab: the length of the rows' lists */
    score_visit *visit;
    void *arg;
};

/*
 * Feeds the tokens to an empty session, block by block, and visits each. Holds the logits of one
 * block at a time. The failures of session_feed; STATUS_NO_MEMORY; STATUS_FAILED for logits that
 * are not finite.
 */
enum status score_tokens(struct session *s, const struct score_spec *spec, struct err *e);

#endif
