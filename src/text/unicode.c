#include "text/unicode.h"

#include "base/mem.h"
#include "text/unicode_tables.h"

/* --- classes of characters -------------------------------------------------------------------- */

enum char_class unicode_class(uint32_t code)
{
    if (code < 0x80) { /* most text */
        if ((code | 0x20) - 'a' < 26)
            return CHAR_LETTER;
        if (code - '0' < 10)
            return CHAR_NUMBER;
        if (code == ' ' || code - '\t' < 5)
            return CHAR_SPACE;
        return code > ' ' && code < 0x7f ? CHAR_PUNCTUATION : CHAR_OTHER;
    }
    /* The last run that starts at or before the code point; the first one is before all of them. */
    const uint64_t *run = unicode_runs;
    for (size_t n = LENGTH(unicode_runs); n > 1;) {
        const size_t half = n / 2;
        run += run[half] >> 20 <= code ? half : 0;
        n -= half;
    }
    return code - (*run >> 20) <= (*run >> 4 & 0xffff) ? (*run & 15) : CHAR_OTHER;
}

bool text_only_divides(struct text text)
{
    bool divides = false;
    while (text.len > 0) {
        uint32_t code;
        utf8_next(&text, &code);
        const enum char_class class = unicode_class(code);
        if (class == CHAR_LETTER || class == CHAR_NUMBER || code >= UNICODE_INVALID)
            return false;
        divides |= class != CHAR_SPACE || code == '\n';
    }
    return divides;
}

/* --- the byte alphabet ----------------------------------------------------------------------- */

static bool is_printable(uint32_t code)
{
    return (code >= 33 && code <= 126) || (code >= 161 && code <= 255 && code != 173);
}

size_t byte_alphabet_write(unsigned char byte, char out[2])
{
    uint32_t code = byte;
    if (!is_printable(byte)) /* 0-32, 127-160 and 173: 33 + 34 + 1 characters */
        code = 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127u + 33 : 67);
    if (code < 0x80) {
        out[0] = code;
        return 1;
    }
    out[0] = 0xc0 | code >> 6;
    out[1] = 0x80 | (code & 0x3f);
    return 2;
}

bool byte_alphabet_decode(struct text s, char *out, size_t *len)
{
    *len = 0;
    while (s.len > 0) {
        uint32_t code;
        (void)utf8_next(&s, &code);
        if (!is_printable(code)) {
            if (code < 256 || code > 256 + 67)
                return false;
            const uint32_t i = code - 256;
            code = i <= 32 ? i : i < 67 ? i - 33 + 127 : 173;
        }
        out[(*len)++] = code;
    }
    return true;
}
