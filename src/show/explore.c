#include "show/explore.h"

#include <math.h>

#include "base/mem.h"
#include "base/output.h"
#include "show/canvas.h"

/* --- bytes in a page -------------------------------------------------------------------------- */

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
static void put_engine(struct output *out, struct text checkpoint)
{
    struct filter filter = {.to = out, .held = 1};
    const char *const parts[][2] = {{"worker", explore_worker_js}, {"module", explore_module}};
    for (int i = 0; i < LENGTH(parts); i++) {
        output_printf(out, "<script type=\"text/plain\" id=\"%s\">", parts[i][0]);
        output_puts(out, parts[i][1]);
        output_puts(out, "</script>\n");
    }
    output_printf(out, "<script type=\"text/plain\" id=\"checkpoint\" data-bytes=\"%zu\">",
                  checkpoint.len);
    output_init(&filter.out, send_base64);
    output_put(&filter.out, checkpoint);
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
        canvas_put_text(out, page->title, HUGE_VAL);
    } else if (text_is(name, "VIEW")) {
        output_init(&filter.out, send_json);
        page->put_view(page->arg, &filter.out);
        output_flush(&filter.out);
    } else if (text_is(name, "NUMBERS")) {
        output_init(&filter.out, send_base64);
        page->put_numbers(page->arg, &filter.out);
        put_base64(&filter);
    } else if (text_is(name, "LIVE") && page->checkpoint.data) {
        put_engine(out, page->checkpoint);
    } else if (text_is(name, "LIVE_POLICY") && page->checkpoint.data) {
        output_puts(out, " 'wasm-unsafe-eval'; worker-src blob:");
    }
}

enum status explore_write(const struct explore_page *page, const char *path, struct err *e)
{
    struct file_output file;
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
