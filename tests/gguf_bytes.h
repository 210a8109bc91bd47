/*
 * gguf_bytes - builds the metadata of a GGUF file in memory, right or wrong, for tests and fuzz
 * targets of what reads it.
 */
#ifndef TESTS_GGUF_BYTES_H
#define TESTS_GGUF_BYTES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/gguf.h"

/* Zeroed at first; free(data) at last. */
struct gguf_bytes {
    unsigned char *data;
    size_t len, cap;
    uint64_t n_pairs;
};

static inline void gb_put(struct gguf_bytes *b, const void *data, size_t len)
{
    if (b->len + len > b->cap) {
        b->cap = (b->len + len) * 2;
        b->data = realloc(b->data, b->cap);
        if (!b->data)
            abort();
    }
    if (len > 0)
        memcpy(b->data + b->len, data, len);
    b->len += len;
}

static inline void gb_put_u32(struct gguf_bytes *b, uint32_t value)
{
    gb_put(b, &value, sizeof value);
}

static inline void gb_put_u64(struct gguf_bytes *b, uint64_t value)
{
    gb_put(b, &value, sizeof value);
}

static inline void gb_put_text(struct gguf_bytes *b, struct text t)
{
    gb_put_u64(b, t.len);
    gb_put(b, t.data, t.len);
}

static inline void gb_key(struct gguf_bytes *b, const char *key, enum gguf_kind kind)
{
    if (b->n_pairs++ == 0) {
        gb_put(b, "GGUF\3\0\0\0", 8);
        gb_put_u64(b, 0); /* tensors */
        gb_put_u64(b, 0); /* pairs: set here and by every later key */
    }
    memcpy(b->data + 16, &b->n_pairs, sizeof b->n_pairs);
    gb_put_text(b, text_of(key));
    gb_put_u32(b, kind);
}

static inline void gb_text(struct gguf_bytes *b, const char *key, const char *value)
{
    gb_key(b, key, GGUF_STRING);
    gb_put_text(b, text_of(value));
}

static inline void gb_u32(struct gguf_bytes *b, const char *key, uint32_t value)
{
    gb_key(b, key, GGUF_U32);
    gb_put_u32(b, value);
}

static inline void gb_bool(struct gguf_bytes *b, const char *key, bool value)
{
    gb_key(b, key, GGUF_BOOL);
    gb_put(b, value ? "\1" : "\0", 1);
}

static inline void gb_array(struct gguf_bytes *b, const char *key, enum gguf_kind element,
                            uint64_t count)
{
    gb_key(b, key, GGUF_ARRAY);
    gb_put_u32(b, element);
    gb_put_u64(b, count);
}

static inline void gb_texts(struct gguf_bytes *b, const char *key, const struct text *values,
                            size_t count)
{
    gb_array(b, key, GGUF_STRING, count);
    for (size_t i = 0; i < count; i++)
        gb_put_text(b, values[i]);
}

static inline void gb_i32s(struct gguf_bytes *b, const char *key, const int32_t *values,
                           size_t count)
{
    gb_array(b, key, GGUF_I32, count);
    gb_put(b, values, count * sizeof *values);
}

static inline void gb_f32s(struct gguf_bytes *b, const char *key, const float *values, size_t count)
{
    gb_array(b, key, GGUF_F32, count);
    gb_put(b, values, count * sizeof *values);
}

#endif
