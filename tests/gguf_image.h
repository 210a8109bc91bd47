/*
 * gguf_image - whole GGUF files in memory, field by field, right or wrong (on top of gguf_bytes).
 */
#ifndef TESTS_GGUF_IMAGE_H
#define TESTS_GGUF_IMAGE_H

#include <ctype.h>

#include "gguf_bytes.h"
#include "support.h"

/* `n` bytes 1, 2, 3, ...: none is zero for long, so that misplaced ones show. */
static inline void image_data(struct gguf_bytes *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        gb_put(b, &(unsigned char){(unsigned char)(i + 1)}, 1);
}

static inline void image_align(struct gguf_bytes *b, size_t alignment)
{
    while (b->len % alignment)
        gb_put(b, "", 1);
}

/*
 * Adds what the words, a space apart, stand for: 5 a u32, 5L a u64 (-1L: the largest), ? the u64
 * `unknown`, 'a b' a string with its length, *5 data bytes, /32 zeros up to a multiple of 32, 5b
 * one byte; GGUF itself. So a file of one tensor t of 4 floats, none of its keys, is
 * "GGUF 3 1L 0L 't' 1 4L 0 0L /32 *16".
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
        } else if (*words == '?') {
            gb_put_u64(b, unknown);
            end = (char *)(uintptr_t)words + 1;
        } else if (*words == '*') {
            image_data(b, n);
        } else if (*words == '/') {
            image_align(b, n);
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

/* --- the same by calls, for what is counted or computed -------------------------------------- */

static inline void image_begin(struct gguf_bytes *b, uint32_t version, uint64_t n_tensors,
                               uint64_t n_pairs)
{
    *b = image("GGUF");
    gb_put_u32(b, version);
    gb_put_u64(b, n_tensors);
    gb_put_u64(b, n_pairs);
}

/* A pair up to its value; unlike gb_key it leaves the header's count alone. */
static inline void image_key(struct gguf_bytes *b, const char *key, uint32_t kind)
{
    gb_put_text(b, text_of(key));
    gb_put_u32(b, kind);
}

static inline void image_u32(struct gguf_bytes *b, const char *key, uint32_t value)
{
    image_key(b, key, GGUF_U32);
    gb_put_u32(b, value);
}

/* A tensor of one dimension. */
static inline void image_row(struct gguf_bytes *b, const char *name, uint64_t n, uint32_t type,
                             uint64_t offset)
{
    gb_put_text(b, text_of(name));
    image_add(b, "1 ?", n);
    gb_put_u32(b, type);
    gb_put_u64(b, offset);
}

/* --- parsing --------------------------------------------------------------------------------- */

/* The result of parsing; bytes are exactly as long as the input, so that ASan sees overreads. */
struct parsed {
    unsigned char *bytes;
    size_t len;
    struct gguf *g;
    enum status status;
    struct err err;
};

static inline struct parsed parse_exactly(const void *bytes, size_t len)
{
    struct parsed p = {.bytes = calloc(len, 1), .len = len};
    if (len) {
        ck_assert_ptr_nonnull(p.bytes);
        memcpy(p.bytes, bytes, len);
    }
    p.status = gguf_parse(p.bytes, len, &p.g, &p.err);
    ck_assert((p.g != NULL) == (p.status == STATUS_OK));
    return p;
}

static inline void parsed_free(struct parsed *p)
{
    gguf_free(p->g);
    free(p->bytes);
}

/* Parses what must be good, and frees the image. */
static inline struct parsed accept(struct gguf_bytes *b)
{
    struct parsed p = parse_exactly(b->data, b->len);
    expect_error(p.status, STATUS_OK, &p.err, "");
    free(b->data);
    *b = (struct gguf_bytes){0};
    return p;
}

/* Parses what must be refused with a message that has all `parts`, as expect_status has them, and
 * frees the image. */
static inline void refuse(struct gguf_bytes *b, const char *parts)
{
    struct parsed p = parse_exactly(b->data, b->len);
    expect_error(p.status, STATUS_BAD_FILE, &p.err, parts);
    parsed_free(&p);
    free(b->data);
    *b = (struct gguf_bytes){0};
}

#endif
