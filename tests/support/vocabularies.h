/*
 * vocabularies - tokenizers of vocabularies that a test puts together, and checks of the ids that
 * they give for texts.
 */
#ifndef TESTS_VOCABULARIES_H
#define TESTS_VOCABULARIES_H

#include <stdint.h>

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
    int adds_bos, adds_space, drops_spaces; /* -1: no such key */
};

/* The vocabulary that the functions below add to, and the tokenizer made of it, which is freed when
 * the test ends. */
extern struct vocabulary v;
extern struct tokenizer *t;

/* Begins `v` as one of "gpt2" with 256 byte tokens, whose ids are the bytes. */
void plain_bytes_vocabulary(void);

/* Begins `v` as one of "llama" with <unk>, <s>, </s> and, with `bytes`, <0x00> to <0xFF> as ids 3
 * to 258. */
void vocabulary_of_scores(bool bytes);

/* Add a token, whose name is borrowed; add_scored adds a normal one. */
void add_token(const char *name, int32_t type);
void add_scored(const char *name, float score);
/* Adds a merge; its result must be added as a token, too. */
void add_merge(const char *merge);

/* Add a normal token, or a merge, for each name; NULL ends the list. */
void add_tokens(const char *const *names);
void add_merges(const char *const *merges);
#define ADD_TOKENS(...) add_tokens((const char *const[]){__VA_ARGS__, NULL})
#define ADD_MERGES(...) add_merges((const char *const[]){__VA_ARGS__, NULL})

/* Make the tokenizer `t` of `v`, or of a file under the repository. */
void use_vocabulary(void);
void use_file(const char *path);

/* The keys of `v`, to be written by written_gguf. */
struct gguf_writer *keys_of_vocabulary(void);

/* Checks the text's ids. It is encoded from memory of its own, so that a sanitizer sees a read past
 * its end. */
void check_encoding(struct text s, const int *expected, size_t n_expected, const char *file,
                    int line);

/* Checks that the text's ids decode to the text, without what the tokenizer adds. */
void check_decoding(struct text s, const char *file, int line);

/* Checks both. */
#define CHECK_IDS(string, ...)                                                                     \
    do {                                                                                           \
        const int expected[] = {__VA_ARGS__};                                                      \
        const struct text text = {string, sizeof string - 1};                                      \
        check_encoding(text, expected, COUNT(expected), __FILE__, __LINE__);                       \
        check_decoding(text, __FILE__, __LINE__);                                                  \
    } while (0)

/* Checks the cases of a file at `path`, at least `least` of them, with the vocabulary of another
 * file; texts for which `decodes` holds (NULL: all) are decoded, too. */
void check_cases(const char *vocabulary, const char *path, int least,
                 bool (*decodes)(struct text s));

/* Encodes `len` letters a; returns the ids of *n tokens, which the caller frees. */
int32_t *encode_letters(size_t len, size_t *n);

/* Checks that the text is refused with STATUS_USAGE and a message that has this. */
void check_unencodable(struct text s, const char *message);

#endif
