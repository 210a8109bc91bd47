/*
 * target - what the fuzz targets share.
 */
#ifndef TESTS_FUZZ_TARGET_H
#define TESTS_FUZZ_TARGET_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "count.h"
#include "formats/gguf_write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failed requirement is a crash, which the fuzzer finds. */
static inline void require(int holds)
{
    if (!holds)
        abort();
}

/* Requires that the message is one line without control characters. */
static inline void require_line(const char *text)
{
    require(text[0]);
    for (const char *c = text; *c; c++)
        require((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static inline void require_refused(enum status s, enum status expected, const struct err *e)
{
    require(s == expected);
    require_line(e->text);
}

/* Requires a status of a bad file, or of a wrong use. */
static inline void require_refusal(enum status s, const struct err *e)
{
    require(s == STATUS_BAD_FILE || s == STATUS_USAGE || s == STATUS_FAILED);
    require_line(e->text);
}

/* Returns whether the writer takes what was read: it refuses names of 64 bytes alone. */
static inline bool writable(const struct gguf *g)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].name.len > 63)
            return false;
    return true;
}

/* Parses what was written. The caller frees the file, then the bytes that it lies in. */
static inline struct gguf *require_written(struct gguf_writer *w, unsigned char **bytes)
{
    struct gguf *g;
    size_t len;
    require(gguf_write_memory(w, bytes, &len, NULL) == STATUS_OK);
    require(gguf_parse(*bytes, len, &g, NULL) == STATUS_OK);
    return g;
}

/* Copies a text as a string, if it is one and shorter than `size`. */
static inline bool as_string(struct text t, char *out, size_t size)
{
    if (t.len >= size || (t.len > 0 && memchr(t.data, 0, t.len)))
        return false;
    if (t.len > 0)
        memcpy(out, t.data, t.len);
    out[t.len] = 0;
    return true;
}

#endif
