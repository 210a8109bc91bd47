#include "text/byte_alphabet.h"

#include "text/unicode.h"

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
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

/* The byte that a character stands for; -1 for a character outside the alphabet. */
static int byte_of(uint32_t code)
{
    if (is_printable(code))
        return (int)code;
    if (code < 256 || code > 256 + 67)
        return -1;
    const int i = (int)code - 256;
    return i <= 32 ? i : i < 67 ? i - 33 + 127 : 173;
}

bool byte_alphabet_decode(struct text s, char *out, size_t *len)
{
    size_t n = 0;
    while (s.len > 0) {
        uint32_t code;
        const size_t step = utf8_decode(s, &code);
        const int byte = byte_of(code);
        if (byte < 0)
            return false;
        out[n++] = (char)byte;
        s.data += step;
        s.len -= step;
    }
    *len = n;
    return true;
}
