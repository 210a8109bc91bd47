#include "cli/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status stream_create(struct stream *s, const char *const *stops, int n_stops, size_t max_piece,
                          struct err *e)
{
    size_t longest = 0;
    for (int i = 0; i < n_stops; i++) {
        const size_t len = strlen(stops[i]);
        longest = len > longest ? len : longest;
    }
    /* Held back at most: a stop string short of one byte, and three bytes of a character. */
    const size_t cap = longest + 3 + max_piece;
    *s = (struct stream){.stops = stops,
                         .n_stops = n_stops,
                         .longest_stop = longest,
                         .cap = cap,
                         .bytes = malloc(cap)};
    return s->bytes ? STATUS_OK : err_no_memory(e, "the output stream", cap);
}

void stream_free(struct stream *s)
{
    free(s->bytes);
    *s = (struct stream){.bytes = NULL};
}

size_t utf8_cut_short(struct text bytes)
{
    const unsigned char *end = (const unsigned char *)bytes.data + bytes.len;
    for (size_t back = 1; back <= 3 && back <= bytes.len; back++) {
        const unsigned char lead = end[-(ptrdiff_t)back];
        if ((lead & 0xc0) == 0x80)
            continue;
        const size_t full = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
        if (lead < 0xc2 || lead > 0xf4 || back >= full)
            return 0;
        if (back == 1)
            return 1;
        /* The first continuation byte rules out overlong forms, surrogates and > U+10FFFF. */
        const unsigned char next = end[1 - (ptrdiff_t)back];
        const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        return next >= low && next <= high ? back : 0;
    }
    return 0;
}

/* Length of the longest stop string that ends exactly at bytes[end], or 0. */
static size_t stop_ending_at(const struct stream *s, size_t end)
{
    size_t longest = 0;
    for (int i = 0; i < s->n_stops; i++) {
        const size_t len = strlen(s->stops[i]);
        if (len > longest && len <= end && memcmp(s->bytes + end - len, s->stops[i], len) == 0)
            longest = len;
    }
    return longest;
}

/* Whether the last n bytes begin some stop string that is longer. */
static bool may_become_stop(const struct stream *s, size_t n)
{
    for (int i = 0; i < s->n_stops; i++)
        if (strlen(s->stops[i]) > n && memcmp(s->bytes + s->len - n, s->stops[i], n) == 0)
            return true;
    return false;
}

static size_t held_for_stop(const struct stream *s)
{
    for (size_t n = s->longest_stop < s->len ? s->longest_stop : s->len; n > 0; n--)
        if (may_become_stop(s, n))
            return n;
    return 0;
}

static void drop_taken(struct stream *s)
{
    memmove(s->bytes, s->bytes + s->taken, s->len - s->taken);
    s->len -= s->taken;
    s->taken = 0;
}

struct text stream_push(struct stream *s, struct text piece)
{
    drop_taken(s);
    if (s->stopped)
        return (struct text){s->bytes, 0};
    assert(piece.len <= s->cap - s->len);
    for (size_t i = 0; i < piece.len; i++) {
        s->bytes[s->len++] = piece.data[i];
        const size_t stop = stop_ending_at(s, s->len);
        if (stop) {
            s->stopped = true;
            s->taken = s->len -= stop;
            return (struct text){s->bytes, s->taken};
        }
    }
    s->taken = s->len - held_for_stop(s);
    s->taken -= utf8_cut_short((struct text){s->bytes, s->taken});
    return (struct text){s->bytes, s->taken};
}

struct text stream_finish(struct stream *s)
{
    drop_taken(s);
    const struct text rest = {s->bytes, s->len};
    s->len = 0;
    s->stopped = false;
    return rest;
}
