/*
 * unicode - the character classes that GPT-2's pre-tokenization needs.
 *
 * Everything is a pure function of its arguments.
 */
#ifndef DECODE_TEXT_UNICODE_H
#define DECODE_TEXT_UNICODE_H

#include <stdint.h>

#include "base/text.h"

/* The numbers are those of the generated table. */
enum char_class {
    CHAR_OTHER = 0,  /* neither of the following; unassigned, surrogates, UNICODE_INVALID */
    CHAR_LETTER = 1, /* general category L* */
    CHAR_NUMBER = 2, /* general category N* */
    CHAR_SPACE = 3,  /* property White_Space */
};

/* For any number; those above U+10FFFF are CHAR_OTHER. */
enum char_class unicode_class(uint32_t code);

#endif
