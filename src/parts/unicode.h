/*
 * unicode - UTF-8 and the character classes that GPT-2's pre-tokenization needs (layer 1).
 *
 * Everything is a pure function of its arguments.
 */
#ifndef DECODE_PARTS_UNICODE_H
#define DECODE_PARTS_UNICODE_H

#include <stdint.h>

#include "base/text.h"

/* The numbers are those of the generated table. */
enum char_class {
    CHAR_OTHER = 0,  /* neither of the following; unassigned, surrogates, UNICODE_INVALID */
    CHAR_LETTER = 1, /* general category L* */
    CHAR_NUMBER = 2, /* general category N* */
    CHAR_SPACE = 3,  /* property White_Space */
};

/* What stands for a byte that is not part of well-formed UTF-8; above every code point. */
#define UNICODE_INVALID 0x110000u

/*
 * Decodes the first character of a nonempty text into *code and gives its length in bytes. A
 * first byte that starts no well-formed sequence (overlong forms, surrogates, values above
 * U+10FFFF and sequences cut short included) is UNICODE_INVALID, one byte long: decoding always
 * goes on at the next byte.
 */
size_t utf8_decode(struct text s, uint32_t *code);

/* For any number; those above U+10FFFF are CHAR_OTHER. */
enum char_class unicode_class(uint32_t code);

#endif
