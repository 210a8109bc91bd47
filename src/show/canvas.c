#include "show/canvas.h"

#include <math.h>

#include "base/mem.h"
#include "show/paragraph.h"

#define FONT_SIZE      12
#define ELLIPSIS       "\xe2\x80\xa6"
#define ELLIPSIS_WIDTH 9

#define LABEL_FORMAT "<text x=\"%g\" y=\"%g\" %s>"
#define LABEL_END    "</text>\n"

#define HEADINGS_TOP 13
#define ROW_HEIGHT   22    /* of the legend */
#define MAX_ENTRY    380.0 /* of an entry's text */

/* --- texts ---------------------------------------------------------------------------------- */

/* Cuts off the next character; *width is a share of the font size. White space becomes a space, and
 * what must not be shown, or what XML forbids, the code 0. */
static struct text next_char(struct text *rest, uint32_t *code, double *width)
{
    const struct text bytes = utf8_next(rest, code);
    if (*code == '\t' || *code == '\n' || *code == '\r')
        *code = ' ';
    else if (utf8_is_control(*code) || *code == 0xfffe || *code == 0xffff)
        *code = 0;
    if (*code == 0)
        *width = 0;
    else if (*code >= 0x80)
        *width = 0.7 * (double)text_columns(bytes);
    else if (strchr("ijlI .,:;'|!frt-()[]{}/\\\"`*^_", *code))
        *width = 0.42;
    else if ((*code >= 'A' && *code <= 'Z') || strchr("mw@%+=<>~#&", *code))
        *width = 0.85;
    else
        *width = 0.64;
    return bytes;
}

/* The beginning of a text for which there is room. */
struct fitting {
    size_t len;
    size_t space; /* where its last space starts; 0: there is none */
    double width; /* pixels */
};

static struct fitting fit_text(struct text t, double room)
{
    struct fitting f = {0, 0, 0};
    for (struct text rest = t; rest.len > 0; f.len = t.len - rest.len) {
        uint32_t code;
        double width;
        next_char(&rest, &code, &width);
        if (code == ' ')
            f.space = f.len;
        else if (f.width + width * FONT_SIZE > room)
            break;
        f.width += width * FONT_SIZE;
    }
    return f;
}

double canvas_text_width(const char *s)
{
    return fit_text(text_of(s), HUGE_VAL).width;
}

