/*
 * In WebAssembly memory is never mapped.
 */
#include "base/pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void *pages_take(size_t bytes)
{
    void *block = aligned_alloc(MEM_ALIGN, bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

void pages_give(void *block, size_t bytes)
{
    (void)bytes;
    free(block);
}
