#include "base/mem.h"

#include <string.h>

#include "base/pages.h"

enum status arena_allocate(struct arena *a, const char *what, struct err *e)
{
    const struct arena counted = *a;
    assert(!a->base);
    *a = (struct arena){0};
    if (counted.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: %s needs more bytes than can be addressed", what);
    const size_t bytes = counted.used ? counted.used : MEM_ALIGN;
    const bool large = bytes >= HUGE_PAGE; /* and zeroed */
    void *base = large ? pages_take(bytes) : aligned_alloc(MEM_ALIGN, bytes);
    if (!base)
        return err_no_memory(e, what, bytes);
    if (!large)
        memset(base, 0, bytes);
    *a = (struct arena){.base = base, .cap = bytes};
    return STATUS_OK;
}

void *arena_take(struct arena *a, uint64_t count, uint64_t size)
{
    const size_t at = a->used;
    const uint64_t total = u64_sum(at, u64_align_up(u64_product(count, size), MEM_ALIGN));
    const bool fits = total <= PTRDIFF_MAX - HUGE_PAGE;
    if (fits)
        a->used = total;
    if (!a->base) { /* counting */
        a->overflow |= !fits;
        return NULL;
    }
    assert(fits && a->used <= a->cap);
    return a->base + at;
}

void arena_free(struct arena *a)
{
    if (a->base && a->cap >= HUGE_PAGE)
        pages_give(a->base, a->cap);
    else
        free(a->base);
    *a = (struct arena){0};
}

void *array_zeroed(size_t n, size_t size, const char *what, struct err *e)
{
    void *array = calloc(n, size);
    if (!array)
        err_no_memory(e, what, n * size);
    return array;
}

void *array_grow(void *array, size_t n, size_t *cap, size_t size)
{
    if (n <= *cap)
        return array;
    const size_t wanted = n + n / 2 + 64;
    const uint64_t bytes = u64_product(wanted, size);
    void *larger = wanted > n && bytes <= PTRDIFF_MAX ? realloc(array, bytes) : NULL;
    if (larger)
        *cap = wanted;
    return larger;
}
