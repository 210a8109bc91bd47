/*
 * order - texts by their bytes, read forwards or backwards.
 *
 * Both are orders in which a text follows right after all that it starts with (ends with).
 */
#ifndef DECODE_TEXT_ORDER_H
#define DECODE_TEXT_ORDER_H

#include "base/text.h"

/* The i-th byte from the end. */
static inline unsigned char order_byte_back(struct text s, size_t i)
{
    return (unsigned char)s.data[s.len - 1 - i];
}

static inline int order_forwards(struct text a, struct text b)
{
    const size_t shorter = a.len < b.len ? a.len : b.len;
    const int order = shorter > 0 ? memcmp(a.data, b.data, shorter) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static inline int order_backwards(struct text a, struct text b)
{
    for (size_t i = 0; i < a.len && i < b.len; i++)
        if (order_byte_back(a, i) != order_byte_back(b, i))
            return order_byte_back(a, i) < order_byte_back(b, i) ? -1 : 1;
    return (a.len > b.len) - (a.len < b.len);
}

#endif
