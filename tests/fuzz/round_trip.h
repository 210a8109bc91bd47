/*
 * round_trip - what holds of any vocabulary and text, for the targets that read vocabularies.
 */
#ifndef TESTS_FUZZ_ROUND_TRIP_H
#define TESTS_FUZZ_ROUND_TRIP_H

#include <stdlib.h>
#include <string.h>

#include "target.h"
#include "text/tokenizer.h"

/* Whether bytes come back as they were: "llama" has spaces of its own, and marks for others'. */
static inline bool keeps_texts(const struct gguf *g)
{
    const struct gguf_value *model = gguf_find(g, "tokenizer.ggml.model");
    return model && model->kind == GGUF_STRING && text_is(model->bytes, "gpt2");
}

/* Encoding may refuse a character, or all texts; else its ids are of the vocabulary, and if `exact`
 * decoding gives the text back. */
static inline void round_trip(const struct tokenizer *t, struct text text, bool exact)
{
    int32_t *ids;
    size_t n, len = 0;
    struct err e = {{0}};
    const enum status s = tokenizer_encode(t, text, &ids, &n, &e);
    if (s != STATUS_OK) {
        const bool reads = tokenizer_reads_text(t, NULL) == STATUS_OK;
        require(s == (reads ? STATUS_USAGE : STATUS_BAD_FILE) && !ids);
        require_message(&e);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        require(ids[i] >= 0 && ids[i] < tokenizer_n_tokens(t));
        const struct text bytes = tokenizer_bytes(t, ids[i]);
        require(bytes.len > 0);
        require(!exact || (bytes.len <= text.len - len &&
                           memcmp(text.data + len, bytes.data, bytes.len) == 0));
        len += bytes.len;
    }
    require(!exact || len == text.len);
    free(ids);
}

#endif
