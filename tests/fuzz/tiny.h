/*
 * tiny - models and a vocabulary that are small enough to be run for every input.
 */
#ifndef TESTS_FUZZ_TINY_H
#define TESTS_FUZZ_TINY_H

#include <stdint.h>
#include <stdlib.h>

#include "formats/gguf.h"
#include "model/model.h"
#include "target.h"
#include "text/tokenizer.h"

#define TINY_VOCAB 16

static const enum storage tiny_caches[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};

static const struct tiny_shape {
    int n_heads, n_kv_heads;
    enum position_kind position;
    enum ffn_kind ffn;
} tiny_shapes[] = {
    {2, 1, POSITION_LEARNED, FFN_GELU},
    {4, 4, POSITION_ROPE, FFN_SWIGLU},
    {4, 2, POSITION_ALIBI, FFN_RELU},
};
#define TINY_SHAPES (int)COUNT(tiny_shapes)

/* Random ones of a shape: the same weights for the same seed. */
static inline struct model *tiny_model(int shape, int n_layers, int n_ctx, uint64_t seed)
{
    const struct tiny_shape *s = &tiny_shapes[shape];
    struct model *m;
    struct err e;
    struct config config = {.arch = arch_find(text_of("gpt2")),
                            .n_layers = n_layers,
                            .n_heads = s->n_heads,
                            .n_kv_heads = s->n_kv_heads,
                            .d_model = 32,
                            .d_ff = 64,
                            .n_ctx = n_ctx,
                            .n_vocab = TINY_VOCAB,
                            .norm_eps = 1e-5f,
                            .position = s->position,
                            .ffn = s->ffn};
    config_complete(&config);
    require(model_create_random(&config, STORAGE_F32, seed, &m, &e) == STATUS_OK);
    return m;
}

/* Letters, some of them in pairs; the last ends a text. */
static inline struct tokenizer *tiny_tokenizer(void)
{
    static const char *const words[TINY_VOCAB] = {"a", "b", "ab", "c", "ca", "d", "e", "f",
                                                  "g", "h", "i",  "j", "k",  "l", "m", "x"};
    struct text tokens[TINY_VOCAB];
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    unsigned char *bytes;
    size_t len;
    struct err e;
    for (int i = 0; i < TINY_VOCAB; i++)
        tokens[i] = text_of(words[i]);
    require(gguf_writer_create(&w, &e) == STATUS_OK);
    gguf_add_text(w, "tokenizer.ggml.model", text_of("gpt2"));
    gguf_add_text(w, "tokenizer.ggml.pre", text_of("gpt-2"));
    gguf_add_texts(w, "tokenizer.ggml.tokens", tokens, TINY_VOCAB);
    gguf_add_texts(w, "tokenizer.ggml.merges", NULL, 0);
    gguf_add_u32(w, "tokenizer.ggml.eos_token_id", TINY_VOCAB - 1);
    require(gguf_write_memory(w, &bytes, &len, &e) == STATUS_OK);
    require(gguf_parse(bytes, len, &g, &e) == STATUS_OK);
    require(tokenizer_create(g, &t, &e) == STATUS_OK);
    gguf_free(g);
    free(bytes);
    gguf_writer_free(w);
    return t;
}

#endif
