/*
 * mutate_gguf - changes GGUF files where it matters: the mutator knows where their counts,
 * lengths, types, dimensions and offsets lie; and, with mutate_checkpoint, whole pairs and tensors.
 */
#include <stdint.h>
#include <string.h>

#include "formats/gguf.h"
#include "mutate_checkpoint.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t max_size, unsigned int seed);

/* Of libFuzzer; a program without it, which only replays, has none. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));

#define MAX_FIELDS 512

struct field {
    size_t at, bytes; /* an integer of 4 or 8 bytes */
};

/* Walks a file as far as it makes sense, noting where its integers lie. */
struct walk {
    const uint8_t *data;
    size_t size, at;
    struct field fields[MAX_FIELDS];
    size_t n;
};

static uint64_t walk_int(struct walk *w, size_t bytes)
{
    uint64_t value = 0;
    if (w->size - w->at < bytes) {
        w->at = w->size;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)w->data[w->at + i] << (8 * i);
    if (w->n < MAX_FIELDS)
        w->fields[w->n++] = (struct field){w->at, bytes};
    w->at += bytes;
    return value;
}

static void walk_skip(struct walk *w, uint64_t bytes)
{
    w->at += bytes < w->size - w->at ? (size_t)bytes : w->size - w->at;
}

static void walk_value(struct walk *w, uint64_t kind)
{
    static const unsigned char sizes[13] = {1, 1, 2, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0};
    if (kind == GGUF_STRING)
        walk_skip(w, walk_int(w, 8));
    else if (kind < 13 && sizes[kind])
        walk_skip(w, sizes[kind]);
    else
        walk_int(w, kind == GGUF_U64 || kind == GGUF_I64 || kind == GGUF_F64 ? 8 : 4);
}

static void walk_file(struct walk *w)
{
    w->at = w->size < 4 ? w->size : 4;
    walk_int(w, 4);
    const uint64_t n_tensors = walk_int(w, 8), n_pairs = walk_int(w, 8);
    for (uint64_t i = 0; i < n_pairs && w->at < w->size; i++) {
        walk_skip(w, walk_int(w, 8));
        const uint64_t kind = walk_int(w, 4);
        if (kind != GGUF_ARRAY) {
            walk_value(w, kind);
            continue;
        }
        const uint64_t element = walk_int(w, 4), count = walk_int(w, 8);
        for (uint64_t k = 0; k < count && w->at < w->size; k++)
            walk_value(w, element);
    }
    for (uint64_t i = 0; i < n_tensors && w->at < w->size; i++) {
        walk_skip(w, walk_int(w, 8));
        const uint64_t n_dims = walk_int(w, 4);
        for (uint64_t d = 0; d < n_dims && d < 8; d++)
            walk_int(w, 8);
        walk_int(w, 4);
        walk_int(w, 8);
    }
}

/* Another value for an integer of a file of `size` bytes, of which `left` follow it. */
static uint64_t odd_value(uint64_t old, size_t size, size_t left, uint64_t *random)
{
    static const uint64_t odd[] = {
        0,
        1,
        2,
        3,
        4,
        8,
        9,
        12,
        13,
        32,
        33,
        64,
        65535,
        65536,
        INT32_MAX,
        1u << 31,
        UINT32_MAX,
        1ull << 32,
        (1ull << 32) + 1,
        1ull << 61,
        1ull << 62,
        INT64_MAX,
        1ull << 63,
        UINT64_MAX - 31,
        UINT64_MAX,
    };
    switch (next_random(random) % 8) {
    case 0:
        return old + 1;
    case 1:
        return old - 1;
    case 2:
        return left + next_random(random) % 3 - 1;
    case 3:
        return size + next_random(random) % 3 - 1;
    case 4:
        return old ^ 1ull << next_random(random) % 64;
    case 5:
        return next_random(random) % 48;
    case 6:
        return old + 32 * (next_random(random) % 5) - 64;
    default:
        return odd[next_random(random) % (sizeof odd / sizeof odd[0])];
    }
}

static uint64_t load(const uint8_t *p, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static void store(uint8_t *p, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

/* Changes one integer, or copies another one of its size over it (offsets and names that are the
 * same, dimensions swapped). */
static void mutate_field(uint8_t *data, size_t size, const struct walk *w, uint64_t *random)
{
    const struct field f = w->fields[next_random(random) % w->n];
    const struct field other = w->fields[next_random(random) % w->n];
    if (next_random(random) % 4 == 0 && other.bytes == f.bytes) {
        memmove(data + f.at, data + other.at, f.bytes);
        return;
    }
    const size_t left = size - f.at - f.bytes;
    store(data + f.at, odd_value(load(data + f.at, f.bytes), size, left, random), f.bytes);
}

/* Repeats what lies between two fields, records for the most part; the new size. */
static size_t repeat_fields(uint8_t *data, size_t size, size_t max_size, const struct walk *w,
                            uint64_t *random)
{
    const size_t first = next_random(random) % w->n;
    const size_t from = w->fields[first].at;
    const size_t end = w->fields[first + next_random(random) % (w->n - first)].at;
    if (end - from > max_size - size)
        return size;
    memmove(data + end + (end - from), data + end, size - end);
    memcpy(data + end, data + from, end - from);
    return size + (end - from);
}

/* Changes integers, or bytes, whatever comes of it. */
static size_t mutate_bytes(uint8_t *data, size_t size, size_t max_size, uint64_t *random)
{
    static struct walk w; /* too large for some stacks; libFuzzer mutates in one thread */
    w = (struct walk){.data = data, .size = size};
    walk_file(&w);
    const uint64_t choice = next_random(random) % 8;
    if (w.n == 0 || choice == 0)
        return LLVMFuzzerMutate ? LLVMFuzzerMutate(data, size, max_size) : size;
    if (choice == 1) /* truncated */
        return size - next_random(random) % (size < 64 ? size : 64);
    if (choice == 2)
        return repeat_fields(data, size, max_size, &w, random);
    for (uint64_t i = 0; i <= choice / 5; i++)
        mutate_field(data, size, &w, random);
    return size;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    uint64_t random = seed * 0x9e3779b97f4a7c15u + 1;
    const uint64_t choice = next_random(&random) % 64;
    size_t result = 0;
    if (choice == 0)
        result = make_checkpoint(data, max_size, &random);
    else if (choice < 32)
        result = mutate_checkpoint(data, size, max_size, &random);
    return result ? result : mutate_bytes(data, size, max_size, &random);
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t max_size, unsigned int seed)
{
    uint64_t random = seed * 0x9e3779b97f4a7c15u + 2;
    return cross_checkpoints(a, a_size, b, b_size, out, max_size, &random);
}
