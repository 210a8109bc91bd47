#include "show/paragraph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "show/printable.h"
#include "text/unicode.h"

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

struct text paragraph_line(struct text *rest, size_t columns)
{
    struct text line = paragraph_cut(*rest, columns);
    if (line.len < rest->len) {
        size_t end = line.len; /* of the last word that fits, or else of the first one */
        while (end > 0 && rest->data[end] != ' ')
            end--;
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

static void put_word(struct paragraph *p)
{
    struct text word = {p->word, p->word_len};
    const size_t columns = text_columns(word);
    p->word_len = 0;
    if (p->out->columns > 0 && p->at > p->indent && p->at + columns > (size_t)p->out->columns) {
        output_puts(p->out, "\n");
        output_repeat(p->out, ' ', p->indent);
        p->at = p->indent;
        while (word.len > 0 && word.data[0] == ' ')
            word = without(word, 1);
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
    for (; *s; s++)
        put_letter(p, *s != '\v' ? *s : p->out->columns > 0 ? ' ' : '\n');
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

void paragraph_reflow(struct output *out, const char *text)
{
    const size_t columns = (size_t)out->columns;
    struct paragraph p = paragraph_begin(out, 0);
    bool too_long = false; /* the paragraph */
    if (out->columns == 0) {
        output_puts(out, text);
        return;
    }
    while (*text) {
        const struct text line = {text, strcspn(text, "\n")};
        const size_t own = leading_spaces(line), hanging = hanging_indent(line, columns / 2);
        const bool goes_on = too_long && line.len > own && own == p.indent && hanging == own;
        if (goes_on) {
            put_letter(&p, ' ');
            put_text(&p, without(line, own));
        } else {
            paragraph_end(&p);
            p.indent = hanging;
            too_long = text_columns(line) > columns;
            put_text(&p, line);
        }
        if (line.len == 0)
            output_puts(out, "\n");
        text += line.len + (text[line.len] == '\n');
    }
    paragraph_end(&p);
}
