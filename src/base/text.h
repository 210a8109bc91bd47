/*
 * text - runs of bytes, borrowed or growing. What takes no struct bytes is a pure function of its
 * arguments.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* --- borrowed -------------------------------------------------------------------------------- */

/* Borrowed bytes; any values, zero included. Lives as long as what it points into. */
struct text {
    const char *data;
    size_t len; /* bytes */
};

static inline struct text text_span(const char *data, size_t len)
{
    return (struct text){data, len};
}

static inline struct text text_of(const char *s)
{
    return text_span(s, strlen(s));
}

static inline bool text_equal(struct text a, struct text b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Compares by bytes, as memcmp does; a text comes before those that it starts. */
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

static inline bool str_is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
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

/* Returns what begins at byte `at` <= a.len. */
static inline struct text text_from(struct text a, size_t at)
{
    return text_span(a.data + at, a.len - at);
}

/* Cuts the first n <= rest->len bytes off *rest and returns them. */
static inline struct text text_cut(struct text *rest, size_t n)
{
    const struct text first = {rest->data, n};
    rest->data += n;
    rest->len -= n;
    return first;
}

/* Cuts off the spaces that *rest begins with. */
static inline void text_skip_spaces(struct text *rest)
{
    while (rest->len > 0 && *rest->data == ' ')
        text_cut(rest, 1);
}

/* Moves *at <= text.len behind the next place from there on where `word` stands as a word: beside
 * its ends are no letters and digits that go on with it. Bytes beyond ASCII count as letters.
 * False, and leaves *at alone: there is none, or the word is empty. */
bool text_next_word(struct text text, struct text word, size_t *at);

/* Cuts the first line off *rest and returns it without its end: a newline, which the last line may
 * lack, and one carriage return before that. */
struct text text_cut_line(struct text *rest);

/* Returns the length for printf's "%.*s", at most 200, so that hostile names stay short. */
static inline int text_width(struct text a)
{
    return a.len < 200 ? (int)a.len : 200;
}

/* Prints into an array of char, not to where a pointer points; what does not fit is cut off. */
#define chars_printf(array, ...) snprintf((array), sizeof(array), __VA_ARGS__)

/* Prints behind what the array holds already. */
#define chars_append(array, ...)                                                                   \
    snprintf((array) + strlen(array), sizeof(array) - strlen(array), __VA_ARGS__)

/* Returns "a, b or c" of names that end with NULL; `last` stands before the last of several. */
struct joined {
    char text[128];
};
struct joined names_joined(const char *const *names, const char *last);

/* --- growing --------------------------------------------------------------------------------- */

/* A run of bytes that grows, its memory used again. Zeroed: empty, without memory. */
struct bytes {
    char *data;
    size_t len, cap;
};

/* Makes room for `more` bytes behind the last. False without memory: then nothing has changed. */
bool bytes_reserve(struct bytes *b, size_t more);

/* Appends bytes. False without memory: then nothing has changed. */
bool bytes_put(struct bytes *b, struct text more);

void bytes_free(struct bytes *b); /* and zeroes it; legal twice */

/* Returns the bytes, valid until the next change. */
static inline struct text bytes_text(const struct bytes *b)
{
    return text_span(b->data ? b->data : "", b->len);
}
