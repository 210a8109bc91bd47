/*
 * gguf_bytes - builds the metadata of a GGUF file in memory, sound or broken, for tests and fuzz
 * targets of the readers.
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

#endif
