#include "show/paragraph.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"

#define ELLIPSIS "\xe2\x80\xa6"

/* --- characters ----------------------------------------------------------------------------- */

struct printable printable_next(struct text *rest)
{
    static const char names[] = "\\\n\r\t", letters[] = "\\nrt";
    struct printable p = {""};
    struct text after = *rest;
    uint32_t code;
    const struct text first = utf8_next(&after, &code);
    if (code != '\\' && !utf8_is_control(code) && code != UNICODE_INVALID) {
        memcpy(p.text, first.data, first.len);
        *rest = after;
        return p;
    }
    const unsigned char byte = (unsigned char)text_cut(rest, 1).data[0];
    const char *name = byte ? strchr(names, byte) : NULL;
    if (name)
        chars_printf(p.text, "\\%c", letters[name - names]);
    else
        chars_printf(p.text, "\\x%02x", byte);
    return p;
}

void printable_put(struct output *out, struct text bytes)
{
    while (out->terminal && bytes.len > 0) {
        const char first = bytes.data[0];
        const struct printable p = printable_next(&bytes);
        if (first == '\n' || first == '\t' || first == '\\')
            output_put(out, text_span(&first, 1));
        else
            output_puts(out, p.text);
    }
    output_put(out, bytes);
}

bool text_is_utf8(struct text bytes)
{
    uint32_t code = 0;
    while (bytes.len > 0 && code != UNICODE_INVALID)
        utf8_next(&bytes, &code);
    return code != UNICODE_INVALID;
}

size_t text_columns(struct text utf8)
{
    static const struct {
        uint32_t first, last;
        int more; /* than one column */
    } ranges[] = {{0x300, 0x36f, -1},   {0x1100, 0x115f, 1}, {0x200b, 0x200f, -1},
                  {0x2e80, 0xa4cf, 1},  {0xac00, 0xd7a3, 1}, {0xf900, 0xfaff, 1},
                  {0xfe00, 0xfe0f, -1}, {0xff00, 0xff60, 1}, {0x1f300, 0x1faff, 1},
                  {0x20000, 0x3ffff, 1}};
    size_t n = 0;
    for (uint32_t code; utf8.len > 0; n++) {
        utf8_next(&utf8, &code);
        for (int i = 0; i < LENGTH(ranges); i++)
            if (code >= ranges[i].first && code <= ranges[i].last)
                n += ranges[i].more;
    }
    return n;
}

struct text_label text_label(struct text t, size_t columns, bool printable)
{
    struct text_label label = {""};
    size_t used = 0, width = 0;
    bool blank = true;
    for (size_t i = 0; i < t.len; i++)
        blank &= t.data[i] == ' ';
    if (!blank && t.data[0] == ' ')
        text_cut(&t, 1);
    while (t.len > 0) {
        const struct text all = t;
        const struct printable p = printable_next(&t);
        const struct text shown = blank       ? text_of("\xe2\x90\xa3")
                                  : printable ? text_of(p.text)
                                              : text_span(all.data, all.len - t.len);
        width += text_columns(shown);
        if (width + (t.len > 0) > columns ||
            used + shown.len + sizeof ELLIPSIS > sizeof label.text) {
            memcpy(label.text + used, ELLIPSIS, sizeof ELLIPSIS);
            break;
        }
        memcpy(label.text + used, shown.data, shown.len);
        used += shown.len;
    }
    return label;
}

/* --- lines ---------------------------------------------------------------------------------- */

struct text paragraph_cut(struct text utf8, size_t columns)
{
    struct text cut = {utf8.data, 0};
    for (size_t used = 0; utf8.len > 0;) {
        uint32_t code;
        const struct text c = utf8_next(&utf8, &code);
        used += text_columns(c);
        if (used > columns)
            break;
        cut.len += c.len;
    }
    return cut;
}

/* Where lines end: at a comma with a space, else at a space, else behind a comma. */
enum line_end { END_COMMA_SPACE, END_SPACE, END_COMMA };

/* Cuts the next line and the spaces after it off *rest, at the first of these ends that there is.
 */
