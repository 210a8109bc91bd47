/*
 * cache_type - how a KV cache holds its numbers: one table, which everything that names, lists,
 * counts, stores or reads cached numbers loops over.
 */
#pragma once

#include <stdbool.h>

#include "base/numbers.h"
#include "compute/matrix.h"

/* The types, the largest first. */
enum cache_type { CACHE_F32, CACHE_F16, CACHE_Q8_0, CACHE_Q5_0, CACHE_Q4_0, CACHE_TYPES };

struct cache_type_info {
    int bits;          /* that a number takes, without its share of a scale */
    bool has_scales;   /* QUANT_BLOCK numbers of a key or value, the last block perhaps fewer, are
                          integers that share a binary16 scale */
    size_t cell_bytes; /* keys of a panel lie cell by cell, see struct kv_chunk */
    double largest;    /* the largest magnitude that it can hold */
};
extern const struct cache_type_info cache_types[CACHE_TYPES];
extern const char *const cache_type_names[CACHE_TYPES + 1]; /* of the same order, then NULL */

/* Whether numbers lie in words, each with the lower four bits of eight numbers. */
static inline bool cache_in_words(enum cache_type t)
{
    return t == CACHE_Q5_0 || t == CACHE_Q4_0;
}

/* The words of n numbers, without their fifth bits. */
static inline size_t cache_words(int n)
{
    return ((size_t)n + 7) / 8;
}

/* The cells of one position's key of n numbers. */
static inline size_t cache_key_cells(enum cache_type t, int n)
{
    return t == CACHE_Q5_0   ? cache_words(n) + (size_t)quant_blocks(n)
           : t == CACHE_Q4_0 ? cache_words(n)
                             : (size_t)n;
}

/* The bytes of one position's value of n numbers, which is in whole lanes; without scales. */
static inline size_t cache_value_bytes(enum cache_type t, int n)
{
    return (size_t)kernel_padded(n) / 8 * (size_t)cache_types[t].bits;
}

/* --- rotation --------------------------------------------------------------------------------- */

/*
 * A few numbers of a key or value are much larger than the others, and a block that has one of
 * these has few levels left for the rest. So what is stored in few bits is multiplied by a Hadamard
 * matrix H first, which spreads each number over all: H is its own transpose and inverse, so that
 * products with a query multiplied by H are what they were, and a sum of values times H is theirs.
 *
 * Returns the size of H for keys or values of n numbers: the largest power of two that divides n,
 * at most CACHE_MOST_ROTATED; each run of so many numbers is multiplied by it. 0 where there is
 * none: for a type without scales, and for less than 8.
 */
int cache_rotation(enum cache_type t, int n);
#define CACHE_MOST_ROTATED 256

/* --- keys and values -------------------------------------------------------------------------- */

/* What a cache holds keys as, and values. */
struct kv_type {
    enum cache_type keys, values;
};

/* "q8_0", or "q8_0/q4_0" where keys and values differ. */
struct kv_type_name {
    char text[16];
};
struct kv_type_name kv_type_name(struct kv_type t);

/* Both are t. */
static inline struct kv_type kv_type_of(enum cache_type t)
{
    return (struct kv_type){t, t};
}

/* A pair as an item of an int_list: from 0 to KV_TYPES - 1, and back. */
#define KV_TYPES (CACHE_TYPES * CACHE_TYPES)
static inline int kv_type_item(struct kv_type t)
{
    return t.keys * CACHE_TYPES + t.values;
}
static inline struct kv_type kv_type_at(int item)
{
    return (struct kv_type){item / CACHE_TYPES, item % CACHE_TYPES};
}

/* Appends the items of a list "f16,q8_0/q4_0", each K or K/V, the types of keys and of values.
 * STATUS_USAGE, as the functions of base/numbers.h. */
enum status list_kv_types(const char *option, const char *text, struct int_list *list,
                          struct err *e);
