/*
 * mem - aligned arenas: count first, allocate once, take. Arrays that grow, where nobody can count
 * first; sizes; assertions.
 *
 * A component takes its pieces from an arena in one function, which is run twice. On an arena that
 * has no memory yet it counts them (each piece is NULL); after arena_allocate it gets them. No
 * piece is freed alone.
 *
 *     struct arena a = {0};
 *     take_buffers(&a, s);                          // counts: a.used bytes
 *     status = arena_allocate(&a, "the buffers", e);
 *     take_buffers(&a, s);                          // takes
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/status.h"

/* Pieces start on cache-line (and AVX-512 vector) boundaries. */
#define MEM_ALIGN 64

struct arena {
    unsigned char *base; /* NULL while counting */
    size_t cap;          /* bytes at base; 0 while counting */
    size_t used;         /* bytes taken, or counted; rounded up to MEM_ALIGN after every piece */
    bool overflow;       /* sticky while counting: some size did not fit */
};

/*
 * Ends the counting: allocates one zeroed block of `used` bytes, aligned to MEM_ALIGN, and sets
 * `used` back to 0. `what` names the block in the message. Pages are not touched, so memory counts
 * as used only once it is written. STATUS_NO_MEMORY if the count overflowed or the system refuses;
 * then the arena is zeroed. Large blocks ask for huge pages (a hint).
 */
enum status arena_allocate(struct arena *a, const char *what, struct err *e);

/* Takes the next count * size bytes, which are zeroed; while counting, returns NULL. Only pieces
 * that were counted may be taken (asserted). */
void *arena_take(struct arena *a, uint64_t count, uint64_t size);

/* Takes n elements of the pointer's own type and sets the pointer to them. */
#define ARENA_TAKE(pointer, a, n) ((pointer) = arena_take(a, n, sizeof *(pointer)))

/* Frees all pieces; legal on a zeroed struct and twice. */
void arena_free(struct arena *a);

/*
 * Makes room for n elements of `size` bytes in a malloc'd array that has room for *cap (NULL: none
 * yet). If it has to grow, it gets room for half as many more. Returns the array, which may have
 * moved; NULL if there is no memory, and then nothing has changed.
 */
void *array_grow(void *array, size_t n, size_t *cap, size_t size);

/* Allocates n zeroed elements of `size` bytes, which the caller frees. Without memory, returns NULL
 * and sets a message that names `what`. */
void *array_zeroed(size_t n, size_t size, const char *what, struct err *e);

/* Sets `pointer` to n zeroed elements of its own type, as array_zeroed allocates them. Without
 * memory the pointer is NULL, and the function that this stands in returns STATUS_NO_MEMORY. */
#define TRY_ZEROED(pointer, n, what, e)                                                            \
    do {                                                                                           \
        (pointer) = array_zeroed(n, sizeof *(pointer), what, e);                                   \
        if (!(pointer))                                                                            \
            return STATUS_NO_MEMORY;                                                               \
    } while (0)

/* Makes room for one more than n elements in an array with room for `cap`, or returns from the
 * function with STATUS_NO_MEMORY; `what` names it in the message. */
#define TRY_ROOM(array, n, cap, what, e)                                                           \
    do {                                                                                           \
        const size_t try_n = (size_t)(n) + 1;                                                      \
        void *try_array = array_grow(array, try_n, &(cap), sizeof *(array));                       \
        if (!try_array)                                                                            \
            return err_no_memory(e, what, try_n * sizeof *(array));                                \
        (array) = try_array;                                                                       \
    } while (0)

/* The number of elements of an array (which must not be a pointer), as an int. */
#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* --- sizes ------------------------------------------------------------------------------------ */

/* The arguments of MIN and MAX may be evaluated twice. */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* The one place where sizes are added, multiplied and rounded: every size that a file or a flag can
 * influence goes through these. What does not fit is UINT64_MAX. */
static inline uint64_t u64_sum(uint64_t a, uint64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? UINT64_MAX : a;
}

static inline uint64_t u64_product(uint64_t a, uint64_t b)
{
    return __builtin_mul_overflow(a, b, &a) ? UINT64_MAX : a;
}

/* Rounds a up to a multiple of align, which is a power of two (asserted). What does not fit is the
 * largest multiple. */
static inline uint64_t u64_align_up(uint64_t a, uint64_t align)
{
    assert(align > 0 && (align & (align - 1)) == 0);
    return u64_sum(a, align - 1) & ~(align - 1);
}

/* --- assertions ------------------------------------------------------------------------------- */

/*
 * A contract is stated once, in a header, and asserted where it is relied on: with assert, in every
 * build, if the check takes constant time and is done once a call; else with assert_costly, which
 * does nothing but in builds that look for mistakes (MODE=debug, asan, tsan, fuzz, cov; the
 * Makefile defines DECODE_COSTLY_ASSERTS there). Assertions are about what callers promise, never
 * about what a file or a user says: that is checked, and fails with a status.
 */

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
