/*
 * utf8 - characters in bytes of any origin, which may not be UTF-8 at all. All but utf8_strip are
 * pure functions of their arguments.
 */
#pragma once

#include "base/text.h"

/* The code of a byte that is not part of well-formed UTF-8: above every code point. */
#define UNICODE_INVALID 0x110000u

/*
 * Decodes the first character of a nonempty text (asserted) into *code; returns its length in
 * bytes, 1 to 4, at most s.len. A first byte that starts no well-formed sequence (overlong forms,
 * surrogates, values above U+10FFFF and sequences cut short included) is UNICODE_INVALID, one byte
 * long: decoding always goes on at the next byte.
 */
size_t utf8_decode(struct text s, uint32_t *code);

/* Returns where the character begins that byte `at` < s.len (asserted) belongs to: `at` itself for
 * a byte that is not part of well-formed UTF-8. */
size_t utf8_start(struct text s, size_t at);

/* Cuts the first character off a nonempty *rest and returns its bytes. */
static inline struct text utf8_next(struct text *rest, uint32_t *code)
{
    return text_cut(rest, utf8_decode(*rest, code));
}

/* Whether a code point is a control character (general category Cc: C0, delete and C1), or changes
 * the direction of what follows (UAX 9's explicit formatting), so that a name looks like another.
 */
bool utf8_is_control(uint32_t code);

/* Makes text from anywhere fit for a terminal, in place: each control character, and each byte
 * that is not UTF-8, becomes '?'. */
void utf8_strip(char *text);
