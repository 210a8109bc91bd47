/*
 * checked - the one place where sizes are added, multiplied and rounded.
 *
 * Every size that a file or a flag can influence goes through these: on overflow they return
 * false and leave *out as it was.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

static inline bool u64_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool u64_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* The same, but what does not fit is UINT64_MAX. */
static inline uint64_t u64_sum(uint64_t a, uint64_t b)
{
    uint64_t r;
    return u64_add(a, b, &r) ? r : UINT64_MAX;
}

static inline uint64_t u64_product(uint64_t a, uint64_t b)
{
    uint64_t r;
    return u64_mul(a, b, &r) ? r : UINT64_MAX;
}

static inline uint64_t u64_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t u64_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Rounds a up to a multiple of align, which is a power of two (asserted). */
static inline bool u64_align_up(uint64_t a, uint64_t align, uint64_t *out)
{
    assert(align > 0 && (align & (align - 1)) == 0);
    uint64_t r;
    if (!u64_add(a, align - 1, &r))
        return false;
    *out = r & ~(align - 1);
    return true;
}
