#include "text/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum status stream_start(struct stream *s, const struct text *stops, int n_stops, size_t max_piece,
                         struct err *e)
{
    size_t longest = 0;
    for (int i = 0; i < n_stops; i++)
        longest = stops[i].len > longest ? stops[i].len : longest;
    /* Held back at most: a stop string short of one byte, and three bytes of a character. */
    const size_t cap = longest + 3 + max_piece;
    char *bytes = s->bytes;
    if (!bytes || cap > s->cap) {
        bytes = realloc(s->bytes, cap);
        if (!bytes)
            return err_no_memory(e, "the output stream", cap);
        s->cap = cap;
    }
    *s = (struct stream){.stops = stops, .n_stops = n_stops, .cap = s->cap, .bytes = bytes};
    return STATUS_OK;
}

void stream_free(struct stream *s)
{
    free(s->bytes);
    *s = (struct stream){.bytes = NULL};
}

size_t utf8_cut_short(struct text bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes.len; back++) {
        /* What some continuation makes a character, the least or the greatest does. */
        for (int rest = 0x80; rest <= 0xbf; rest += 0x3f) {
            char whole[4];
            uint32_t code;
            memset(whole, rest, sizeof whole);
            memcpy(whole, bytes.data + bytes.len - back, back);
            if (utf8_decode((struct text){whole, sizeof whole}, &code) > back)
                return back;
        }
    }
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
    size_t held = 0; /* of the last bytes, as they begin some stop string that is longer */
    for (size_t i = 0; i < piece.len; i++) {
        size_t longest = 0; /* of the stop strings that end here */
        s->bytes[s->len++] = piece.data[i];
        for (int k = 0; k < s->n_stops; k++) {
            const struct text stop = s->stops[k];
            if (stop.len > longest && stop.len <= s->len &&
                memcmp(s->bytes + s->len - stop.len, stop.data, stop.len) == 0)
                longest = stop.len;
        }
        if (longest > 0) {
            s->stopped = true;
            s->taken = s->len -= longest;
            return (struct text){s->bytes, s->taken};
        }
    }
    for (int k = 0; k < s->n_stops; k++) {
        const struct text stop = s->stops[k];
        size_t n = stop.len - 1 < s->len ? stop.len - 1 : s->len;
        while (n > held && memcmp(s->bytes + s->len - n, stop.data, n) != 0)
            n--;
        held = n > held ? n : held;
    }
    s->taken = s->len - held;
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
