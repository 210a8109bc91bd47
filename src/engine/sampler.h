/*
 * sampler - choose the next token from logits; and softmax arithmetic on them.
 *
 * The order is fixed: repetition penalty, temperature, top-k, top-p, min-p, then one draw from
 * what is left, renormalised. (Hugging Face's and llama2.c's order; llama.cpp by default applies
 * the temperature last.) Each filter sees the probabilities that the one before left. temperature 0
 * is greedy: the penalised logits' first maximum.
 *
 * A draw takes one uniform number in [0, 1) off the sequence's stream and adds up the probabilities
 * that are left, sorted where a filter sorted them, else by id: the token is the first with which
 * the sum is more than the number.
 *
 * Equal parameters, logits and history give equal picks on every machine. One sampler serves many
 * sequences, each with its random stream and recent tokens. The memory of a pick belongs to a
 * thread, so different sequences may be picked for at once. Picking allocates nothing.
 */
#pragma once

#include "base/rng.h"
#include "base/status.h"

/* --- logits ----------------------------------------------------------------------------------- */

/* Sums are a fixed number of interleaved partial sums, in double, of compute/elementary's
 * exponential: no figure depends on the instruction set, and only by log() on the libm. */

/* Checks that n logits are finite. STATUS_FAILED names the first that is not. */
enum status logits_check(const float *logits, int n, struct err *e);

/* Returns the index of the largest of n >= 1 logits, the lowest of equal ones. None may be NaN. */
int logits_argmax(const float *logits, int n);

/* *log_sum = log sum_i exp(logits[i]) over n >= 1 logits: token i has the log-probability
 * logits[i] - log_sum, at most 0. Fails as logits_check does. */
enum status logits_log_sum(const float *logits, int n, double *log_sum, struct err *e);

/* Returns the Kullback-Leibler divergence, in nats, of the distribution q from the reference p:
 * sum_i p_i log(p_i / q_i) with p = softmax(p_logits), q = softmax(q_logits), both finite, and the
 * log_sum that logits_log_sum gives of each. At least 0; exactly 0 for equal rows. (Kullback and
 * Leibler 1951) */
double logits_divergence(const float *p_logits, double p_log_sum, const float *q_logits,
                         double q_log_sum, int n);

struct token_score {
    int id;
    double logprob; /* natural logarithm */
};

/* Writes the k <= n likeliest tokens to out [k], the likeliest first, equal ones by ascending id,
 * in O(n log k). log_sum is what logits_log_sum gives, or 0 for the largest of any numbers but NaN;
 * keys [k] is scratch memory. */
void logits_top(const float *logits, int n, double log_sum, int k, uint64_t *keys,
                struct token_score *out);

/* --- samplers --------------------------------------------------------------------------------- */

struct sampler_params {
    double temperature; /* >= 0; 0 is greedy */
    int top_k;          /* keep the k most likely; 0 keeps all */
    double top_p;       /* 0 to 1: keep the smallest set whose probability reaches it; 1 is all */
    double min_p;       /* 0 to 1: drop tokens below min_p times the most likely; 0 is all */
    double repeat_penalty; /* > 0; 1 is none: positive logits of recent tokens are divided by it,
                              negative ones multiplied (Keskar et al. 2019, CTRL), once however
                              often the token occurs */
    int repeat_last_n;     /* how many recent tokens are penalised; 0 is none, -1 is all */
};

/* Sizes, each at least 1. */
struct sampler_sizes {
    int n_vocab, n_ctx;
    int n_sequences; /* numbered from 0 */
    int n_threads;   /* threads that pick at once */
};

struct sampler;

/* Takes all memory: 24 bytes for each of n_vocab entries for each thread, and a window of at most
 * n_ctx tokens for each sequence. A sequence is as after sampler_reset(s, sequence, 0, 0).
 * STATUS_NO_MEMORY; sampler_free is due in every case. */
enum status sampler_create(const struct sampler_params *params, const struct sampler_sizes *sizes,
                           struct sampler **out, struct err *e);
void sampler_free(struct sampler *s); /* NULL is legal */

/* Starts a new text as this sequence: forgets its recent tokens and starts the random stream.
 * Streams of one seed are independent. */
void sampler_reset(struct sampler *s, int sequence, uint64_t seed, uint64_t stream);

/* Tells the sampler that `token` is in the sequence (prompt tokens and picked ones alike); it is
 * in [0, n_vocab) (asserted). */
void sampler_accept(struct sampler *s, int sequence, int token);

/* Picks the sequence's next token from logits [n_vocab], with the memory of the calling thread,
 * whose number is `thread`. Of equal logits the lower id ranks higher. Fails as logits_check does,
 * and then leaves the sequence as it was. */
enum status sampler_pick(struct sampler *s, int sequence, int thread, const float *logits,
                         int *token, struct err *e);
