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

size_t text_columns(struct text utf8)
{
    size_t n = 0;
    for (size_t i = 0; i < utf8.len; i++)
        n += (utf8.data[i] & 0xc0) != 0x80;
    return n;
}
