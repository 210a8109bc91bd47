#include "text/unicode.h"

#include "text/unicode_tables.h"

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
