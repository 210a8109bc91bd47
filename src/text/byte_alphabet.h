/*
 * byte_alphabet - the characters with which GPT-2's vocabularies write bytes.
 *
 * Printable Latin-1 bytes stand for themselves; the other 68, in ascending order, are written as
 * U+0100 to U+0143, so that a token's string has no space or control character.
 */
#ifndef DECODE_TEXT_BYTE_ALPHABET_H
#define DECODE_TEXT_BYTE_ALPHABET_H

#include "base/text.h"

/* Writes the UTF-8 of the character for `byte`; returns its length, 1 or 2. */
size_t byte_alphabet_write(unsigned char byte, char out[2]);

/*
 * Decodes a string of the alphabet into the bytes that it stands for: *len of them, at most
 * s.len, go to `out`, which may be s.data itself. False, with `out` partly written, if some
 * character is not in the alphabet.
 */
bool byte_alphabet_decode(struct text s, char *out, size_t *len);

#endif
