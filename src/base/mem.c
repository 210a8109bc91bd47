#include "base/mem.h"

#include <string.h>
#include <sys/mman.h>

/* At and above this size a block is mapped, on a 2 MiB boundary that huge pages can fill. */
#define HUGE_PAGE ((size_t)2 << 20)

static void *map_huge(size_t bytes)
{
    /* Map one huge page more than needed, then give back what lies outside the aligned part. */
    const size_t length = bytes + HUGE_PAGE;
    unsigned char *raw =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    const size_t skip = (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
    unsigned char *base = raw + skip;
    if (skip)
        munmap(raw, skip);
    if (length - skip > bytes)
        munmap(base + bytes, length - skip - bytes);
#ifdef MADV_HUGEPAGE
    madvise(base, bytes, MADV_HUGEPAGE);
#endif
    return base;
}

/* Whole pages, so that what map_huge gives back starts on a page boundary. */
static size_t mapped_bytes(size_t bytes)
{
    return (bytes + 65535) & ~(size_t)65535;
}

enum status arena_allocate(struct arena *a, const char *what, struct err *e)
{
    const struct arena counted = *a;
    assert(arena_is_counting(a));
    *a = (struct arena){0};
    if (counted.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: %s needs more bytes than can be addressed", what);
    const size_t bytes = counted.used ? counted.used : MEM_ALIGN;
    const bool mapped = bytes >= HUGE_PAGE; /* and zeroed */
    void *base = mapped ? map_huge(mapped_bytes(bytes)) : aligned_alloc(MEM_ALIGN, bytes);
    if (!base)
        return err_no_memory(e, what, bytes);
    if (!mapped)
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
    if (arena_is_counting(a)) {
        a->overflow |= !fits;
        return NULL;
    }
    assert(fits && a->used <= a->cap);
    return a->base + at;
}

void arena_free(struct arena *a)
{
    if (a->base && a->cap >= HUGE_PAGE)
        munmap(a->base, mapped_bytes(a->cap));
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
