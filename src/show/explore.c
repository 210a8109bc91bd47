#include "show/explore.h"

#include <math.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/output.h"
#include "formats/json_write.h"
#include "show/canvas.h"

uint64_t explore_weights(uint64_t n_maps, uint64_t n_tokens)
{
    return u64_product(n_maps, u64_product(n_tokens, n_tokens + 1) / 2);
}

/* --- what is shown ---------------------------------------------------------------------------- */

static void put_maps(struct json *j, const struct heatmap_picture *p)
{
    json_begin_array(j, "rows");
    for (int r = 0; r < p->n_rows; r++) {
        json_begin_object(j, NULL);
        json_text(j, "name", text_of(p->row_names[r].text));
        json_begin_array(j, "heads");
        for (int c = 0; c < p->n_columns; c++) {
            const struct heatmap_map *m = &p->maps[(size_t)r * p->n_columns + c];
            json_begin_object(j, NULL);
            json_text(j, "name", text_of(m->name));
            json_text(j, "note", text_of(m->note));
            json_int(j, "group", m->group);
            json_end(j);
        }
        json_end(j);
        json_end(j);
    }
    json_end(j);
}

static void put_layer(struct json *j, const struct explore_layer *l)
{
    json_begin_object(j, NULL);
    json_int(j, "layer", l->layer);
    json_int(j, "heads", l->n_heads);
    json_int(j, "shared", l->n_shared);
    json_int(j, "window", l->window);
    json_int(j, "additive", l->additive != NULL);
    json_int(j, "direct", l->direct != NULL);
    if (l->bias) {
        json_begin_array(j, "bias");
        for (int i = 0; i < 3 * l->n_heads; i++)
            json_double(j, NULL, (double)l->bias[i]);
        json_end(j);
    }
    json_end(j);
}

static void put_paths(struct json *j, const struct explore_paths *p)
{
    json_begin_object(j, "paths");
    json_int(j, "d", p->d);
    json_int(j, "key", p->key);
    json_int(j, "value", p->value);
    json_int(j, "largest", p->n_largest);
    json_double(j, "scale", p->scale);
    json_text(j, "x", text_of(p->x));
    json_text(j, "rotated", text_of(p->rotated));
    json_text(j, "scaled", text_of(p->scaled));
    json_begin_array(j, "layers");
    for (int i = 0; i < p->n_layers; i++)
        put_layer(j, &p->layers[i]);
    json_end(j);
    json_end(j);
}

static void put_live(struct json *j, const struct explore_live *l)
{
    json_begin_object(j, "live");
    json_text(j, "name", text_of(l->name));
    json_text(j, "text", l->text);
    json_int(j, "made", l->n_made);
    json_text(j, "kv", text_of(l->kv_heads));
    json_ints(j, "variants", l->variants, l->n_variants);
    json_int(j, "context", l->n_ctx);
    json_end(j);
}

void explore_put_view(const struct explore_page *page, struct output *out)
{
    const struct heatmap_picture *p = page->maps;
    struct json j;
    json_init(&j, out, 1);
    json_begin_object(&j, NULL);
    json_text(&j, "title", text_of(p->title));
    json_text(&j, "subtitle", text_of(p->subtitle));
    put_maps(&j, p);
    json_begin_array(&j, "tokens");
    for (int i = 0; i < p->map_columns; i++)
        json_text(&j, NULL, text_of(p->column_names[i].text));
    json_end(&j);
    json_int(&j, "n_next", page->n_next);
    json_begin_array(&j, "next");
    for (int i = 0; i < p->map_rows * page->n_next; i++) {
        json_begin_array(&j, NULL);
        json_text(&j, NULL, text_of(page->next[i].token.text));
        json_double(&j, NULL, page->next[i].probability);
        json_end(&j);
    }
    json_end(&j);
    if (page->paths)
        put_paths(&j, page->paths);
    else
        json_text(&j, "why", text_of(page->why));
    if (page->live)
        put_live(&j, page->live);
    json_end(&j);
}

static void put_floats(struct output *out, const float *x, size_t n)
{
    for (size_t i = 0; x && i < n; i++) {
        char bytes[4];
        little_store(bytes, float_bits(x[i]), sizeof bytes);
        output_put(out, text_span(bytes, sizeof bytes));
    }
}

