/*
 * name_index - names to positions in an array of records.
 *
 * The names come from files that may be hostile: time is n log n whatever they are, which it would
 * not be in a hash table; and a secret key for one would make runs differ.
 */
#ifndef DECODE_BASE_NAME_INDEX_H
#define DECODE_BASE_NAME_INDEX_H

#include "base/status.h"
#include "base/text.h"

struct name_index {
    const void *records; /* each starts with a struct text: its name */
    size_t stride, n;
    const struct text **sorted; /* [n], by name, equal ones in the records' order */
};

/*
 * Indexes n records of `stride` bytes (at least sizeof(struct text)), which must outlive ix. Two of
 * one name: *first < *second are set to such a pair, else both are n. Fails with STATUS_NO_MEMORY
 * only. To be freed in any case.
 */
enum status name_index_build(struct name_index *ix, const void *records, size_t stride, size_t n,
                             size_t *first, size_t *second, struct err *e);
/* The name of the record at a position. */
const struct text *name_index_at(const struct name_index *ix, size_t position);
/* The position of the name, or n. Logarithmic time. */
size_t name_index_find(const struct name_index *ix, struct text name);
void name_index_free(struct name_index *ix);

#endif
