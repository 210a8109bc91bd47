#include "cli/notice.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/terminal.h"
#include "show/paragraph.h"

#define SUMMARY_INDENT 13

/* Of a line on standard error, which is a terminal; the last column stays free, because some
 * terminals go on in the next line after it. */
static size_t columns(void)
{
    return (size_t)terminal_width(STDERR_FILENO) - 1;
}

static bool is_shown;

void notice_show(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const struct text cut = paragraph_cut(text_of(line), columns());
    fprintf(stderr, "\r%.*s\033[K", text_width(cut), cut.data);
    is_shown = true;
}

void notice_clear(void)
{
    if (is_shown)
        fputs("\r\033[K", stderr);
    is_shown = false;
}

void notice_put(const char *line, int indent)
{
    notice_clear();
    const size_t most = isatty(STDERR_FILENO) ? columns() : SIZE_MAX;
    const bool broken = most / 2 > (size_t)indent;
    struct text rest = text_of(line);
    struct text part = paragraph_line(&rest, broken ? most : SIZE_MAX, false);
    fwrite(part.data, 1, part.len, stderr);
    while (rest.len > 0) {
        part = paragraph_line(&rest, most - (size_t)indent, false);
        fprintf(stderr, "\n%*s%.*s", indent, "", text_width(part), part.data);
    }
    fputc('\n', stderr);
}

void notice_summary(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    notice_put(line, SUMMARY_INDENT);
}