void explore_put_numbers(const struct explore_page *page, struct output *out)
{
    const struct heatmap_picture *maps = page->maps;
    const struct explore_paths *p = page->paths;
    const size_t n = maps->map_rows;
    for (int m = 0; m < maps->n_rows * maps->n_columns; m++)
        for (size_t i = 0; i < n; i++)
            put_floats(out, maps->maps[m].cells + i * n, i + 1);
    for (int i = 0; p && i < p->n_layers; i++) {
        const struct explore_layer *l = &p->layers[i];
        put_floats(out, l->x, n * p->d);
        put_floats(out, l->q, n * l->n_heads * p->key);
        put_floats(out, l->keys, n * l->n_shared * p->key);
        put_floats(out, l->values, n * l->n_shared * p->value);
        put_floats(out, l->additive, (size_t)l->n_heads * p->key);
        put_floats(out, l->written, n * l->n_heads * (1 + 2 * p->n_largest));
        put_floats(out, l->direct, n * l->n_heads * page->n_next);
    }
}

bool explore_can_live(void)
{
    return explore_module[0] != 0;
}

/* --- in a page -------------------------------------------------------------------------------- */

/* Bytes on their way into a page: JSON without anything that could end the element that it stands
 * in, or base64 (RFC 4648). */
struct filter {
    struct output out; /* first */
    struct output *to;
    uint32_t held; /* up to two bytes, and a 1 before them */
};

static bool send_json(struct output *out, const char *bytes, size_t len)
{
    struct output *to = ((struct filter *)out)->to;
    for (struct text rest = text_span(bytes, len); rest.len > 0;) {
        const char *tag = memchr(rest.data, '<', rest.len); /* in a string: nothing else has it */
        output_put(to, text_cut(&rest, tag ? (size_t)(tag - rest.data) : rest.len));
        if (tag)
            output_puts(to, "\\u003c");
        text_cut(&rest, tag != NULL);
    }
    return true;
}

static bool send_base64(struct output *out, const char *bytes, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct filter *f = (struct filter *)out;
    for (size_t k = 0; k < len; k++) {
        f->held = f->held << 8 | (unsigned char)bytes[k];
        if (f->held >> 24 == 0)
            continue;
        char four[4];
        for (int i = 0; i < 4; i++)
            four[i] = digits[f->held >> (18 - 6 * i) & 63];
        output_put(f->to, text_span(four, 4));
        f->held = 1;
    }
    return true;
}

/* Zeros fill up the last three bytes: the page reads no further than it knows of. */
static void put_base64(struct filter *f)
{
    output_flush(&f->out);
    while (f->held > 1)
        send_base64(&f->out, "", 1);
}

/* What only a page has that is live. */
static void put_engine(struct output *out, const struct explore_live *live)
{
    struct filter filter = {.to = out, .held = 1};
    const char *const parts[][2] = {{"worker", explore_worker_js}, {"module", explore_module}};
    for (int i = 0; i < LENGTH(parts); i++) {
        output_printf(out, "<script type=\"text/plain\" id=\"%s\">", parts[i][0]);
        output_puts(out, parts[i][1]);
        output_puts(out, "</script>\n");
    }
    output_printf(out, "<script type=\"text/plain\" id=\"checkpoint\" data-bytes=\"%zu\">",
                  live->checkpoint.len);
    output_init(&filter.out, send_base64);
    output_put(&filter.out, live->checkpoint);
    put_base64(&filter);
    output_puts(out, "</script>");
}

/* What the page has at a place of explore.html. */
static void put_place(struct output *out, struct text name, const struct explore_page *page)
{
    const struct {
        const char *name, *text;
    } parts[] = {{"STYLE", explore_css},
                 {"STYLE_HASH", explore_css_hash},
                 {"SCRIPT", explore_js},
                 {"SCRIPT_HASH", explore_js_hash}};
    struct filter filter = {.to = out, .held = 1};
    for (int i = 0; i < LENGTH(parts); i++)
        if (text_is(name, parts[i].name))
            output_puts(out, parts[i].text);
    if (text_is(name, "TITLE")) {
        canvas_put_text(out, page->maps->title, HUGE_VAL);
    } else if (text_is(name, "VIEW")) {
        output_init(&filter.out, send_json);
        explore_put_view(page, &filter.out);
        output_flush(&filter.out);
    } else if (text_is(name, "NUMBERS")) {
        output_init(&filter.out, send_base64);
        explore_put_numbers(page, &filter.out);
        put_base64(&filter);
    } else if (text_is(name, "LIVE") && page->live) {
        put_engine(out, page->live);
    } else if (text_is(name, "LIVE_POLICY") && page->live) {
        output_puts(out, " 'wasm-unsafe-eval'; worker-src blob:");
    }
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
