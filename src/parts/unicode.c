#include "parts/unicode.h"

#include "parts/unicode_tables.h"

/* The smallest code point that a sequence of this many bytes may hold. */
static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};

size_t utf8_decode(struct text s, uint32_t *code)
{
    const unsigned char *c = (const unsigned char *)s.data;
    if (c[0] < 0x80) {
        *code = c[0];
        return 1;
    }
    *code = UNICODE_INVALID;
    const size_t len = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4 || s.len < len)
        return 1;
    uint32_t value = c[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((c[i] & 0xc0) != 0x80)
            return 1;
        value = value << 6 | (c[i] & 0x3f);
    }
    if (value < smallest[len] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return 1;
    *code = value;
    return len;
}

static enum char_class ascii_class(uint32_t code)
{
    if ((code | 0x20) - 'a' < 26)
        return CHAR_LETTER;
    if (code - '0' < 10)
        return CHAR_NUMBER;
    return code == ' ' || code - '\t' < 5 ? CHAR_SPACE : CHAR_OTHER;
}

enum char_class unicode_class(uint32_t code)
{
    if (code < 0x80) /* most text; the table agrees */
        return ascii_class(code);
    if (code > 0x10ffff)
        return CHAR_OTHER;
    /* The last run that starts at or before the code point; the first one starts at 0. */
    size_t low = 0;
    size_t n = sizeof unicode_runs / sizeof unicode_runs[0];
    while (n > 1) {
        const size_t half = n / 2;
        if (unicode_runs[low + half] >> 2 <= code)
            low += half;
        n -= half;
    }
    return (enum char_class)(unicode_runs[low] & 3);
}
