#include "text/lacking.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>

#include "text/unicode.h"

/* Not all that can be shown, but nothing else: marks and format characters change the line. */
static bool is_shown(uint32_t code)
{
    const enum char_class c = unicode_class(code);
    return c == CHAR_LETTER || c == CHAR_NUMBER || (code > ' ' && code < 0x7f);
}

enum status lacks_token(struct text text, size_t at, struct err *e)
{
    assert(at < text.len);
    char name[32];
    uint32_t code;
    const struct text rest = {text.data + at, text.len - at};
    const size_t len = utf8_decode(rest, &code);
    if (code == UNICODE_INVALID)
        snprintf(name, sizeof name, "byte 0x%02X", (unsigned)(unsigned char)rest.data[0]);
    else if (is_shown(code))
        snprintf(name, sizeof name, "U+%04X '%.*s'", (unsigned)code, (int)len, rest.data);
    else
        snprintf(name, sizeof name, "U+%04X", (unsigned)code);
    return err_set(e, STATUS_USAGE,
                   "the text has %s at offset %zu, for which the vocabulary has no token", name,
                   at);
}
