/*
 * round_trip - what holds of any vocabulary and text, for the targets that read vocabularies.
 */
#ifndef TESTS_FUZZ_ROUND_TRIP_H
#define TESTS_FUZZ_ROUND_TRIP_H

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
        require_refused(s, reads ? STATUS_USAGE : STATUS_BAD_FILE, &e);
        require(!ids);
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

/* The vocabulary of a file, if it is not refused: every token's bytes, and texts of all kinds. */
static inline struct tokenizer *try_vocabulary(const struct gguf *g)
{
    static const char *const texts[] = {
        "", "To be, or\n  not to be? They'll 've 1234 \xc3\xa9\xe4\xb8\xad \xff\xc3 x",
        "a b  ab\n\n 12 \xc3\xa9\xe2 \xff <s>"};
    const bool exact = keeps_texts(g);
    struct tokenizer *t;
    struct err e = {{0}};
    const enum status s = tokenizer_create(g, &t, &e);
    if (s != STATUS_OK) {
        require_refused(s, STATUS_BAD_FILE, &e);
        require(!t);
        return NULL;
    }
    for (size_t i = 0; i < COUNT(texts); i++)
        round_trip(t, text_of(texts[i]), exact);
    for (int id = 0; id < tokenizer_n_tokens(t); id++) {
        tokenizer_is_special(t, id);
        round_trip(t, tokenizer_bytes(t, id), exact);
    }
    require(tokenizer_bos(t) < tokenizer_n_tokens(t) && tokenizer_eos(t) < tokenizer_n_tokens(t));
    return t;
}

#endif
