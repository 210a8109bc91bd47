/*
 * imported - what holds of any vocabulary that was made of another format's file, for the targets
 * that read them.
 */
#ifndef TESTS_FUZZ_IMPORTED_H
#define TESTS_FUZZ_IMPORTED_H

#include "exchange/private.h"
#include "round_trip.h"

/* Notes are lines as messages are. */
static inline void take_note(void *arg, const char *text)
{
    (void)arg;
    for (const char *c = text; *c; c++)
        require((unsigned char)*c >= 0x20 && *c != 0x7f);
    require(text[0]);
}

static const struct vocabulary_notes imported_notes = {take_note, NULL};

static inline void try_imported(const struct vocabulary *v)
{
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t;
    unsigned char *bytes;
    size_t len;
    struct err e = {{0}};
    require(gguf_writer_create(&w, &e) == STATUS_OK);
    vocab_keys_write(&v->keys, w);
    require(gguf_write_memory(w, &bytes, &len, &e) == STATUS_OK);
    require(gguf_parse(bytes, len, &g, &e) == STATUS_OK);
    require(tokenizer_create(g, &t, &e) == STATUS_OK);
    require(tokenizer_reads_text(t, &e) == STATUS_OK && tokenizer_n_tokens(t) == v->keys.n);
    const bool exact = keeps_texts(g);
    round_trip(t, text_of("a b  ab\n\n 12 \xc3\xa9\xe2 \xff <s>"), exact);
    for (int id = 0; id < v->keys.n; id++)
        round_trip(t, v->keys.tokens[id], exact);
    tokenizer_free(t);
    gguf_free(g);
    gguf_writer_free(w);
    free(bytes);
}

/* What was read and finished, if it was, is a vocabulary; else there is a message. */
static inline void finish_imported(struct vocabulary *v, enum status s, struct err *e)
{
    require(s == STATUS_OK || s == STATUS_BAD_FILE);
    if (s == STATUS_OK)
        try_imported(v);
    else
        require_message(e);
    vocabulary_free(v);
}

#endif
