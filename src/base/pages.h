/*
 * pages - memory for large blocks (private to mem.c).
 */
#pragma once

#include <stddef.h>

/* From this size on a block is made of pages of its own, on a boundary that huge pages can fill. */
#define HUGE_PAGE ((size_t)2 << 20)

/* Returns zeroed memory, or NULL without memory. pages_give takes the same size. */
void *pages_take(size_t bytes);
void pages_give(void *block, size_t bytes);
