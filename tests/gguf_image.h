/*
 * gguf_image - whole GGUF files in memory, field by field, right or wrong (on top of gguf_bytes).
 */
#ifndef TESTS_GGUF_IMAGE_H
#define TESTS_GGUF_IMAGE_H

#include "gguf_bytes.h"
#include "support.h"

static inline void image_begin(struct gguf_bytes *b, uint32_t version, uint64_t n_tensors,
                               uint64_t n_pairs)
{
    *b = (struct gguf_bytes){0};
    gb_put(b, "GGUF", 4);
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

static inline void image_tensor(struct gguf_bytes *b, const char *name, uint32_t n_dims,
                                const uint64_t *dims, uint32_t type, uint64_t offset)
{
    gb_put_text(b, text_of(name));
    gb_put_u32(b, n_dims);
    for (uint32_t d = 0; d < n_dims && d < 8; d++)
        gb_put_u64(b, dims[d]);
    gb_put_u32(b, type);
    gb_put_u64(b, offset);
}

/* A tensor of one dimension. */
static inline void image_row(struct gguf_bytes *b, const char *name, uint64_t n, uint32_t type,
                             uint64_t offset)
{
    image_tensor(b, name, 1, &n, type, offset);
}

/* Data bytes 1, 2, 3, ...: none is zero for long, so that misplaced ones show. */
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

/* The result of parsing; bytes are exactly as long as the input, so that ASan sees overreads. */
struct parsed {
    unsigned char *bytes;
    struct gguf *g;
    enum status status;
    struct err err;
};

static inline struct parsed parse_exactly(const void *bytes, size_t len)
{
    struct parsed p = {.bytes = calloc(len, 1)};
    if (len) {
        ck_assert_ptr_nonnull(p.bytes);
        memcpy(p.bytes, bytes, len);
    }
    p.status = gguf_parse(p.bytes, len, &p.g, &p.err);
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
    const struct parsed p = parse_exactly(b->data, b->len);
    ck_assert_msg(p.status == STATUS_OK, "refused: %s", p.err.text);
    ck_assert_ptr_nonnull(p.g);
    free(b->data);
    *b = (struct gguf_bytes){0};
    return p;
}

/* Parses what must be refused with a message that holds both parts, and frees the image. */
static inline void refuse(struct gguf_bytes *b, const char *where, const char *what)
{
    struct parsed p = parse_exactly(b->data, b->len);
    ck_assert_msg(p.status == STATUS_BAD_FILE, "status %d instead of a refusal: %s %s",
                  (int)p.status, where, what);
    ck_assert_ptr_null(p.g);
    ck_assert_msg(strstr(p.err.text, where) && strstr(p.err.text, what),
                  "\"%s\" does not say \"%s\" and \"%s\"", p.err.text, where, what);
    for (const char *c = p.err.text; *c; c++)
        ck_assert_msg((unsigned char)*c >= 0x20, "a control character in the message");
    parsed_free(&p);
    free(b->data);
    *b = (struct gguf_bytes){0};
}

#endif
