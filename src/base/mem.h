/*
 * mem - aligned arenas: size first, allocate once, carve.
 *
 * A component adds up what it needs in a struct mem_plan, allocates one arena of that size and
 * takes its pieces in the same order. No piece is freed alone.
 */
#ifndef DECODE_BASE_MEM_H
#define DECODE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Pieces start on cache-line (and AVX-512 vector) boundaries. */
#define MEM_ALIGN 64

struct mem_plan {
    size_t bytes;  /* rounded up to MEM_ALIGN after every piece */
    bool overflow; /* sticky: some size did not fit */
};

/* Adds a piece of count * size bytes. */
void mem_plan_add(struct mem_plan *p, uint64_t count, uint64_t size);

struct arena {
    unsigned char *base; /* NULL before arena_create and after arena_free */
    size_t cap, used;    /* bytes */
};

/*
 * Allocates one zeroed, MEM_ALIGN-aligned block for the plan; `what` names it in the message.
 * Zero pages are not touched, so memory counts as used only when written. Fails with
 * STATUS_NO_MEMORY when the plan overflowed or the system refuses. Large blocks ask for huge
 * pages (a hint).
 */
enum status arena_create(struct arena *a, const struct mem_plan *p, const char *what,
                         struct err *e);

/* The next count * size bytes, zeroed. Only for pieces that the plan counted (asserted). */
void *arena_take(struct arena *a, uint64_t count, uint64_t size);

/* Legal on a zeroed struct and twice. */
void arena_free(struct arena *a);

#endif
