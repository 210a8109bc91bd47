/*
 * generate - the loop behind the command generate: prefill, then one token after another to
 * standard output, with what was counted and timed on the way.
 */
#ifndef DECODE_CLI_GENERATE_H
#define DECODE_CLI_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cli/stream.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "measure/score.h"
#include "show/output.h"
#include "text/tokenizer.h"

/* Why the last sample ended. */
enum generate_end {
    END_COUNT,       /* n tokens are made */
    END_EOS,         /* the model ended the text */
    END_STOP,        /* a stop string is complete */
    END_CONTEXT,     /* there is no room for another token */
    END_INTERRUPTED, /* Ctrl-C */
    END_OUTPUT,      /* standard output takes no more */
};

/* Times kept for the percentiles; a longer run keeps its first ones. */
#define GENERATE_MAX_TIMES ((size_t)1 << 20)

struct generation {
    /* Borrowed, filled in before generate_create. */
    struct output *out;
    struct session *session; /* empty; with room for the prompt */
    struct sampler *sampler; /* generate_free frees it */
    const struct tokenizer *tokenizer;
    struct text prompt;    /* echoed as it is */
    const int32_t *tokens; /* [n_tokens >= 1] what the prompt became */
    int n_tokens, n_vocab;
    int n;         /* tokens wanted in each sample */
    int n_samples; /* streams of the seed */
    uint64_t seed;
    bool echo, ignore_eos;
    bool records; /* JSON lines with n_top alternatives instead of text */
    int n_top;
    const char *const *stops;
    int n_stops;

    /* Results. */
    enum generate_end end;
    int last_made;   /* tokens of the last sample */
    uint64_t n_made; /* tokens of all samples */
    int n_prefilled; /* prompt tokens fed */
    uint64_t prefill_ns;
    uint64_t first_token_at; /* clock_ns; 0 before it */
    uint64_t step_ns;        /* the sum of all times */
    uint64_t n_steps;
    uint64_t *times; /* [n_times] ns from one token to the next, n_times <= n_steps */
    size_t n_times, cap_times;

    /* Private. */
    struct stream stream;
    float *prompt_logits;    /* [n_vocab] */
    struct token_score *top; /* [n_top] */
};

/* Takes all memory: STATUS_NO_MEMORY. generate_free is due in every case. */
enum status generate_create(struct generation *g, struct err *e);
void generate_free(struct generation *g);

/* Prints everything. STATUS_OK whatever the end, also when interrupted or when the output fails
 * (which the output itself knows); STATUS_FAILED for logits that are not finite, after ending the
 * line. */
enum status generate_run(struct generation *g, struct err *e);

#endif