static void put_fitting(struct output *out, struct text t, double room)
{
    static const struct {
        uint32_t code;
        const char *text;
    } others[] = {{'&', "&amp;"},  {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"},
                  {'\'', "&#39;"}, {' ', " "},    {0, ""},       {UNICODE_INVALID, "\xef\xbf\xbd"}};
    const bool cut = fit_text(t, room).len < t.len;
    if (cut)
        t.len = fit_text(t, room - ELLIPSIS_WIDTH).len;
    while (t.len > 0) {
        uint32_t code;
        double width;
        struct text shown = next_char(&t, &code, &width);
        for (int i = 0; i < LENGTH(others); i++)
            if (others[i].code == code)
                shown = text_of(others[i].text);
        output_put(out, shown);
    }
    output_puts(out, cut ? ELLIPSIS : "");
}

void canvas_put_text(struct output *out, const char *s, double room)
{
    put_fitting(out, text_of(s), room);
}

void canvas_put_element(struct output *out, const char *name, const char *s)
{
    output_printf(out, "<%s>", name);
    canvas_put_text(out, s, HUGE_VAL);
    output_printf(out, "</%s>", name);
}

void canvas_label(struct canvas *c, const char *attributes, double x, double y, const char *s,
                  double room)
{
    output_printf(c->out, LABEL_FORMAT, x, y, attributes);
    canvas_put_text(c->out, s, room);
    output_puts(c->out, LABEL_END);
}

/* --- styles --------------------------------------------------------------------------------- */

static const char common_rules[] =
    "text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}\n"
    ".title{font-size:18px;font-weight:600}\n"
    ".line,.bar,.predicted,.grid,.axis,.frame,.map path{fill:none}\n"
    ".line,.bar,.predicted,.map path{stroke:currentColor}\n"
    ".marker,.cell{fill:currentColor}\n"
    ".line{stroke-width:2.25;stroke-linejoin:round}\n"
    ".predicted{stroke-width:1.25;stroke-dasharray:5 4}\n"
    ".bar{stroke-width:1.5}.marker,.frame{stroke-width:1.25}\n"
    ".map path{shape-rendering:crispEdges}\n";

/*
 * What differs between light and dark pages. The colours of series are near Okabe and Ito's hues,
 * but apart in lightness too: for the three kinds of dichromacy any two differ by 0.08 in OKLab,
 * any two of the first four by 0.14; their contrast with the background is at least 3. The levels
 * of a heat map are at equal steps of lightness in OKLab, so that they keep their order in print.
 */
static const char light_rules[] =
    ".paper{fill:#ffffff}.marker{stroke:#ffffff}.doubt{fill:#ffffff;stroke:currentColor}.ground{"
    "fill:#f1f3f6}\n"
    "text{fill:#1f2328}.muted{fill:#59636e}.note{color:#59636e}\n"
    ".grid{stroke:#e4e7eb}.axis,.frame{stroke:#8c959f}\n"
    ".c0{color:#2846c6}.c1{color:#f25b0c}.c2{color:#04a496}.c3{color:#5d2d63}\n"
    ".c4{color:#7b5300}.c5{color:#467bb0}.c6{color:#2e2e2e}.c7{color:#ad585a}\n"
    ".h1{color:#d6e4f5}.h2{color:#adc9ec}.h3{color:#83afe1}.h4{color:#5a94d6}.h5{color:#4073d0}\n"
    ".h6{color:#2c50c8}.h7{color:#2037a0}.h8{color:#162571}.h9{color:#0c1445}\n";
static const char dark_rules[] =
    ".paper{fill:#14171c}.marker{stroke:#14171c}.doubt{fill:#14171c;stroke:currentColor}.ground{"
    "fill:#1b1f26}\n"
    "text{fill:#e6e9ed}.muted{fill:#a3acb7}.note{color:#a3acb7}\n"
    ".grid{stroke:#2b3038}.axis,.frame{stroke:#6b747f}\n"
    ".c0{color:#3382fc}.c1{color:#de550c}.c2{color:#1ed67e}.c3{color:#ab6e9c}\n"
    ".c4{color:#f6ee9a}.c5{color:#a6dcff}.c6{color:#a0a0a0}.c7{color:#ffacc2}\n"
    ".h1{color:#203049}.h2{color:#274474}.h3{color:#2d58a2}.h4{color:#3473bf}.h5{color:#4191cc}\n"
    ".h6{color:#4fb0d8}.h7{color:#90c8d3}.h8{color:#c7decb}.h9{color:#fdf3c0}\n";

/* --- the page ------------------------------------------------------------------------------- */

enum status canvas_write(canvas_draw *draw, const void *what, const char *path, struct err *e)
{
    struct file_output file;
    struct canvas c = {.out = &file.out};
    file_output_init(&file);
    c.height = ceil(draw(&c, what));
    TRY(file_output_open(&file, path, e));
    draw(&c, what);
    output_puts(c.out, "</svg>\n");
    return file_output_commit(&file, e);
}

void canvas_begin(struct canvas *c, double width, const char *title, const char *subtitle)
{
    const struct {
        struct text text;
        const char *class;
        double size, height; /* of letters, of the font size; of a line */
        int max_lines;
    } headings[] = {{text_of(title), "class=\"title\"", 1.65, 25, 2},
                    {text_of(subtitle), "class=\"muted\"", 1, 17, 4}};
    c->width = width;
    c->y = HEADINGS_TOP;
    output_printf(c->out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 %g %g\" "
                  "width=\"%g\" height=\"%g\">\n",
                  width, c->height, width, c->height);
    canvas_put_element(c->out, "title", title);
    output_printf(c->out, "\n<style>\n%s", common_rules);
    output_puts(c->out, light_rules);
    output_printf(c->out, "@media (prefers-color-scheme:dark){\n%s}\n</style>\n", dark_rules);
    output_puts(c->out, "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n");
    for (int i = 0; i < 2; i++) {
        const double room = (width - 2 * CANVAS_MARGIN) / headings[i].size;
        struct text rest = headings[i].text;
        /* Lines are wrapped between words, if these are not too long; the last one is cut. */
        for (int line = 1; rest.len > 0; line++) {
            const struct fitting fit =
                fit_text(rest, line < headings[i].max_lines ? room : HUGE_VAL);
            const size_t len = fit.len < rest.len && fit.space > 0 ? fit.space : fit.len;
            c->y += headings[i].height;
            output_printf(c->out, LABEL_FORMAT, (double)CANVAS_MARGIN,
                          c->y - headings[i].height / 4, headings[i].class);
            put_fitting(c->out, text_cut(&rest, len), room);
            output_puts(c->out, LABEL_END);
            text_skip_spaces(&rest);
        }
    }
    c->y -= ROW_HEIGHT / 4.0;
}

void canvas_row(struct canvas *c)
{
    c->x = CANVAS_MARGIN;
    c->y += ROW_HEIGHT;
}

double canvas_entry(struct canvas *c, double sample, const char *s)
{
    const double width = sample + fmin(canvas_text_width(s), MAX_ENTRY);
    if (c->x + width > c->width - CANVAS_MARGIN)
        canvas_row(c);
    const double x = c->x;
    canvas_label(c, "", x + sample, c->y + 4, s, MAX_ENTRY);
    c->x += width + CANVAS_GAP;
    return x;
}
