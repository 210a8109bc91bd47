/*
 * tiny - models that are small enough to be run for every input.
 */
#ifndef TESTS_FUZZ_TINY_H
#define TESTS_FUZZ_TINY_H

#include "model/model.h"
#include "target.h"

#define TINY_VOCAB 16

static const enum storage tiny_caches[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};

/* Random ones of a shape: the same weights for the same seed. */
static inline struct model *tiny_model(const struct config *shape, enum storage storage,
                                       int n_layers, int n_ctx, uint64_t seed)
{
    struct config c = *shape;
    struct model *m;
    c.arch = arch_find(text_of("gpt2"));
    c.n_layers = n_layers;
    c.d_model = 32;
    c.d_ff = 64;
    c.n_ctx = n_ctx;
    c.n_vocab = TINY_VOCAB;
    c.norm_eps = 1e-5f;
    config_complete(&c);
    require(model_create_random(&c, storage, seed, &m, NULL) == STATUS_OK);
    return m;
}

#endif
