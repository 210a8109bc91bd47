/*
 * vocabularies - vocabularies made by tests, as files that a tokenizer reads, and what tokenizers
 * must make of texts.
 */
#ifndef TESTS_VOCABULARIES_H
#define TESTS_VOCABULARIES_H

#include <stdint.h>
#include <stdlib.h>

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
    int64_t bos, eos;                       /* -1: no such key */
    int adds_bos, adds_space, drops_spaces; /* likewise */
};

/* What the tests below make and look at, and the tokenizer of it, until the test ends. */
extern struct vocabulary v;
extern struct tokenizer *t;

/* "gpt2" with 256 byte tokens, whose ids are the bytes. */
void plain_bytes_vocabulary(void);

/* "llama" with <unk>, <s>, </s>, and then, with `bytes`, <0x00> to <0xFF>: ids 3 to 258. */
void vocabulary_of_scores(bool bytes);

/* The names are borrowed. */
void add_token(const char *name, int32_t type);
void add_scored(const char *name, float score); /* a normal one */
/* A merge alone; its result is to be a token. */
void add_merge(const char *merge);

/* Normal tokens, and merges, of these names; NULL ends them. */
void add_tokens(const char *const *names);
void add_merges(const char *const *merges);
#define ADD_TOKENS(...) add_tokens((const char *const[]){__VA_ARGS__, NULL})
#define ADD_MERGES(...) add_merges((const char *const[]){__VA_ARGS__, NULL})

/* Makes a tokenizer, of `v`; of a file under the repository. */
void use_vocabulary(void);
void use_file(const char *path);

/* The keys of `v`, to be written by written_gguf. */
struct gguf_writer *keys_of_vocabulary(void);

/* The text, in memory of its own so that a read past its end is caught, has these ids. */
void check_encoding(struct text s, const int *expected, size_t n_expected, const char *file,
                    int line);

/* The ids' bytes are the text, but for what the tokenizer adds. */
void check_decoding(struct text s, const char *file, int line);

/* Both. */
#define CHECK_IDS(string, ...)                                                                     \
    do {                                                                                           \
        const int expected[] = {__VA_ARGS__};                                                      \
        const struct text text = {string, sizeof string - 1};                                      \
        check_encoding(text, expected, COUNT(expected), __FILE__, __LINE__);                       \
        check_decoding(text, __FILE__, __LINE__);                                                  \
    } while (0)

/* At least so many cases of a file are encoded, by the vocabulary of another one, as it says; those
 * for which `decodes` holds (NULL: all) come back. */
void check_cases(const char *vocabulary, const char *path, int least,
                 bool (*decodes)(struct text s));

/* So many letters a become n tokens; their ids, to be freed. */
int32_t *encode_letters(size_t len, size_t *n);

/* STATUS_USAGE with this in the message. */
void check_unencodable(struct text s, const char *message);

#endif
