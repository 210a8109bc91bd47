/*
 * target - what the fuzz targets share.
 */
#ifndef TESTS_FUZZ_TARGET_H
#define TESTS_FUZZ_TARGET_H

#include <stdint.h>
#include <stdlib.h>

#include "gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failed requirement is a crash for the fuzzer to find. */
static inline void require(int holds)
{
    if (!holds)
        abort();
}

/* A refusal says something, on one line, without control characters. */
static inline void require_message(const struct err *e)
{
    require(e->text[0]);
    for (const char *c = e->text; *c; c++)
        require((unsigned char)*c >= 0x20 && *c != 0x7f);
}

/* Whether the writer takes what was read: all but tensor names of 64 bytes. */
static inline int writable(const struct gguf *g)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].name.len > 63)
            return 0;
    return 1;
}

#endif
