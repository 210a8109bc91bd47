#include "base/utf8.h"

#include <assert.h>

/* The smallest code point that a sequence of this many bytes may hold. */
static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};

size_t utf8_decode(struct text s, uint32_t *code)
{
    assert(s.len > 0);
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

size_t utf8_start(struct text s, size_t at)
{
    uint32_t code;
    assert(at < s.len);
    for (size_t back = 1; back <= 3 && back <= at; back++)
        if (utf8_decode(text_from(s, at - back), &code) > back)
            return at - back;
    return at;
}

/* C0, delete, C1, which start terminals' escape sequences; embeddings, overrides, isolates. */
bool utf8_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x202a && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

void utf8_strip(char *text)
{
    struct text rest = text_of(text);
    char *to = text;
    while (rest.len > 0) {
        uint32_t code;
        const struct text c = utf8_next(&rest, &code);
        if (code == UNICODE_INVALID || utf8_is_control(code)) {
            *to++ = '?';
        } else {
            memmove(to, c.data, c.len);
            to += c.len;
        }
    }
    *to = 0;
}
