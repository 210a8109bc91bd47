/*
 * unicode - the classes of characters that pre-tokenization tells apart, and the characters with
 * which GPT-2's vocabularies write bytes.
 *
 * Everything is a pure function of its arguments: any threads may call it at once.
 */
#pragma once

#include "base/utf8.h"

/* The numbers are those of the generated table. */
enum char_class {
    CHAR_OTHER = 0,       /* none of the others; unassigned, surrogates, UNICODE_INVALID */
    CHAR_LETTER = 1,      /* general category L* */
    CHAR_NUMBER = 2,      /* general category N* */
    CHAR_SPACE = 3,       /* property White_Space */
    CHAR_PUNCTUATION = 4, /* P* of Unicode 8, and all that ASCII shows beside these: for Falcon */
};

/* Returns the class of any number; those above U+10FFFF are CHAR_OTHER. */
enum char_class unicode_class(uint32_t code);

/* Whether a text is nothing but newlines and punctuation, and spaces around it. */
bool text_only_divides(struct text text);

/*
 * Writes the UTF-8 of the character that stands for `byte` in the byte alphabet; returns its
 * length, 1 or 2. Printable Latin-1 bytes stand for themselves; U+0100 to U+0143 stand for the
 * other 68, in ascending order, so that a token's string has no space or control character.
 */
size_t byte_alphabet_write(unsigned char byte, char out[2]);

/* Decodes a string of the byte alphabet: *len bytes, at most s.len, go to `out`, which may be
 * s.data itself. False, with `out` partly written, if some character is not in the alphabet. */
bool byte_alphabet_decode(struct text s, char *out, size_t *len);
