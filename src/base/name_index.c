/*
 * Names to positions by a sorted array. The names come from files that may be hostile: in a
 * hash table a few hundred thousand colliding names would take quadratic time, and a secret key
 * would make runs differ. Sorting by hash, then name, costs n log n comparisons whatever the
 * names are; almost all of them compare two adjacent integers.
 */
#include "base/name_index.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

static struct text name_at(const struct name_index *ix, size_t position)
{
    return *(const struct text *)(const void *)((const char *)ix->records + position * ix->stride);
}

/* FNV-1a, 64 bits. */
static uint64_t hash_of(struct text name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < name.len; i++)
        hash = (hash ^ (unsigned char)name.data[i]) * 0x100000001b3u;
    return hash;
}

/* Any total order will do; lengths first spares most comparisons of bytes. */
static int compare_names(struct text a, struct text b)
{
    if (a.len != b.len)
        return a.len < b.len ? -1 : 1;
    return a.len ? memcmp(a.data, b.data, a.len) : 0;
}

/* Whether b has to stand before a; ix is NULL where only keys count. */
static bool out_of_order(const struct name_index *ix, struct index_entry a, struct index_entry b)
{
    if (a.key != b.key)
        return b.key < a.key;
    return ix && compare_names(name_at(ix, b.position), name_at(ix, a.position)) < 0;
}

/* Merges the sorted from[0, half) and from[half, n) into to. */
static void merge_sorted(const struct name_index *ix, const struct index_entry *from, size_t half,
                         size_t n, struct index_entry *to)
{
    assert(half <= n && from != to);
    size_t a = 0, b = half;
    for (size_t i = 0; i < n; i++) {
        const bool second = a == half || (b < n && out_of_order(ix, from[a], from[b]));
        to[i] = second ? from[b++] : from[a++];
    }
}

static size_t at_most(size_t a, size_t limit)
{
    return a < limit ? a : limit;
}

/* A stable merge sort, from the bottom up: never quadratic, no recursion. */
static void sort_entries(const struct name_index *ix, struct index_entry *entries,
                         struct index_entry *scratch, size_t n)
{
    struct index_entry *from = entries, *to = scratch;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t i = 0; i < n; i += at_most(2 * width, n - i))
            merge_sorted(ix, from + i, at_most(width, n - i), at_most(2 * width, n - i), to + i);
        struct index_entry *swap = from;
        from = to;
        to = swap;
    }
    if (from != entries)
        memcpy(entries, from, n * sizeof *entries);
}

void index_sort_by_key(struct index_entry *entries, struct index_entry *scratch, size_t n)
{
    sort_entries(NULL, entries, scratch, n);
}

/* Finds two neighbours of one name. */
static void find_duplicate(const struct name_index *ix, size_t *first, size_t *second)
{
    for (size_t i = 1; i < ix->n; i++) {
        const struct index_entry a = ix->entries[i - 1], b = ix->entries[i];
        if (a.key == b.key && text_equal(name_at(ix, a.position), name_at(ix, b.position))) {
            *first = a.position;
            *second = b.position;
            return;
        }
    }
}

enum status name_index_build(struct name_index *ix, const void *records, size_t stride, size_t n,
                             size_t *first, size_t *second, struct err *e)
{
    assert(stride >= sizeof(struct text) && (records || n == 0));
    *ix = (struct name_index){.records = records, .stride = stride, .n = n};
    *first = *second = n;
    if (n == 0)
        return STATUS_OK;
    size_t bytes;
    if (!size_of_array(n, sizeof(struct index_entry), &bytes))
        return err_no_memory(e, "the index of names", n);
    struct index_entry *scratch = malloc(bytes);
    ix->entries = malloc(bytes);
    if (!ix->entries || !scratch) {
        free(scratch);
        return err_no_memory(e, "the index of names", bytes);
    }
    for (size_t i = 0; i < n; i++)
        ix->entries[i] = (struct index_entry){hash_of(name_at(ix, i)), i};
    sort_entries(ix, ix->entries, scratch, n);
    free(scratch);
    find_duplicate(ix, first, second);
    return STATUS_OK;
}

size_t name_index_find(const struct name_index *ix, struct text name)
{
    const uint64_t hash = hash_of(name);
    size_t low = 0, high = ix->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct index_entry entry = ix->entries[middle];
        const int order = entry.key != hash ? (hash < entry.key ? -1 : 1)
                                            : compare_names(name, name_at(ix, entry.position));
        if (order == 0)
            return entry.position;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return ix->n;
}

void name_index_free(struct name_index *ix)
{
    free(ix->entries);
    *ix = (struct name_index){0};
}
