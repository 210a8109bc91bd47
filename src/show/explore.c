#include "show/explore.h"

#include <math.h>

#include "base/mem.h"
#include "base/output.h"
#include "show/canvas.h"
#include "show/explore_page.h"
#include "show/plot.h"

/* --- the weights ------------------------------------------------------------------------------ */

uint64_t explore_weights(uint64_t n_maps, uint64_t n_tokens)
{
    return u64_product(n_maps, u64_product(n_tokens, n_tokens + 1) / 2);
}

/* Puts three bytes that are held in base64 (RFC 4648) when one more makes them so many. Returns
 * what is held then; before its bytes is a 1. */
static uint32_t put_byte(struct output *out, uint32_t held, uint32_t byte)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char four[4];
    held = held << 8 | byte;
    if (held >> 24 == 0)
        return held;
    for (int i = 0; i < 4; i++)
        four[i] = digits[held >> (18 - 6 * i) & 63];
    output_put(out, text_span(four, 4));
    return 1;
}

/* Zeros fill up the last three: the page reads no further than its weights. */
static void put_weights(struct output *out, const struct heatmap_picture *p)
{
    uint32_t held = 1;
    for (int m = 0; m < p->n_rows * p->n_columns; m++)
        for (int i = 0; i < p->map_rows; i++)
            for (int j = 0; j <= i; j++) {
                const double w = (double)p->maps[m].cells[(size_t)i * p->map_columns + j];
                held = put_byte(out, held, sqrt(fmin(fmax(w, 0), 1)) * 255 + 0.5);
            }
    while (held > 1)
        held = put_byte(out, held, 0);
}

/* --- the page --------------------------------------------------------------------------------- */

static void put_maps(struct output *out, const struct heatmap_picture *p)
{
    for (int r = 0; r < p->n_rows; r++) {
        const struct heatmap_map *row = p->maps + (size_t)r * p->n_columns;
        output_puts(out, "<div class=\"row\">");
        canvas_put_element(out, "span", p->row_names[r].text);
        for (int c = 0; c < p->n_columns; c++) {
            const struct heatmap_map *m = &row[c];
            const char *const parts[][2] = {{"<button tabindex=\"-1\" aria-label=\"head ", m->name},
                                            {"\" data-name=\"", m->name},
                                            {"\" title=\"", m->note},
                                            {"\"><canvas></canvas>", m->name},
                                            {"</button>", ""}};
            if (c == 0 || m->group < 0 || m->group != m[-1].group)
                output_printf(out, "%s<div class=\"group%s\">\n", c > 0 ? "</div>" : "",
                              m->group >= 0 ? " shared" : "");
            for (int i = 0; i < LENGTH(parts); i++) {
                output_puts(out, parts[i][0]);
                canvas_put_text(out, parts[i][1], HUGE_VAL);
            }
        }
        output_puts(out, "</div></div>\n");
    }
}

/* What the page has at a place of explore.html. */
static void put_place(struct output *out, struct text name, const struct heatmap_picture *p)
{
    if (text_is(name, "STYLE"))
        output_puts(out, explore_css);
    else if (text_is(name, "SCRIPT"))
        output_puts(out, explore_js);
    else if (text_is(name, "TITLE"))
        canvas_put_text(out, p->title, HUGE_VAL);
    else if (text_is(name, "SUBTITLE"))
        canvas_put_text(out, p->subtitle, HUGE_VAL);
    else if (text_is(name, "MAPS"))
        put_maps(out, p);
    else if (text_is(name, "WEIGHTS"))
        put_weights(out, p);
    else if (text_is(name, "TOKENS"))
        for (int i = 0; i < p->map_columns; i++)
            canvas_put_element(out, "li", p->column_names[i].text);
    else
        assert(!"a place of explore.html that nothing is put at");
}

enum status explore_write(const struct heatmap_picture *p, const char *path, struct err *e)
{
    struct file_output file;
    assert(explore_weights((uint64_t)p->n_rows * p->n_columns, p->map_rows) <= EXPLORE_MOST);
    file_output_init(&file);
    TRY(file_output_open(&file, path, e));
    struct text rest = text_of(explore_html);
    while (rest.len > 0) { /* "... @NAME@ ..." */
        output_put(&file.out, text_cut(&rest, strcspn(rest.data, "@")));
        if (rest.len == 0)
            break;
        text_cut(&rest, 1);
        put_place(&file.out, text_cut(&rest, strcspn(rest.data, "@")), p);
        text_cut(&rest, 1);
    }
    return file_output_commit(&file, e);
}
