#include "base/status.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Bytes of a prefix, its last ones: the message must stay readable behind a long path. */
#define PREFIX_SHOWN 250

void err_format(struct err *e, const char *format, ...)
{
    if (!e)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    utf8_strip(e->text);
}

void err_prefix(struct err *e, const char *prefix)
{
    assert(prefix);
    if (!e)
        return;
    const size_t room = sizeof e->text - 1;
    size_t n = strlen(prefix);
    if (n > PREFIX_SHOWN) {
        prefix += n - PREFIX_SHOWN;
        n = PREFIX_SHOWN;
    }
    const size_t old = strlen(e->text);
    const size_t left = old < room - n - 2 ? old : room - n - 2;
    memmove(e->text + n + 2, e->text, left);
    memcpy(e->text, prefix, n);
    memcpy(e->text + n, ": ", 2);
    e->text[n + 2 + left] = 0;
    utf8_strip(e->text);
}
