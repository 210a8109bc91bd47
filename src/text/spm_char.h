/*
 * spm_char - the characters of SentencePiece vocabularies, as spm.c and spm_read.c know them.
 */
#ifndef DECODE_TEXT_SPM_CHAR_H
#define DECODE_TEXT_SPM_CHAR_H

#include <assert.h>
#include <stdint.h>

#include "base/text.h"

#define SPM_CHAR_MAX 4 /* bytes */

/* A character that has a symbol. */
struct spm_char {
    uint64_t key; /* its bytes, then how many they are: in the order of the bytes */
    int32_t symbol;
};

/* The bytes of a character as its first one has it, 1 to SPM_CHAR_MAX; a text may end before. */
static inline size_t spm_char_len(unsigned char first)
{
    return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* The first character of a nonempty text. */
static inline struct text spm_char_at(struct text s)
{
    const size_t len = spm_char_len((unsigned char)s.data[0]);
    return (struct text){s.data, len < s.len ? len : s.len};
}

/* Cuts it off. */
static inline struct text spm_next_char(struct text *rest)
{
    const struct text c = spm_char_at(*rest);
    rest->data += c.len;
    rest->len -= c.len;
    return c;
}

static inline uint64_t spm_char_key(struct text c)
{
    assert(c.len > 0 && c.len <= SPM_CHAR_MAX);
    uint64_t key = 0;
    for (size_t i = 0; i < SPM_CHAR_MAX; i++)
        key = key << 8 | (i < c.len ? (unsigned char)c.data[i] : 0);
    return key << 8 | c.len;
}

static inline unsigned char spm_char_first(uint64_t key)
{
    return (unsigned char)(key >> (8 * SPM_CHAR_MAX));
}

#endif
