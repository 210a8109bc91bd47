/*
 * mem - aligned arenas: count first, allocate once, take. And arrays that grow, where nobody can
 * count first.
 *
 * A component writes down its pieces once, in a function that takes them from an arena. Run on an
 * arena that has no memory yet, the function counts them (each piece is NULL); after
 * arena_allocate the same function, run again, gets them. No piece is freed alone.
 *
 *     struct arena a = {0};
 *     take_buffers(&a, s);                          // counts: a.used bytes
 *     status = arena_allocate(&a, "the buffers", e);
 *     take_buffers(&a, s);                          // takes
 */
#ifndef DECODE_BASE_MEM_H
#define DECODE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Pieces start on cache-line (and AVX-512 vector) boundaries. */
#define MEM_ALIGN 64

struct arena {
    unsigned char *base; /* NULL while counting */
    size_t cap;          /* bytes at base; 0 while counting */
    size_t used;         /* bytes taken, or counted; rounded up to MEM_ALIGN after every piece */
    bool overflow;       /* sticky while counting: some size did not fit */
};

static inline bool arena_is_counting(const struct arena *a)
{
    return !a->base;
}

/*
 * Ends the counting: one zeroed, MEM_ALIGN-aligned block of `used` bytes, which becomes 0 again;
 * `what` names it in the message. Zero pages are not touched, so memory counts as used only when
 * written. Fails with STATUS_NO_MEMORY when the count overflowed or the system refuses; then the
 * arena is zeroed. Large blocks ask for huge pages (a hint).
 */
enum status arena_allocate(struct arena *a, const char *what, struct err *e);

/* The next count * size bytes, zeroed; while counting NULL. Only pieces that were counted may be
 * taken (asserted). */
void *arena_take(struct arena *a, uint64_t count, uint64_t size);

/* Legal on a zeroed struct and twice. */
void arena_free(struct arena *a);

/*
 * Makes room for n elements of `size` bytes in a malloc'd array (NULL: none yet) that has room for
 * *cap; when it has to grow, by half of n and some more. Returns where it is now; NULL without
 * memory: then nothing has changed.
 */
void *array_grow(void *array, size_t n, size_t *cap, size_t size);

#endif
