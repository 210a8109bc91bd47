#include "show/svg.h"

#include <stdint.h>
#include <string.h>

#include "show/scale.h"
#include "text/unicode.h"

#define ELLIPSIS    "\xe2\x80\xa6"
#define REPLACEMENT "\xef\xbf\xbd"

#define HEADINGS_TOP    13.2
#define HEADINGS_GAP    8
#define TITLE_HEIGHT    25
#define SUBTITLE_HEIGHT 18
#define MAX_TITLE       2 /* lines */
#define MAX_SUBTITLE    3
#define BOLD            1.1 /* wider than the regular face */

/* --- characters ----------------------------------------------------------------------------- */

/* Cuts off the next character. White space of any kind is a space; 0 is for what must not be shown
 * or XML forbids. */
static struct text next_char(struct text *rest, uint32_t *code)
{
    const struct text bytes = utf8_next(rest, code);
    if (*code == '\t' || *code == '\n' || *code == '\r')
        *code = ' ';
    else if (utf8_is_control(*code) || *code == 0xfffe || *code == 0xffff)
        *code = 0;
    return bytes;
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

double svg_text_width(struct text t, double size)
{
    double width = 0;
    while (t.len > 0) {
        uint32_t code;
        next_char(&t, &code);
        width += char_width(code) * size;
    }
    return width;
}

double svg_piece_width(struct svg_piece p, double size)
{
    return svg_text_width(p.text, size) + (p.cut ? char_width(0x2026) * size : 0);
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

struct svg_piece svg_text_fit(struct text t, double size, double width)
{
    size_t space;
    if (bytes_in(t, size, width, &space) == t.len)
        return (struct svg_piece){t, false};
    const double room = width - char_width(0x2026) * size;
    return (struct svg_piece){{t.data, bytes_in(t, size, room, &space)}, true};
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

struct svg_piece svg_text_line(struct text *rest, double size, double width, bool last)
{
    const struct text t = *rest;
    *rest = (struct text){t.data + t.len, 0};
    if (last)
        return svg_text_fit(t, size, width);
    uint32_t code;
    size_t space, len = bytes_in(t, size, width, &space);
    if (len < t.len && space > 0)
        len = space;
    else if (len == 0 && t.len > 0)
        len = utf8_decode(t, &code);
    *rest = without_spaces((struct text){t.data + len, t.len - len});
    return (struct svg_piece){without_spaces((struct text){t.data, len}), false};
}

/* --- writing -------------------------------------------------------------------------------- */

void svg_put_text(struct output *out, struct text t)
{
    static const char special[] = "&<>\"'";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    while (t.len > 0) {
        uint32_t code;
        const struct text bytes = next_char(&t, &code);
        const char *at = code && code < 0x80 ? strchr(special, (int)code) : NULL;
        if (at)
            output_puts(out, escapes[at - special]);
        else if (code == UNICODE_INVALID || code == ' ')
            output_puts(out, code == ' ' ? " " : REPLACEMENT);
        else if (code != 0)
            output_put(out, bytes);
    }
}

void svg_put_piece(struct output *out, struct svg_piece p)
{
    svg_put_text(out, p.text);
    if (p.cut)
        output_puts(out, ELLIPSIS);
}

void svg_shape(struct output *out, const char *format, const double *lengths)
{
    for (;;) {
        const size_t n = strcspn(format, "@");
        output_put(out, (struct text){format, n});
        if (!format[n])
            return;
        output_puts(out, scale_length(*lengths++).text);
        format += n + 1;
    }
}

void svg_label(struct output *out, const char *attributes, double x, double y, struct svg_piece p)
{
    svg_shape(out, "<text x=\"@\" y=\"@\" ", (double[]){x, y});
    output_printf(out, "%s>", attributes);
    svg_put_piece(out, p);
    output_puts(out, "</text>\n");
}

/* Wraps a text from `top` down; returns where it ends. */
static double put_heading(struct output *out, struct text rest, double size, double height,
                          int max_lines, const char *attributes, double x, double top, double width)
{
    for (int i = 1; rest.len > 0; i++) {
        const struct svg_piece line = svg_text_line(&rest, size, width, i == max_lines);
        top += height;
        svg_label(out, attributes, x, top - height / 4, line);
    }
    return top;
}

double svg_headings(struct output *out, struct text title, struct text subtitle, double x,
                    double width)
{
    double y = HEADINGS_TOP;
    y = put_heading(out, title, SVG_TITLE_SIZE * BOLD, TITLE_HEIGHT, MAX_TITLE, "class=\"title\"",
                    x, y, width);
    y = put_heading(out, subtitle, SVG_FONT_SIZE, SUBTITLE_HEIGHT, MAX_SUBTITLE, "class=\"muted\"",
                    x, y, width);
    return y + HEADINGS_GAP;
}

void svg_begin(struct output *out, double width, double height, struct text title)
{
    svg_shape(out,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"decode-plot\" role=\"img\" "
              "viewBox=\"0 0 @ @\" width=\"@\" height=\"@\">\n<title>",
              (double[]){width, height, width, height});
    svg_put_text(out, title);
    output_puts(out, "</title>\n");
}

void svg_put_paper(struct output *out)
{
    output_puts(out, "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n");
}

/* --- styles --------------------------------------------------------------------------------- */

static const char common_rules[] =
    ".decode-plot text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
    "font-size:13px}\n"
    ".decode-plot .title{font-size:18px;font-weight:600}\n"
    ".decode-plot .tick{font-size:12px}\n"
    ".decode-plot .grid,.decode-plot .axis{fill:none;stroke-width:1}\n"
    ".decode-plot .band{fill:currentColor;fill-opacity:.18}\n"
    ".decode-plot .line{fill:none;stroke:currentColor;stroke-width:2.25;stroke-linejoin:round}\n"
    ".decode-plot .predicted{fill:none;stroke:currentColor;stroke-width:1.25;"
    "stroke-dasharray:5 4}\n"
    ".decode-plot .bar{fill:none;stroke:currentColor;stroke-width:1.75}\n"
    ".decode-plot .leader{fill:none;stroke:currentColor;stroke-opacity:.6}\n"
    ".decode-plot .marker{fill:currentColor;stroke-width:1.25}\n"
    ".decode-plot .hollow{stroke:currentColor;stroke-width:1.75}\n";

/*
 * What differs between light and dark pages, the colours last. These are near Okabe and Ito's hues,
 * but apart in lightness too: simulated for the three kinds of dichromacy, any two colours differ
 * by 0.08 in OKLab and any two of the first four by 0.14. The contrast with the background is at
 * least 3 to 1.
 */
static const struct svg_rule rules[] = {
    {".decode-plot .paper,.decode-plot .hollow", "fill", "#ffffff", "#14171c"},
    {".decode-plot text", "fill", "#1f2328", "#e6e9ed"},
    {".decode-plot .muted", "fill", "#59636e", "#a3acb7"},
    {".decode-plot .note", "color", "#59636e", "#a3acb7"},
    {".decode-plot .grid", "stroke", "#e4e7eb", "#2b3038"},
    {".decode-plot .axis", "stroke", "#8c959f", "#6b747f"},
    {".decode-plot .full", "stroke", "#ffffff", "#14171c"},
    {".decode-plot .c0", "color", "#2846c6", "#3382fc"},
    {".decode-plot .c1", "color", "#f25b0c", "#de550c"},
    {".decode-plot .c2", "color", "#04a496", "#1ed67e"},
    {".decode-plot .c3", "color", "#5d2d63", "#ab6e9c"},
    {".decode-plot .c4", "color", "#7b5300", "#f6ee9a"},
    {".decode-plot .c5", "color", "#467bb0", "#a6dcff"},
    {".decode-plot .c6", "color", "#2e2e2e", "#a0a0a0"},
    {".decode-plot .c7", "color", "#ad585a", "#ffacc2"},
};
#define N_COLOURS 8

static void put_rules(struct output *out, const struct svg_rule *r, int n, bool dark)
{
    for (int i = 0; i < n; i++)
        output_printf(out, "%s{%s:%s}\n", r[i].selector, r[i].property,
                      dark ? r[i].dark : r[i].light);
}

void svg_put_styles(struct output *out, const char *common, const struct svg_rule *r, int n)
{
    output_puts(out, "<style>\n");
    output_puts(out, common);
    put_rules(out, r, n, false);
    output_puts(out, "@media (prefers-color-scheme:dark){\n");
    put_rules(out, r, n, true);
    output_puts(out, "}\n</style>\n");
}

void svg_style_sheet(struct output *out)
{
    svg_put_styles(out, common_rules, rules, (int)(sizeof rules / sizeof rules[0]));
}

void svg_begin_group(struct output *out, int style)
{
    output_printf(out, "<g class=\"c%d\">", style % N_COLOURS);
}

/* --- markers -------------------------------------------------------------------------------- */

/* x and y of the corners around the middle, in pixels; the areas look alike. */
static const struct marker {
    int n_corners; /* 0 for a circle */
    double corners[24];
} markers[] = {
    {0, {0}},
    {4, {-3.8, -3.8, 3.8, -3.8, 3.8, 3.8, -3.8, 3.8}},
    {3, {0, -5.4, 5, 3.6, -5, 3.6}},
    {4, {0, -5.6, 5.6, 0, 0, 5.6, -5.6, 0}},
    {3, {0, 5.4, -5, -3.6, 5, -3.6}},
    {12, {-1.7, -5.2, 1.7,  -5.2, 1.7,  -1.7, 5.2,  -1.7, 5.2,  1.7,  1.7,  1.7,
          1.7,  5.2,  -1.7, 5.2,  -1.7, 1.7,  -5.2, 1.7,  -5.2, -1.7, -1.7, -1.7}},
    {5, {0, -5.2, 4.95, -1.6, 3.05, 4.2, -3.05, 4.2, -4.95, -1.6}},
    {12, {0, -2.4, 2.5,  -4.9, 4.9,  -2.5, 2.4,  0, 4.9,  2.5,  2.5,  4.9,
          0, 2.4,  -2.5, 4.9,  -4.9, 2.5,  -2.4, 0, -4.9, -2.5, -2.5, -4.9}},
};
#define N_MARKERS ((int)(sizeof markers / sizeof markers[0]))

void svg_marker(struct output *out, int style, bool again, double x, double y)
{
    const int round = style / N_COLOURS;
    /* The shapes move on by one when the colours begin again; filled and hollow alternate, the
     * other way round after all shapes. So no look comes back before the 129th series. */
    const struct marker *m = &markers[(style % N_COLOURS + round) % N_MARKERS];
    const bool hollow = (round + round / N_MARKERS) % 2 != again;
    const char *class = hollow ? "hollow" : "marker full";
    output_printf(out, "<%s class=\"%s\"", m->n_corners ? "path" : "circle", class);
    if (m->n_corners == 0)
        svg_shape(out, " cx=\"@\" cy=\"@\" r=\"4.3\"/>", (double[]){x, y});
    for (int i = 0; i < m->n_corners; i++)
        svg_shape(out, i == 0 ? " d=\"M@ @" : "L@ @",
                  (double[]){x + m->corners[2 * i], y + m->corners[2 * i + 1]});
    output_puts(out, m->n_corners ? "Z\"/>" : "");
}
