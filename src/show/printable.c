#include "show/printable.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "text/unicode.h"

static struct printable escape(unsigned char byte)
{
    static const char names[] = "\\\n\r\t";
    static const char letters[] = "\\nrt";
    struct printable p;
    const char *name = byte ? strchr(names, byte) : NULL;
    if (name)
        snprintf(p.text, sizeof p.text, "\\%c", letters[name - names]);
    else
        snprintf(p.text, sizeof p.text, "\\x%02x", byte);
    return p;
}

struct printable printable_next(struct text *rest)
{
    uint32_t code;
    const struct text all = *rest, first = utf8_next(rest, &code);
    struct printable p = {""};
    if (code == '\\' || utf8_is_control(code) || code == UNICODE_INVALID) {
        p = escape((unsigned char)first.data[0]);
        *rest = (struct text){all.data + 1, all.len - 1};
    } else {
        memcpy(p.text, first.data, first.len);
    }
    return p;
}

void printable_put(struct output *out, struct text bytes)
{
    while (out->terminal && bytes.len > 0) {
        const char first = bytes.data[0];
        const struct printable p = printable_next(&bytes);
        if (first == '\n' || first == '\t' || first == '\\')
            output_put(out, (struct text){&first, 1});
        else
            output_puts(out, p.text);
    }
    output_put(out, bytes);
}

bool text_is_utf8(struct text bytes)
{
    while (bytes.len > 0) {
        uint32_t code;
        utf8_next(&bytes, &code);
        if (code == UNICODE_INVALID)
            return false;
    }
    return true;
}

static size_t columns_of(uint32_t code)
{
    if (code >= 0x300 && code < 0x370)
        return 0; /* combining marks */
    const bool wide = (code >= 0x1100 && code < 0x1160) || (code >= 0x2e80 && code < 0xa4d0) ||
                      (code >= 0xac00 && code < 0xd7a4) || (code >= 0xf900 && code < 0xfb00) ||
                      (code >= 0xff00 && code < 0xff61) || (code >= 0x1f300 && code < 0x1fb00) ||
                      (code >= 0x20000 && code < 0x40000);
    return wide ? 2 : 1;
}

size_t text_columns(struct text utf8)
{
    size_t n = 0;
    for (uint32_t code; utf8.len > 0; n += columns_of(code))
        utf8_next(&utf8, &code);
    return n;
}
