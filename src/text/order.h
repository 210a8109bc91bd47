/*
 * order - texts by their bytes, read backwards.
 *
 * A text follows right after all that it ends with.
 */
#ifndef DECODE_TEXT_ORDER_H
#define DECODE_TEXT_ORDER_H

#include "base/text.h"

/* The i-th byte from the end. */
static inline unsigned char order_byte_back(struct text s, size_t i)
{
    return (unsigned char)s.data[s.len - 1 - i];
}

static inline int order_backwards(struct text a, struct text b)
{
    for (size_t i = 0; i < a.len && i < b.len; i++)
        if (order_byte_back(a, i) != order_byte_back(b, i))
            return order_byte_back(a, i) < order_byte_back(b, i) ? -1 : 1;
    return (a.len > b.len) - (a.len < b.len);
}

#endif
