/*
 * text - a borrowed run of bytes that is not null-terminated.
 */
#ifndef DECODE_BASE_TEXT_H
#define DECODE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Borrowed bytes; any values, zero included. Lives as long as what it points into. */
struct text {
    const char *data;
    size_t len; /* bytes */
};

static inline struct text text_of(const char *s)
{
    return (struct text){s, strlen(s)};
}

static inline bool text_equal(struct text a, struct text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* By bytes: a text follows right after all that it starts with. */
static inline int text_order(struct text a, struct text b)
{
    const size_t shorter = a.len < b.len ? a.len : b.len;
    const int order = shorter > 0 ? memcmp(a.data, b.data, shorter) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static inline bool text_is(struct text a, const char *s)
{
    return text_equal(a, text_of(s));
}

static inline bool text_starts_with(struct text a, const char *start)
{
    const size_t len = strlen(start);
    return a.len >= len && memcmp(a.data, start, len) == 0;
}

static inline bool text_ends_with(struct text a, const char *end)
{
    const size_t len = strlen(end);
    return a.len >= len && memcmp(a.data + a.len - len, end, len) == 0;
}

/* For printf's "%.*s": the length as an int, cut at 200 so that hostile names stay short. */
static inline int text_width(struct text a)
{
    return a.len < 200 ? (int)a.len : 200;
}

#endif
