#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
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

enum status err_in(struct err *e, enum status s, const char *format, ...)
{
    char prefix[sizeof e->text];
    va_list args;
    if (s == STATUS_OK || !e)
        return s;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    const struct err old = *e;
    const size_t n = strlen(prefix);
    err_format(e, "%s: %s", prefix + (n > PREFIX_SHOWN ? n - PREFIX_SHOWN : 0), old.text);
    return s;
}

enum status err_in_file(struct err *e, enum status s, const char *path)
{
    return s == STATUS_BAD_FILE && path ? err_in(e, s, "%s", path) : s;
}
