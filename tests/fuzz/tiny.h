/*
 * tiny - models and a vocabulary that are small enough to be run for every input.
 */
#ifndef TESTS_FUZZ_TINY_H
#define TESTS_FUZZ_TINY_H

#include "model/model.h"
#include "target.h"
#include "text/tokenizer.h"

#define TINY_VOCAB 16

static const enum storage tiny_caches[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};

static const struct config tiny_shapes[] = {
    {.n_heads = 2, .n_kv_heads = 1},
    {.n_heads = 4, .n_kv_heads = 4, .position = POSITION_ROPE, .ffn = FFN_SWIGLU},
    {.n_heads = 4, .n_kv_heads = 2, .position = POSITION_ALIBI, .ffn = FFN_RELU},
};
#define TINY_SHAPES (int)COUNT(tiny_shapes)

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

/* Letters, some of them in pairs; the last ends a text. */
static inline struct tokenizer *tiny_tokenizer(void)
{
    static const char *const words[TINY_VOCAB] = {"a", "b", "ab", "c", "ca", "d", "e", "f",
                                                  "g", "h", "i",  "j", "k",  "l", "m", "x"};
    struct text tokens[TINY_VOCAB];
    struct gguf_writer *w;
    struct tokenizer *t;
    unsigned char *bytes;
    for (int i = 0; i < TINY_VOCAB; i++)
        tokens[i] = text_of(words[i]);
    require(gguf_writer_create(&w, NULL) == STATUS_OK);
    gguf_add_text(w, "tokenizer.ggml.model", text_of("gpt2"));
    gguf_add_text(w, "tokenizer.ggml.pre", text_of("gpt-2"));
    gguf_add_texts(w, "tokenizer.ggml.tokens", tokens, TINY_VOCAB);
    gguf_add_texts(w, "tokenizer.ggml.merges", NULL, 0);
    gguf_add_u32(w, "tokenizer.ggml.eos_token_id", TINY_VOCAB - 1);
    struct gguf *g = require_written(w, &bytes);
    require(tokenizer_create(g, &t, NULL) == STATUS_OK);
    gguf_free(g);
    free(bytes);
    gguf_writer_free(w);
    return t;
}

#endif
