/*
 * bytes - a run of bytes that grows, its memory used again.
 */
#ifndef DECODE_BASE_BYTES_H
#define DECODE_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

/* Zeroed: empty, without memory. */
struct bytes {
    char *data;
    size_t len, cap;
};

/* Makes room for `more` bytes behind the last. False without memory: then nothing has changed. */
bool bytes_reserve(struct bytes *b, size_t more);

/* Appends; false as above. */
bool bytes_put(struct bytes *b, struct text more);

void bytes_free(struct bytes *b); /* and zeroes it; legal twice */

/* Valid until the next change. */
static inline struct text bytes_text(const struct bytes *b)
{
    return (struct text){b->data ? b->data : "", b->len};
}

#endif
