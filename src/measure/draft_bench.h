/*
 * draft_bench - what drafts are worth on a text: tokens a second without and with them, in turns.
 *
 * In each repeat prompts are cut out of the text and continued, without a draft and then with each,
 * so that a drift of the machine hits all alike; the continuations must be the same. Rates are of
 * decoding, drafting and sampling included, prompts left out. What acceptance and costs predict is
 * the tokens a step over the time of a step of so many rows and of the steps of the draft, in steps
 * of one row, each timed apart from the rest.
 */
#ifndef DECODE_MEASURE_DRAFT_BENCH_H
#define DECODE_MEASURE_DRAFT_BENCH_H

#include "base/status.h"
#include "engine/draft.h"
#include "engine/schedule.h"

/* A draft to measure. */
struct draft_way {
    const char *name;
    const struct drafter *drafter; /* as before drafter_create; NULL: none */
};

struct draft_bench_spec {
    struct session *session; /* `batch` sequences with room for prompt + n tokens */
    struct sampler *sampler; /* of twice as many, as a drafter needs */
    struct pool *pool;
    const struct tokenizer *tokenizer;
    int n_vocab;
    const int32_t *tokens; /* [n_tokens >= prompt] the text */
    size_t n_tokens;
    int prompt, n; /* tokens of a prompt, and of its continuation; 1 and 2 at least */
    int batch, repeats;
    const struct draft_way *ways; /* [n_ways]; the first has no drafter */
    int n_ways;
    bool (*stop)(void *arg); /* true: give up */
    void (*progress)(void *arg, uint64_t done, uint64_t all);
    void *arg;
};

struct draft_row {
    const char *draft;
    int repeats;         /* that all ways have done */
    double tokens_per_s; /* median over the repeats */
    double speedup;      /* over no draft in the same repeat: median, least and greatest */
    double speedup_min, speedup_max;
    double predicted_speedup; /* NaN for no draft, as is the share, and for all if interrupted */
    uint64_t drafted, accepted;
    double share, tokens_per_step;
    double draft_seconds, target_seconds;
};

/* Fills in rows [n_ways]. STATUS_NO_MEMORY; STATUS_INTERRUPTED if `stop` ended it: the rows are
 * then those of the repeats that were done, if any were; STATUS_FAILED for logits that are not
 * finite, or if a draft changed a text, which none does. */
enum status draft_bench_run(const struct draft_bench_spec *spec, struct draft_row *rows,
                            struct err *e);

#endif
