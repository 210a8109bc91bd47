#include "base/pages.h"

#include <stdint.h>
#include <sys/mman.h>

/* Whole pages, so that what is given back starts on a page boundary. */
static size_t mapped_bytes(size_t bytes)
{
    return (bytes + 65535) & ~(size_t)65535;
}

void *pages_take(size_t bytes)
{
    /* Map one huge page more than needed, then give back what lies outside the aligned part. */
    const size_t mapped = mapped_bytes(bytes), length = mapped + HUGE_PAGE;
    unsigned char *raw =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    const size_t skip = (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
    unsigned char *base = raw + skip;
    if (skip)
        munmap(raw, skip);
    if (length - skip > mapped)
        munmap(base + mapped, length - skip - mapped);
#ifdef MADV_HUGEPAGE
    madvise(base, mapped, MADV_HUGEPAGE);
#endif
    return base;
}

void pages_give(void *block, size_t bytes)
{
    munmap(block, mapped_bytes(bytes));
}
