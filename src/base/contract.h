/*
 * contract - assertions, cheap and costly.
 *
 * A contract is stated once, in a header, and asserted where it is relied on: with assert, in every
 * build, if the check takes constant time and is done once a call; else with assert_costly, which
 * does nothing but in builds that look for mistakes (MODE=debug, asan, tsan, fuzz, cov; the
 * Makefile defines DECODE_COSTLY_ASSERTS there). Assertions are about what callers promise, never
 * about what a file or a user says: that is checked, and fails with a status.
 */
#ifndef DECODE_BASE_CONTRACT_H
#define DECODE_BASE_CONTRACT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef DECODE_COSTLY_ASSERTS
#define assert_costly(condition) assert(condition)
#else
#define assert_costly(condition) ((void)(0 && (condition)))
#endif

/* Whether p may be used as a pointer to elements of `align` bytes; NULL may not. */
static inline bool is_aligned(const void *p, size_t align)
{
    return p && (uintptr_t)p % align == 0;
}

/* Whether two runs of bytes have none in common. */
static inline bool are_disjoint(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    const uintptr_t at = (uintptr_t)a, bt = (uintptr_t)b;
    return at < bt ? bt - at >= a_bytes : at - bt >= b_bytes;
}

#endif
