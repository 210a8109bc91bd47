/*
 * vocabularies - vocabularies made by tests, as files that a tokenizer reads, and what tokenizers
 * must make of texts.
 */
#ifndef TESTS_VOCABULARIES_H
#define TESTS_VOCABULARIES_H

#include <stdint.h>
#include <stdlib.h>

#include "gguf_bytes.h"
#include "support.h"
#include "text/tokenizer.h"

#define MAX_TOKENS 2048

/* Every field may be changed before use. */
struct vocabulary {
    const char *model, *pre; /* NULL: no such key */
    char names[256][8];
    struct text tokens[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    float scores[MAX_TOKENS];
    size_t n_tokens;
    bool has_types, has_scores;
    struct text merges[MAX_TOKENS];
    size_t n_merges;
    bool has_merges;
    int64_t bos, eos;         /* -1: no such key */
    int adds_bos, adds_space; /* likewise */
};

/* "gpt2" with 256 byte tokens, whose ids are the bytes. */
void plain_bytes_vocabulary(struct vocabulary *v);

/* "llama" with <unk>, <s>, </s>, and then, with `bytes`, <0x00> to <0xFF>: ids 3 to 258. */
void vocabulary_of_scores(struct vocabulary *v, bool bytes);

/* The name is borrowed. */
void add_token(struct vocabulary *v, const char *name, int32_t type);
void add_scored(struct vocabulary *v, const char *name, float score); /* a normal one */
/* A merge alone; its result is to be a token. */
void add_merge(struct vocabulary *v, const char *merge);

/* The keys; free(b->data) at last. */
void vocabulary_write(const struct vocabulary *v, struct gguf_bytes *b);

/* Takes the bytes over. */
enum status create_from(struct gguf_bytes *b, struct tokenizer **t, struct err *e);
enum status create(const struct vocabulary *v, struct tokenizer **t, struct err *e);
struct tokenizer *must_create(const struct vocabulary *v);
struct tokenizer *must_open(const char *path); /* under the repository */

/* STATUS_BAD_FILE with this in the message. */
void check_refused(const struct vocabulary *v, const char *message);

/* The text, in memory of its own so that a read past its end is caught, has these ids. */
void check_encoding(const struct tokenizer *t, struct text s, const int *expected,
                    size_t n_expected, const char *file, int line);

/* The ids' bytes are the text, but for what the tokenizer adds. */
void check_decoding(const struct tokenizer *t, struct text s, const char *file, int line);

/* Both. */
#define CHECK_IDS(t, string, ...)                                                                  \
    do {                                                                                           \
        const int expected[] = {__VA_ARGS__};                                                      \
        const struct text text = {string, sizeof string - 1};                                      \
        check_encoding(t, text, expected, sizeof expected / sizeof expected[0], __FILE__,          \
                       __LINE__);                                                                  \
        check_decoding(t, text, __FILE__, __LINE__);                                               \
    } while (0)

/* STATUS_USAGE with this in the message. */
void check_unencodable(const struct tokenizer *t, struct text s, const char *message);

#endif
