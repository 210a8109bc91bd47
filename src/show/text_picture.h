/*
 * text_picture - a text as one standalone SVG file: its tokens in a monospaced face, each on the
 * colour of its probability.
 *
 * Lines are wrapped between tokens, and inside of those that are longer than a line. Bytes that are
 * not UTF-8, which parts of characters are, and control characters are escapes; a newline is a cell
 * at the end of its line. The text can be selected. The same data give the same bytes, in any
 * locale. Everything is borrowed for the call alone.
 */
#ifndef DECODE_SHOW_TEXT_PICTURE_H
#define DECODE_SHOW_TEXT_PICTURE_H

#include "base/status.h"
#include "base/text.h"

struct text_picture_token {
    struct text text;   /* any bytes */
    double probability; /* NaN: nothing predicted it */
};

struct text_picture {
    const char *title, *subtitle;
    const struct text_picture_token *tokens; /* [n_tokens] */
    int n_tokens;
};

/* The most tokens with which a picture is not too large: some 2 MB. */
#define TEXT_PICTURE_MOST 8192
/* The most bytes of all tokens together. */
#define TEXT_PICTURE_BYTES 65536

/* Replaces the file at `path` atomically. STATUS_NO_MEMORY, or the failures of file_writer. */
enum status text_picture_write(const struct text_picture *p, const char *path, struct err *e);

#endif
