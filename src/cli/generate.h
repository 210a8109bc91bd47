/*
 * generate - one prompt continued, once or as several samples, as text or as records of its tokens
 * on standard output.
 *
 * The prompt is taken once; all samples read its positions in the cache, unless a shift is to
 * change them. They are made side by side and printed in order, the one whose turn it is as it is
 * made.
 */
#ifndef DECODE_CLI_GENERATE_H
#define DECODE_CLI_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/output.h"
#include "base/status.h"
#include "cli/turns.h"
#include "engine/schedule.h"
#include "measure/score.h"
#include "show/heatmap.h"

struct generation {
    /* Borrowed, filled in before generate_create. */
    struct output *out;
    struct text prompt;    /* echoed as it is */
    const int32_t *tokens; /* [n_tokens >= 1] what the prompt became */
    int n_tokens;
    int n;         /* tokens wanted in each sample */
    int n_samples; /* streams of the seed; 0: texts are made by generate_more */
    uint64_t seed;
    bool shares; /* samples read the prompt where the first has it in the cache */
    bool echo;
    bool records; /* JSON lines with n_top alternatives instead of text */
    int n_top;
    int most_top;      /* that n_top is ever set to, at least n_top */
    bool goes_on;      /* the tokens, which may be none, follow what slot 0 of the schedule has */
    uint64_t n_before; /* tokens: as many */
    enum heatmap_ink ink; /* of text: each token is shaded by its probability, unless plain */
    const struct text *stops;
    int n_stops;
    /* What generate_create leaves to the caller: session (all sequences empty, if several that
     * share it with the prompt as their shared positions), sampler, pool, tokenizer, n_slots,
     * n_vocab, ignore_eos.
     */
    struct schedule schedule;

    /* Results, beside the schedule's. */
    enum text_end end; /* of the last sample; of the one that was cut short, if one was */
    int last_sampled;  /* its tokens */

    /* Private. */
    struct turns turns;
    int n_begun;
    uint64_t last;              /* the sample that `end` is about */
    bool cut;                   /* it was abandoned while it was being printed */
    float *prompt_logits;       /* [n_vocab] */
    bool has_prompt;            /* they are there */
    bool *begun;                /* [n_slots] something of the slot's text was printed */
    struct token_score *top;    /* [most_top] */
    struct shaded_text *shaded; /* [n_slots] the texts on their way; nothing of plain ones */
    struct arena arena;         /* of all these */
};

/* What shades a token: its probability, from 0 to 1. */
struct heatmap_scale generate_scale(void);

/* Takes all memory: STATUS_NO_MEMORY. generate_free is due in every case. */
enum status generate_create(struct generation *g, struct err *e);
void generate_free(struct generation *g);

/* Prints everything. STATUS_OK whatever the end, also when interrupted or when the output fails
 * (which the output itself knows); STATUS_FAILED for logits that are not finite, after ending the
 * line. Samples that are complete then are printed, too. */
enum status generate_run(struct generation *g, struct err *e);

/* One text more, of what prompt, tokens and goes_on now are, unless a signal comes before its
 * beginning; the next one goes on with it, without an echo. The same failures. */
enum status generate_more(struct generation *g, struct err *e);

/* Records with so many alternatives from now on, no more than most_top of them; 0: text. */
void generate_set_records(struct generation *g, int n_top);

#endif
