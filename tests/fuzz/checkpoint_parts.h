/*
 * checkpoint_parts - a GGUF file taken apart, for what changes checkpoints and makes new ones.
 */
#ifndef TESTS_FUZZ_CHECKPOINT_PARTS_H
#define TESTS_FUZZ_CHECKPOINT_PARTS_H

#include <stdbool.h>
#include <string.h>

#include "count.h"
#include "formats/gguf.h"
#include "mutate_checkpoint.h"

#define MAX_PAIRS   64
#define MAX_TENSORS 128
#define POOL        (1 << 18) /* bytes of new values and tensor data */

/* A file taken apart. Names and values point into the parsed bytes or into the pool. */
struct parts {
    struct gguf_pair pairs[MAX_PAIRS];
    size_t n_pairs;
    struct gguf_tensor tensors[MAX_TENSORS];
    size_t n_tensors;
    unsigned char pool[POOL];
    size_t used;
    bool broken; /* some tensor's data would not fit */
    uint64_t *random;
};

static inline size_t pick(struct parts *p, size_t n)
{
    return (size_t)next_random(p->random) % n;
}

/* NULL when the pool is used up. */
static inline void *take(struct parts *p, size_t n)
{
    if (n > POOL - p->used)
        return NULL;
    p->used += n;
    return p->pool + p->used - n;
}

static inline struct text keep(struct parts *p, const char *text)
{
    const size_t len = strlen(text);
    char *bytes = take(p, len);
    if (!bytes)
        return (struct text){"", 0};
    memcpy(bytes, text, len);
    return (struct text){bytes, len};
}

/* Empty ones. */
struct parts *parts_start(uint64_t *random);

/* Those of a file, whose bytes must stay. */
void parts_add(struct parts *p, const struct gguf *g, bool pairs, bool tensors);

/* The file's size; 0 if it is refused or does not fit. */
size_t parts_write(const struct parts *p, uint8_t *data, size_t max_size);

/* A number as the first bytes of 8, and how many of them a kind has. */
void parts_put_number(unsigned char *out, enum gguf_kind kind, double x);
size_t parts_kind_bytes(enum gguf_kind kind);

/* Gives a tensor the bytes that type and shape ask for: those there are, again and again. */
void parts_fit_data(struct parts *p, struct gguf_tensor *t);

/* Another type that runs, or nearly; numbers that weights should not be. */
void parts_change_type(struct parts *p, struct gguf_tensor *t);
void parts_change_data(struct parts *p, struct gguf_tensor *t);

#endif
