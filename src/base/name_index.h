/*
 * name_index - texts, and numbers for them, in an order in which they are found.
 *
 * Sorted rather than hashed: files that may be hostile have no collisions to arrange, and no secret
 * key makes runs differ. The first eight bytes as a number settle most comparisons without a look
 * at the text.
 */
#pragma once

#include "base/status.h"
#include "base/text.h"

struct indexed {
    uint64_t head;
    struct text text;            /* borrowed */
    const struct indexed *start; /* the longest other entry that this one starts with, or NULL */
    int32_t id;
    int32_t rank; /* of equal texts the lower rank comes first, then the lower id */
};

/* Begins zeroed. It may be searched once it is sorted, for the longest text once it is linked; from
 * then on it does not change. */
struct name_index {
    struct indexed *list; /* [n] sorted */
    size_t n, cap;
};

/* STATUS_NO_MEMORY. */
enum status name_index_add(struct name_index *x, struct text text, int32_t id, int rank,
                           struct err *e);
void name_index_sort(struct name_index *x);
/* Links each text of a sorted index to the longest other text that it starts with. */
void name_index_link(struct name_index *x);
/* Returns the first entry with this text, or NULL. Takes O(log n) comparisons. */
const struct indexed *name_index_find(const struct name_index *x, struct text text);
/* Returns the first entry of the longest text that `text` starts with, or NULL. The index must be
 * linked. Takes O(log n) comparisons. */
const struct indexed *name_index_longest(const struct name_index *x, struct text text);
void name_index_free(struct name_index *x); /* legal on a zeroed struct and twice */
