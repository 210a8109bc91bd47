/*
 * own_text - a sample of the texts that a model knows.
 */
#pragma once

#include "base/callbacks.h"
#include "model/model.h"
#include "text/tokenizer.h"

/* Which texts a model is to write; everything is borrowed. */
struct own_text {
    const struct model *model;
    const struct tokenizer *tokenizer; /* of the model */
    const struct kernels *kernels;     /* NULL: the fastest */
    struct pool *pool;                 /* NULL: one thread */
    uint64_t seed;
    int length;                 /* tokens of each text, from 2 on and at most the model's context */
    int n;                      /* texts, from 1 on */
    struct callbacks callbacks; /* of tokens */
};

/* Fills tokens [n * length] with texts, one after another, sampled from all tokens at temperature
 * 1: the same for any number of threads. Each begins with BOS or, in a vocabulary without one, a
 * newline or else token 0, and goes on after an end of text. STATUS_NO_MEMORY; STATUS_INTERRUPTED;
 * STATUS_FAILED if logits are not finite. */
enum status own_text_write(const struct own_text *t, int32_t *tokens, struct err *e);
