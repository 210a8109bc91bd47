#include "show/paragraph.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "text/unicode.h"

/* --- characters ----------------------------------------------------------------------------- */

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

/* --- lines ---------------------------------------------------------------------------------- */

struct text paragraph_cut(struct text utf8, size_t columns)
{
    struct text rest = utf8;
    size_t used = 0;
    while (rest.len > 0) {
        struct text after = rest;
        uint32_t code;
        used += text_columns(utf8_next(&after, &code));
        if (used > columns)
            break;
        rest = after;
    }
    return (struct text){utf8.data, utf8.len - rest.len};
}

static struct text without(struct text t, size_t len)
{
    return (struct text){t.data + len, t.len - len};
}

/* The last space up to t.data[at], behind a comma if it must be; 0: none. */
static size_t last_space(struct text t, size_t at, bool after_comma)
{
    while (at > 0 && (t.data[at] != ' ' || (after_comma && t.data[at - 1] != ',')))
        at--;
    return at;
}

struct text paragraph_line(struct text *rest, size_t columns, bool is_list)
{
    struct text line = paragraph_cut(*rest, columns);
    if (line.len < rest->len) {
        size_t end = last_space(*rest, line.len, is_list);
        if (end == 0)
            end = last_space(*rest, line.len, false);
        if (end == 0)
            for (end = line.len; end < rest->len && rest->data[end] != ' ';)
                end++;
        line.len = end;
    }
    *rest = without(*rest, line.len);
    while (rest->len > 0 && rest->data[0] == ' ')
        *rest = without(*rest, 1);
    for (; rest->len > 0 && line.len > 0 && line.data[line.len - 1] == ' '; line.len--)
        ;
    return line;
}

struct paragraph paragraph_begin(struct output *out, size_t indent)
{
    return (struct paragraph){.out = out, .indent = indent};
}

static void begin_line(struct paragraph *p)
{
    output_puts(p->out, "\n");
    output_repeat(p->out, ' ', p->indent);
    p->at = p->indent;
}

/* The longest beginning that takes no more columns and ends in a comma. */
static size_t list_cut(struct text word, size_t columns)
{
    size_t len = paragraph_cut(word, columns).len;
    while (len > 0 && word.data[len - 1] != ',')
        len--;
    return len;
}

static void put_word(struct paragraph *p)
{
    struct text word = {p->word, p->word_len};
    const size_t all = p->out->columns > 0 ? (size_t)p->out->columns : SIZE_MAX;
    size_t cut;
    p->word_len = 0;
    if (p->at > p->indent && p->at + text_columns(word) > all) {
        begin_line(p);
        while (word.len > 0 && word.data[0] == ' ')
            word = without(word, 1);
    }
    while (p->at < all && p->at + text_columns(word) > all &&
           (cut = list_cut(word, all - p->at)) > 0) {
        output_put(p->out, (struct text){word.data, cut});
        begin_line(p);
        word = without(word, cut);
    }
    output_put(p->out, word);
    p->at += text_columns(word);
}

static void put_letter(struct paragraph *p, char letter)
{
    const bool ends = p->word_len > 0 && letter == ' ' && p->word[p->word_len - 1] != ' ';
    if (ends || letter == '\n' || p->word_len == sizeof p->word)
        put_word(p);
    if (letter != '\n') {
        p->word[p->word_len++] = letter;
        return;
    }
    output_puts(p->out, "\n");
    p->at = 0;
}

/* A word has the spaces before it. */
void paragraph_puts(struct paragraph *p, const char *s)
{
    for (; *s; s++) {
        if (*s != '\v' || p->out->columns > 0) {
            put_letter(p, *s == '\v' ? ' ' : *s);
            continue;
        }
        put_word(p);
        begin_line(p);
    }
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
    put_word(p);
    if (p->at > 0)
        output_puts(p->out, "\n");
    p->at = 0;
}

/* --- text in lines --------------------------------------------------------------------------- */

static size_t leading_spaces(struct text line)
{
    size_t n = 0;
    while (n < line.len && line.data[n] == ' ')
        n++;
    return n;
}

/* Where a line goes on: below what stands behind the last two spaces, or its first word. */
static size_t hanging_indent(struct text line, size_t most)
{
    size_t at = leading_spaces(line);
    for (size_t i = at + 2; i < line.len; i++)
        if (line.data[i] != ' ' && line.data[i - 1] == ' ' && line.data[i - 2] == ' ')
            at = text_columns((struct text){line.data, i});
    return at <= most ? at : leading_spaces(line) + 4;
}

static void put_text(struct paragraph *p, struct text s)
{
    for (size_t i = 0; i < s.len; i++)
        put_letter(p, s.data[i]);
}

void paragraph_reflow(struct output *out, const char *text, size_t indent)
{
    const size_t columns = out->columns > 0 ? (size_t)out->columns : SIZE_MAX;
    struct paragraph p = paragraph_begin(out, 0);
    bool too_long = false; /* the paragraph */
    while (*text) {
        const struct text line = {text, strcspn(text, "\n")};
        const size_t spaces = leading_spaces(line), own = indent + spaces;
        const size_t hanging = indent + hanging_indent(line, columns / 2);
        const bool goes_on = too_long && line.len > spaces && own == p.indent && hanging == own;
        if (goes_on) {
            put_letter(&p, ' ');
            put_text(&p, without(line, spaces));
        } else {
            paragraph_end(&p);
            p.indent = hanging;
            too_long = indent + text_columns(line) > columns;
            for (size_t i = 0; i < indent && line.len > 0; i++)
                put_letter(&p, ' ');
            put_text(&p, line);
        }
        if (line.len == 0)
            output_puts(out, "\n");
        text += line.len + (text[line.len] == '\n');
    }
    paragraph_end(&p);
}
