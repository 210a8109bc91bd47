#include "show/plot_text.h"

#include <stdint.h>
#include <string.h>

#include "show/plot_scale.h"
#include "text/unicode.h"

#define ELLIPSIS    "\xe2\x80\xa6"
#define REPLACEMENT "\xef\xbf\xbd"

/* --- characters ----------------------------------------------------------------------------- */

/* White space of any kind is a space; 0 is for what must not be shown or XML forbids. */
static uint32_t shown(uint32_t code)
{
    if (code == '\t' || code == '\n' || code == '\r')
        return ' ';
    if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0xfffe || code == 0xffff)
        return 0;
    return code;
}

static size_t next_char(struct text *rest, uint32_t *code)
{
    const size_t len = utf8_decode(*rest, code);
    *code = shown(*code);
    rest->data += len;
    rest->len -= len;
    return len;
}

/* Of the font size. */
static double char_width(uint32_t code)
{
    if (code == 0 || (code >= 0x300 && code < 0x370))
        return 0; /* dropped; combining marks */
    if (code >= 0x1100 && code != 0x2026 && (code < 0x2000 || code >= 0x2e80))
        return code >= 0x1f000 && code < UNICODE_INVALID ? 1.3 : 1.05; /* emoji; CJK */
    if (code >= 0x80)
        return 0.7;
    if (strchr("ijlI .,:;'|!", (int)code))
        return 0.34;
    if (strchr("frt-()[]{}/\\\"`*^_", (int)code))
        return 0.45;
    if (strchr("mwMW@%", (int)code))
        return 1;
    if ((code >= 'A' && code <= 'Z') || strchr("+=<>~#&", (int)code))
        return 0.78;
    return 0.64;
}

/* --- measuring ------------------------------------------------------------------------------ */

double plot_text_width(struct text t, double size)
{
    double width = 0;
    while (t.len > 0) {
        uint32_t code;
        next_char(&t, &code);
        width += char_width(code) * size;
    }
    return width;
}

double plot_piece_width(struct plot_piece p, double size)
{
    return plot_text_width(p.text, size) + (p.cut ? char_width(0x2026) * size : 0);
}

/* Bytes of t in `width`. *space is where its last space starts, 0 for none. */
static size_t bytes_in(struct text t, double size, double width, size_t *space)
{
    struct text rest = t;
    double used = 0;
    *space = 0;
    while (rest.len > 0) {
        const size_t at = t.len - rest.len;
        uint32_t code;
        next_char(&rest, &code);
        used += char_width(code) * size;
        if (code == ' ')
            *space = at;
        else if (used > width)
            return at;
    }
    return t.len;
}

struct plot_piece plot_text_fit(struct text t, double size, double width)
{
    size_t space;
    if (bytes_in(t, size, width, &space) == t.len)
        return (struct plot_piece){t, false};
    const double room = width - char_width(0x2026) * size;
    return (struct plot_piece){{t.data, bytes_in(t, size, room, &space)}, true};
}

static struct text without_spaces(struct text t)
{
    while (t.len > 0 && t.data[0] == ' ') {
        t.data++;
        t.len--;
    }
    while (t.len > 0 && t.data[t.len - 1] == ' ')
        t.len--;
    return t;
}

struct plot_piece plot_text_line(struct text *rest, double size, double width, bool last)
{
    struct plot_piece line = {*rest, false};
    if (last) {
        line = plot_text_fit(*rest, size, width);
        *rest = (struct text){rest->data + rest->len, 0};
        return line;
    }
    size_t space;
    line.text.len = bytes_in(*rest, size, width, &space);
    if (line.text.len < rest->len && space > 0) {
        line.text.len = space;
    } else if (line.text.len == 0 && rest->len > 0) {
        uint32_t code;
        line.text.len = utf8_decode(*rest, &code);
    }
    rest->data += line.text.len;
    rest->len -= line.text.len;
    *rest = without_spaces(*rest);
    line.text = without_spaces(line.text);
    return line;
}

/* --- writing -------------------------------------------------------------------------------- */

void plot_puts(struct file_writer *w, const char *s)
{
    file_writer_put(w, s, strlen(s));
}

void plot_shape(struct file_writer *w, const char *format, const double *lengths)
{
    for (;;) {
        const size_t n = strcspn(format, "@");
        file_writer_put(w, format, n);
        if (!format[n])
            return;
        plot_puts(w, plot_length(*lengths++).text);
        format += n + 1;
    }
}

void plot_put_text(struct file_writer *w, struct text t)
{
    while (t.len > 0) {
        const char *bytes = t.data;
        uint32_t code;
        const size_t len = next_char(&t, &code);
        if (code == UNICODE_INVALID)
            plot_puts(w, REPLACEMENT);
        else if (code == '&')
            plot_puts(w, "&amp;");
        else if (code == '<')
            plot_puts(w, "&lt;");
        else if (code == '>')
            plot_puts(w, "&gt;");
        else if (code == '"')
            plot_puts(w, "&quot;");
        else if (code == '\'')
            plot_puts(w, "&#39;");
        else if (code == ' ')
            plot_puts(w, " ");
        else if (code != 0)
            file_writer_put(w, bytes, len);
    }
}

void plot_put_piece(struct file_writer *w, struct plot_piece p)
{
    plot_put_text(w, p.text);
    if (p.cut)
        plot_puts(w, ELLIPSIS);
}
