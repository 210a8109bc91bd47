/*
 * eval - how well a model predicts a token sequence, and how far it is from another model.
 *
 * Windows of `ctx` input tokens start every `stride` tokens, each from an empty cache. The first
 * scores the tokens after all its inputs, a later one only its last `stride`, which no window
 * before it has scored; the last window ends with the sequence. So every token but the first is
 * scored exactly once. Where the checkpoint puts a begin-of-text token before texts, it also takes
 * the place of the first token of later windows.
 *
 * Log-probabilities are in double, stored by token and added in the order of the sequence, so that
 * every figure but the time has the same bits for any number of threads and any block.
 */
#pragma once

#include "base/callbacks.h"
#include "engine/session.h"

/* Where windows enter the model, if not as embeddings. */
struct eval_entry {
    int layer;
    const float *stream; /* [n_tokens - 1, d_model] of the tokens before it; NULL: embeddings */
};

/* Everything is borrowed. */
struct eval_spec {
    const struct model *model;
    const struct model *other;    /* the reference, of the same vocabulary; NULL: none */
    struct session_params params; /* n_ctx is not read; `without` and kv_type are the model's: the
                                     reference has all its heads and an F32 cache */
    struct pool *pool;            /* NULL: one thread */
    const int32_t *tokens;
    size_t n_tokens;                   /* at least 2 */
    const struct tokenizer *tokenizer; /* of the model, for the bytes; NULL: none are counted */
    int ctx;    /* input tokens of a window; 0: the model's context, or the other's if smaller */
    int stride; /* 1 to ctx; 0: ctx */
    /* Where the model is entered. With a stream the stride is ctx (asserted), so that a token is in
     * one window. */
    struct eval_entry entry;
    double *nll; /* [n_tokens - 1] gets each scored token's; may be NULL */
    /* Called between blocks, with the tokens scored; as a part of larger work with `before` added,
     * of `all` (0: it is no part). */
    struct callbacks callbacks;
    uint64_t before, all;
};

/* What a run will do and take. */
struct eval_plan {
    int ctx, stride;
    uint64_t n_scored, n_windows;
    int n_together;    /* windows that go through the model together, as many as fit in a block */
    uint64_t kv_bytes; /* of both sessions' caches */
    uint64_t scratch_bytes; /* of the rest: sessions, blocks of logits, results by token */
};

struct eval_result {
    uint64_t tokens; /* scored: n_tokens - 1 */
    uint64_t bytes;  /* that the scored tokens stand for (tokenizer_bytes); 0 without tokenizer */
    double nll;      /* mean negative log-likelihood of a scored token, nats */
    /* Standard error of nll, by the means of batches of floor(sqrt(tokens)) neighbours, because
     * neighbours are hard or easy together: the formula for independent samples gives too little.
     * NaN for one token. (Flegal and Jones 2010, "Batch means and spectral variance estimators in
     * Markov chain Monte Carlo", section 2) */
    double nll_stderr;
    double perplexity;    /* e^nll */
    double bits_per_byte; /* the scored tokens' nll together / log 2 / bytes; NaN without bytes */
    /* NaN without `other`. The divergence of a prediction is that of the model's distribution
     * from the other's, sum p_other log(p_other / p_model) in nats. */
    double kl_mean;
    double kl_p99;              /* the smallest that 99% of the tokens' divergences do not exceed */
    double top1_agreement;      /* share of predictions with the same most likely token (the lowest
                                   id of equals) */
    double bits_per_byte_other; /* the other model's, on the same tokens */
    double tokens_per_s;        /* scored; starting is left out */
};

/* Returns what stands at position `at` of a window for this token: the token, but at the beginning
 * of a later window BOS, if the tokenizer puts one before texts. (llama.cpp's perplexity does so.)
 */
static inline int32_t eval_input(const struct eval_spec *spec, size_t token, int at)
{
    const struct tokenizer *t = spec->tokenizer;
    return at == 0 && token > 0 && t && tokenizer_adds_bos(t) ? tokenizer_bos(t)
                                                              : spec->tokens[token];
}

/* Whether a text of so many tokens can be evaluated: STATUS_USAGE for fewer than 2. */
enum status eval_check_length(size_t n_tokens, struct err *e);

/* Fills in the plan without running anything. STATUS_USAGE: fewer than 2 tokens, an id outside the
 * vocabulary, ctx or stride out of range, vocabularies of different sizes. STATUS_NO_MEMORY. */
enum status eval_make_plan(const struct eval_spec *spec, struct eval_plan *plan, struct err *e);

/* Runs all windows. Besides the failures of eval_make_plan: STATUS_FAILED, naming the first token
 * after which logits are not finite; STATUS_INTERRUPTED. *result is valid with STATUS_OK only. */
enum status eval_run(const struct eval_spec *spec, struct eval_result *result, struct err *e);

/* Returns the standard error of the mean of n values in the order of the text, as nll_stderr. */
double eval_mean_error(const double *x, uint64_t n, double mean);
