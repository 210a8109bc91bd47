/*
 * golden - the checkpoints of tests/data/golden with the logits that another implementation
 * computed in double precision.
 */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opened.h"
#include "support.h"

struct golden {
    struct checkpoint checkpoint;
    int32_t tokens[KERNEL_CHUNK + 64];
    int n_tokens;
    float *logits; /* [n_tokens, n_vocab] */
};

/* Those that differ most come first. tests/model/make_golden.py makes the mixed ones. */
static const char *const golden_names[] = {
    "gqa", "llama", "transformer", "shared-block", "layerwise-kv", "mixed-llama",
    /* sanitizers run those above */
    "mixed-alibi", "mqa-f16", "mha", "alibi", "quadratic", "mixed-none", "mixed-quadratic",
    "mixed-sinusoidal", "gptneox", "phi2", "bloom", "olmo", "gemma3", "local", "alone", "additive"};
#define N_GOLDEN (SANITIZED ? 6 : (int)COUNT(golden_names))

/* Opens one, and closes it when the test ends. */
static inline struct golden open_golden(const char *name)
{
    struct golden g = {.n_tokens = 0};
    char path[128];
    size_t len;
    snprintf(path, sizeof path, "tests/data/golden/%s.gguf", name);
    g.checkpoint = opened_checkpoint(path, CHECKPOINT_MODEL);

    snprintf(path, sizeof path, "tests/data/golden/%s.tokens", name);
    char *list = file_text(path, &len);
    list[len] = 0;
    for (char *item = strtok(list, ",\n"); item; item = strtok(NULL, ",\n")) {
        ck_assert_int_lt(g.n_tokens, (int)COUNT(g.tokens));
        g.tokens[g.n_tokens++] = (int32_t)atoi(item);
    }

    snprintf(path, sizeof path, "tests/data/golden/%s.npy", name);
    g.logits = read_npy(path, (size_t)g.n_tokens * (size_t)g.checkpoint.model->config.n_vocab);
    return g;
}

#endif
