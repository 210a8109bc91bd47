#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"

/* At and above this size a block is mapped, on a 2 MiB boundary that huge pages can fill. */
#define HUGE_PAGE ((size_t)2 << 20)

void mem_plan_add(struct mem_plan *p, uint64_t count, uint64_t size)
{
    uint64_t bytes, total;
    if (!u64_mul(count, size, &bytes) || !u64_align_up(bytes, MEM_ALIGN, &bytes) ||
        !u64_add(p->bytes, bytes, &total) || total > PTRDIFF_MAX - HUGE_PAGE) {
        p->overflow = true;
        return;
    }
    p->bytes = (size_t)total;
}

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

enum status arena_create(struct arena *a, const struct mem_plan *p, const char *what, struct err *e)
{
    *a = (struct arena){0};
    if (p->overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: %s needs more bytes than can be "
                       "addressed",
                       what);
    const size_t bytes = p->bytes ? p->bytes : MEM_ALIGN;
    void *base = NULL;
    if (bytes >= HUGE_PAGE) {
        base = map_huge(mapped_bytes(bytes));
    } else {
        base = aligned_alloc(MEM_ALIGN, bytes);
        if (base)
            memset(base, 0, bytes);
    }
    if (!base)
        return err_no_memory(e, what, bytes);
    *a = (struct arena){.base = base, .cap = bytes};
    return STATUS_OK;
}

enum status arena_allocate(struct arena *a, const char *what, struct err *e)
{
    const struct mem_plan p = {.bytes = a->used, .overflow = a->overflow};
    return arena_create(a, &p, what, e);
}

void *arena_take(struct arena *a, uint64_t count, uint64_t size)
{
    struct mem_plan piece = {.bytes = a->used, .overflow = a->overflow};
    mem_plan_add(&piece, count, size);
    if (arena_is_counting(a)) {
        a->used = piece.bytes;
        a->overflow = piece.overflow;
        return NULL;
    }
    assert(!piece.overflow && piece.bytes <= a->cap);
    void *p = a->base + a->used;
    a->used = piece.bytes;
    return p;
}

void arena_free(struct arena *a)
{
    if (a->base && a->cap >= HUGE_PAGE)
        munmap(a->base, mapped_bytes(a->cap));
    else
        free(a->base);
    *a = (struct arena){0};
}
