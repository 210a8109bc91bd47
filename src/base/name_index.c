#include "base/name_index.h"

#include <assert.h>
#include <stdlib.h>

/* Any total order will do; lengths first spares most comparisons of bytes. */
static int compare_names(struct text a, struct text b)
{
    if (a.len != b.len)
        return a.len < b.len ? -1 : 1;
    return a.len ? memcmp(a.data, b.data, a.len) : 0;
}

static int compare_records(const void *a, const void *b)
{
    const struct text *x = *(const struct text *const *)a, *y = *(const struct text *const *)b;
    const int order = compare_names(*x, *y);
    return order ? order : (x > y) - (x < y);
}

const struct text *name_index_at(const struct name_index *ix, size_t position)
{
    return (const void *)((const char *)ix->records + position * ix->stride);
}

static size_t position_of(const struct name_index *ix, const struct text *name)
{
    return (size_t)((const char *)name - (const char *)ix->records) / ix->stride;
}

enum status name_index_build(struct name_index *ix, const void *records, size_t stride, size_t n,
                             size_t *first, size_t *second, struct err *e)
{
    assert(stride >= sizeof(struct text) && (records || n == 0));
    *ix = (struct name_index){.records = records, .stride = stride, .n = n};
    *first = *second = n;
    ix->sorted = calloc(n + !n, sizeof *ix->sorted);
    if (!ix->sorted)
        return err_no_memory(e, "the index of names", n * sizeof *ix->sorted);
    for (size_t i = 0; i < n; i++)
        ix->sorted[i] = name_index_at(ix, i);
    qsort(ix->sorted, n, sizeof *ix->sorted, compare_records);
    for (size_t i = 1; i < n && *first == n; i++)
        if (text_equal(*ix->sorted[i - 1], *ix->sorted[i])) {
            *first = position_of(ix, ix->sorted[i - 1]);
            *second = position_of(ix, ix->sorted[i]);
        }
    return STATUS_OK;
}

size_t name_index_find(const struct name_index *ix, struct text name)
{
    size_t low = 0, high = ix->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = compare_names(name, *ix->sorted[middle]);
        if (order == 0)
            return position_of(ix, ix->sorted[middle]);
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return ix->n;
}

void name_index_free(struct name_index *ix)
{
    free(ix->sorted);
    *ix = (struct name_index){0};
}