static struct text cut_line(struct text *rest, size_t columns, enum line_end from, enum line_end to)
{
    const char *at = rest->data;
    const size_t fit = paragraph_cut(*rest, columns).len;
    size_t begin = 0, end = fit < rest->len ? 0 : fit;
    while (begin < fit && at[begin] == ' ')
        begin++;
    for (enum line_end way = from; way <= to && end <= begin; way++)
        for (end = fit; end > begin && ((way != END_COMMA && at[end] != ' ') ||
                                        (way != END_SPACE && at[end - 1] != ','));)
            end--;
    if (end <= begin)
        for (end = fit; end < rest->len && at[end] != ' ';)
            end++;
    struct text line = text_cut(rest, end);
    text_skip_spaces(rest);
    while (rest->len > 0 && line.len > 0 && line.data[line.len - 1] == ' ')
        line.len--;
    return line;
}

struct text paragraph_line(struct text *rest, size_t columns, bool is_list)
{
    return cut_line(rest, columns, is_list ? END_COMMA_SPACE : END_SPACE, END_SPACE);
}

struct paragraph paragraph_begin(struct output *out, size_t indent)
{
    return (struct paragraph){.out = out, .indent = indent};
}

/* Puts what is kept, in lines that the terminal has room for. */
static void put_kept(struct paragraph *p)
{
    const size_t all = p->out->columns > 0 ? (size_t)p->out->columns : SIZE_MAX;
    const size_t room = MAX(all, p->indent + 1) - p->indent;
    struct text rest = {p->kept, p->len};
    output_put(p->out, cut_line(&rest, all, END_SPACE, END_COMMA));
    while (rest.len > 0) {
        output_puts(p->out, "\n");
        output_repeat(p->out, ' ', p->indent);
        output_put(p->out, cut_line(&rest, room, END_SPACE, END_COMMA));
    }
    p->len = 0;
}

static void put_letters(struct paragraph *p, struct text s)
{
    for (size_t i = 0; i < s.len; i++) {
        const bool breaks = s.data[i] == '\v' && p->out->columns <= 0;
        const bool ends = breaks || s.data[i] == '\n';
        if (ends || p->len == sizeof p->kept)
            put_kept(p);
        output_puts(p->out, ends ? "\n" : "");
        output_repeat(p->out, ' ', breaks ? p->indent : 0);
        if (!ends)
            p->kept[p->len++] = s.data[i] == '\v' ? ' ' : s.data[i];
    }
}

void paragraph_puts(struct paragraph *p, const char *s)
{
    put_letters(p, text_of(s));
}

void paragraph_printf(struct paragraph *p, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    paragraph_puts(p, text);
}

void paragraph_end(struct paragraph *p)
{
    if (p->len > 0)
        put_letters(p, text_of("\n"));
}

void paragraph_reflow(struct output *out, const char *text)
{
    const size_t columns = out->columns > 0 ? (size_t)out->columns : SIZE_MAX;
    struct paragraph p = paragraph_begin(out, 0);
    bool too_long = false; /* the paragraph */
    while (*text) {
        const struct text line = {text, strcspn(text, "\n")};
        const size_t spaces = strspn(text, " ");
        /* A line goes on below what stands behind its last two spaces, or its first word. */
        size_t below = spaces;
        for (size_t i = spaces + 2; i < line.len; i++)
            if (text[i] != ' ' && text[i - 1] == ' ' && text[i - 2] == ' ')
                below = text_columns(text_span(text, i));
        if (below > columns / 2)
            below = spaces + 4;
        if (too_long && line.len > spaces && spaces == p.indent && below == spaces) {
            paragraph_puts(&p, " ");
            put_letters(&p, text_span(text + spaces, line.len - spaces));
        } else {
            paragraph_end(&p);
            p.indent = below;
            too_long = text_columns(line) > columns;
            put_letters(&p, line);
        }
        if (line.len == 0)
            output_puts(out, "\n");
        text += line.len + (text[line.len] == '\n');
    }
    paragraph_end(&p);
}
