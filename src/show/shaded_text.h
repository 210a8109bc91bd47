/*
 * shaded_text - text for a terminal whose tokens are shaded, each by its level (see heatmap.h).
 *
 * The bytes of a token may be held back and come out later, a few of one token and some of the
 * next: so every byte on its way has its level. A character is shaded as its first byte.
 */
#ifndef DECODE_SHOW_SHADED_TEXT_H
#define DECODE_SHOW_SHADED_TEXT_H

#include <stddef.h>

#include "base/output.h"
#include "base/text.h"
#include "show/heatmap.h"

struct shaded_text {
    unsigned char *levels; /* [cap] the caller's: room for all that is held back, and one token */
    size_t cap, len;       /* len is 0 at first */
};

/* A token of so many bytes is on its way; there is room (asserted). */
void shaded_text_push(struct shaded_text *s, size_t n_bytes, int level);

/* Prints the next bytes, which are on their way (asserted), but for the first `skipped` of them.
 * Control characters are not shaded, and after each call nothing is. */
void shaded_text_put(struct shaded_text *s, struct output *out, enum heatmap_ink ink,
                     struct text ready, size_t skipped);

#endif
