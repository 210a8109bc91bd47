/*
 * vocab_keys - a tokenizer as the keys of a GGUF file, before they are in one.
 */
#ifndef DECODE_TEXT_VOCAB_KEYS_H
#define DECODE_TEXT_VOCAB_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "gguf/gguf.h"

/* Everything is borrowed. */
struct vocab_keys {
    const char *model; /* tokenizer.ggml.model, "gpt2" or "llama"; NULL: no vocabulary */
    const char *pre;   /* tokenizer.ggml.pre; NULL: none */
    int n;
    const struct text *tokens; /* [n] as GGUF writes them, see vocab.h */
    const int32_t *types;      /* [n] enum token_type */
    const float *scores;       /* [n]; NULL: it merges by `merges` */
    uint64_t n_merges;
    const struct text *merges; /* [n_merges] "left right" */
    int bos, eos, unk, pad;    /* -1: none */
    bool add_bos;
    int add_space_prefix; /* -1: not said */
};

/* Adds tokenizer.ggml.*, as tokenizer_create and llama.cpp read them. What w itself refuses is
 * found by gguf_write. */
void vocab_keys_write(const struct vocab_keys *k, struct gguf_writer *w);

#endif
