/*
 * name_index - names to positions in an array of records, and a sort by numbers.
 *
 * The names come from files that may be hostile: time is n log n whatever they are.
 */
#ifndef DECODE_BASE_NAME_INDEX_H
#define DECODE_BASE_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

struct index_entry {
    uint64_t key;
    size_t position;
};

/* Sorts by key; equal ones stay in their order. `scratch` has n entries too and overlaps nothing.
 */
void index_sort_by_key(struct index_entry *entries, struct index_entry *scratch, size_t n);

struct name_index {
    const void *records; /* each starts with a struct text: its name */
    size_t stride, n;
    struct index_entry *entries; /* [n], by hash, then by name */
};

/*
 * Indexes n records of `stride` bytes (at least sizeof(struct text)), which must outlive ix. Two of
 * one name: *first < *second are set to such a pair, else both are n. Fails with STATUS_NO_MEMORY
 * only. To be freed in any case.
 */
enum status name_index_build(struct name_index *ix, const void *records, size_t stride, size_t n,
                             size_t *first, size_t *second, struct err *e);
/* The position of the name, or n. Logarithmic time. */
size_t name_index_find(const struct name_index *ix, struct text name);
void name_index_free(struct name_index *ix);

#endif
