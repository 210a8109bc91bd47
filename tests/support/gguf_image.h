/*
 * gguf_image - builds whole GGUF files in memory, field by field, sound or broken.
 */
#ifndef TESTS_GGUF_IMAGE_H
#define TESTS_GGUF_IMAGE_H

#include <ctype.h>

#include "gguf_bytes.h"
#include "support.h"

/*
 * Adds what the words, a space apart, stand for: 5 a u32, 5L a u64 (-1L: the largest), ? the u64
 * `unknown`, 'a b' a string with its length, "a b" its bytes alone, *5 data bytes 1, 2, 3, ...
 * (none is zero for long, so that misplaced ones show), /32 zeros up to a multiple of 32, 5b one
 * byte; GGUF itself. So a file of one tensor t of 4 floats, none of its keys, is "GGUF 3 1L 0L 't'
 * 1 4L 0 0L /32 *16".
 */
static inline void image_add(struct gguf_bytes *b, const char *words, uint64_t unknown)
{
    while (*words) {
        char *end;
        const uint64_t n = strtoull(words + (*words == '*' || *words == '/'), &end, 0);
        if (*words == 'G') {
            gb_put(b, words, 4);
            end = (char *)(uintptr_t)words + 4;
        } else if (*words == '\'') {
            end = strchr(words + 1, '\'');
            gb_put_text(b, (struct text){words + 1, (size_t)(end++ - words - 1)});
        } else if (*words == '"') {
            end = strchr(words + 1, '"');
            gb_put(b, words + 1, (size_t)(end++ - words - 1));
        } else if (*words == '?') {
            gb_put_u64(b, unknown);
            end = (char *)(uintptr_t)words + 1;
        } else if (*words == '*') {
            for (uint64_t i = 0; i < n; i++)
                gb_put(b, &(unsigned char){(unsigned char)(i + 1)}, 1);
        } else if (*words == '/') {
            while (b->len % n)
                gb_put(b, "", 1);
        } else {
            gb_put(b, &n, *end == 'L' ? 8 : *end == 'b' ? 1 : 4);
            end += *end == 'L' || *end == 'b';
        }
        ck_assert_msg(*end == ' ' || !*end, "cannot read %s", words);
        words = end + (*end == ' ');
    }
}

static inline struct gguf_bytes image(const char *words)
{
    struct gguf_bytes b = {0};
    image_add(&b, words, 0);
    return b;
}

/* Copies the first bytes into memory of exactly that length, so that AddressSanitizer sees a read
 * past the end. */
static inline unsigned char *exactly(const struct gguf_bytes *b, size_t len)
{
    unsigned char *bytes = malloc(len + !len);
    ck_assert_ptr_nonnull(bytes);
    return len ? memcpy(bytes, b->data, len) : bytes;
}

/* Parses an image that must be sound, and frees it; the file is closed when the test ends. */
static inline struct gguf_file accept(struct gguf_bytes *b)
{
    const struct gguf_file f = parsed_gguf(exactly(b, b->len), b->len);
    free(b->data);
    return f;
}

/* Checks that the first bytes are refused with a message that has all `parts` (expect_status). */
static inline void refuse_part(const struct gguf_bytes *b, size_t len, const char *parts)
{
    struct gguf *g;
    unsigned char *bytes = exactly(b, len);
    expect_status(gguf_parse(bytes, len, &g, &err), STATUS_BAD_FILE, parts);
    ck_assert_ptr_null(g);
    free(bytes);
}

/* Checks that the image is refused, and frees it. */
static inline void refuse(struct gguf_bytes *b, const char *parts)
{
    refuse_part(b, b->len, parts);
    free(b->data);
}

#endif
