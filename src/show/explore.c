#include "show/explore.h"

#include <math.h>

#include "base/mem.h"
#include "base/output.h"
#include "formats/json_write.h"
#include "show/canvas.h"
#include "show/explore_page.h"
#include "show/plot.h"

/* --- the weights ------------------------------------------------------------------------------ */

uint64_t explore_weights(uint64_t n_maps, uint64_t n_tokens)
{
    return u64_product(n_maps, u64_product(n_tokens, n_tokens + 1) / 2);
}

/* Bytes on their way into base64 (RFC 4648). */
struct base64 {
    struct output *out;
    uint32_t held; /* up to two bytes, and a 1 before them */
};

/* Puts what is held when one more makes it three bytes. */
static void put_byte(struct base64 *b, uint32_t byte)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char four[4];
    b->held = b->held << 8 | byte;
    if (b->held >> 24 == 0)
        return;
    for (int i = 0; i < 4; i++)
        four[i] = digits[b->held >> (18 - 6 * i) & 63];
    output_put(b->out, text_span(four, 4));
    b->held = 1;
}

/* Zeros fill up the last three: the page reads no further than it knows of. */
static void end_bytes(struct base64 *b)
{
    while (b->held > 1)
        put_byte(b, 0);
}

static void put_weights(struct output *out, const struct heatmap_picture *p)
{
    struct base64 b = {out, 1};
    for (int m = 0; m < p->n_rows * p->n_columns; m++)
        for (int i = 0; i < p->map_rows; i++)
            for (int j = 0; j <= i; j++) {
                const double w = (double)p->maps[m].cells[(size_t)i * p->map_columns + j];
                put_byte(&b, sqrt(fmin(fmax(w, 0), 1)) * 255 + 0.5);
            }
    end_bytes(&b);
}

/* --- the paths -------------------------------------------------------------------------------- */

/* Little-endian float32, as the page reads them. */
static void put_floats(struct base64 *b, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        for (int shift = 0; shift < 32; shift += 8)
            put_byte(b, bits >> shift & 255);
    }
}

/* What the script has to know to find its way in the numbers, as an attribute. */
static void put_shape(struct output *out, const struct explore_paths *p)
{
    struct json j;
    json_init(&j, out, 0);
    json_begin_object(&j, NULL);
    json_int(&j, "d", p->d);
    json_int(&j, "key", p->key);
    json_int(&j, "value", p->value);
    json_int(&j, "largest", p->n_largest);
    json_double(&j, "scale", p->scale);
    json_text(&j, "x", text_of(p->x));
    json_text(&j, "rotated", text_of(p->rotated));
    json_text(&j, "scaled", text_of(p->scaled));
    json_begin_array(&j, "layers");
    for (const struct explore_layer *l = p->layers; l < p->layers + p->n_layers; l++) {
        json_begin_object(&j, NULL);
        json_int(&j, "layer", l->layer);
        json_int(&j, "heads", l->n_heads);
        json_int(&j, "shared", l->n_shared);
        if (l->additive)
            json_int(&j, "additive", 1);
        if (l->bias) {
            json_begin_array(&j, "bias");
            for (int h = 0; h < l->n_heads; h++) {
                json_begin_array(&j, NULL);
                for (int i = 0; i < 3; i++)
                    json_double(&j, NULL, (double)l->bias[3 * h + i]);
                json_end(&j);
            }
            json_end(&j);
        }
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
}

static void put_paths(struct output *out, const struct explore_page *page)
{
    const struct explore_paths *p = page->paths;
    const size_t n = page->maps->map_rows;
    if (!p) {
        output_puts(out, "<p id=\"why\" hidden data-text=\"");
        canvas_put_text(out, page->why ? page->why : "", HUGE_VAL);
        output_puts(out, "\"></p>");
        return;
    }
    output_puts(out, "<script type=\"text/plain\" id=\"paths\" data-shape='");
    put_shape(out, p);
    output_puts(out, "'>");
    struct base64 b = {out, 1};
    for (const struct explore_layer *l = p->layers; l < p->layers + p->n_layers; l++) {
        put_floats(&b, l->x, n * p->d);
        put_floats(&b, l->q, n * l->n_heads * p->key);
        put_floats(&b, l->keys, n * l->n_shared * p->key);
        put_floats(&b, l->values, n * l->n_shared * p->value);
        put_floats(&b, l->additive, l->additive ? (size_t)l->n_heads * p->key : 0);
        put_floats(&b, l->written, n * l->n_heads * (1 + 2 * p->n_largest));
    }
    end_bytes(&b);
    output_puts(out, "</script>");
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

static void put_next(struct output *out, const struct explore_page *page)
{
    for (int i = 0; i < page->maps->map_rows * page->n_next; i++) {
        const struct explore_next *next = &page->next[i];
        output_printf(out, "<li data-p=\"%.*f%%\">", next->probability < 0.1,
                      100 * next->probability);
        canvas_put_text(out, next->token.text, HUGE_VAL);
        output_puts(out, "</li>");
    }
}

/* What the page has at a place of explore.html. */
static void put_place(struct output *out, struct text name, const struct explore_page *page)
{
    const struct heatmap_picture *p = page->maps;
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
    else if (text_is(name, "PATHS"))
        put_paths(out, page);
    else if (text_is(name, "NEXT"))
        put_next(out, page);
    else if (text_is(name, "TOKENS"))
        for (int i = 0; i < p->map_columns; i++)
            canvas_put_element(out, "li", p->column_names[i].text);
    else
        assert(!"a place of explore.html that nothing is put at");
}

enum status explore_write(const struct explore_page *page, const char *path, struct err *e)
{
    const struct heatmap_picture *p = page->maps;
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
        put_place(&file.out, text_cut(&rest, strcspn(rest.data, "@")), page);
        text_cut(&rest, 1);
    }
    return file_output_commit(&file, e);
}
