/*
 * gguf_image - whole GGUF files in memory, field by field, right or wrong (on top of gguf_bytes).
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

/* Until the test ends; bytes are exactly as long as the input, so that ASan sees overreads. */
struct parsed {
    unsigned char *bytes;
    size_t len;
    struct gguf *g;
    enum status status;
};

static inline void free_parsed(void *g)
{
    gguf_free(g);
}

static inline struct parsed parse_exactly(const void *bytes, size_t len)
{
    struct parsed p = {.bytes = released_by(free, calloc(len + !len, 1)), .len = len};
    if (len)
        memcpy(p.bytes, bytes, len);
    p.status = gguf_parse(p.bytes, len, &p.g, &err);
    ck_assert((p.g != NULL) == (p.status == STATUS_OK));
    if (p.g)
        released_by(free_parsed, p.g);
    return p;
}

/* Parses what must be good, and frees the image. */
static inline struct parsed accept(struct gguf_bytes *b)
{
    const struct parsed p = parse_exactly(b->data, b->len);
    expect_ok(p.status);
    free(b->data);
    *b = (struct gguf_bytes){0};
    return p;
}

/* Parses what must be refused with a message that has all `parts`, as expect_status has them, and
 * frees the image. */
static inline void refuse(struct gguf_bytes *b, const char *parts)
{
    expect_status(parse_exactly(b->data, b->len).status, STATUS_BAD_FILE, parts);
    free(b->data);
    *b = (struct gguf_bytes){0};
}

#endif
