#include "formats/json_write.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "base/figures.h"
#include "base/utf8.h"

void json_init(struct json *j, struct output *out, int broken_depth)
{
    *j = (struct json){.out = out, .broken_depth = broken_depth};
}

static void json_break_line(struct json *j)
{
    output_puts(j->out, "\n");
    output_repeat(j->out, ' ', 2 * (size_t)j->depth);
}

static void json_put_escaped(struct output *out, struct text s)
{
    static const char plain[] = "\"\\\n\r\t", names[] = "\"\\nrt";
    output_puts(out, "\"");
    while (s.len > 0) {
        uint32_t code;
        const struct text bytes = utf8_next(&s, &code);
        const char *escaped = code > 0 && code < 0x80 ? strchr(plain, code) : NULL;
        if (code == UNICODE_INVALID)
            output_puts(out, "\xef\xbf\xbd");
        else if (escaped)
            output_printf(out, "\\%c", names[escaped - plain]);
        else if (utf8_is_control(code))
            output_printf(out, "\\u%04x", code);
        else
            output_put(out, bytes);
    }
    output_puts(out, "\"");
}

/* Puts what stands before a value: a comma, a line break, its key. */
static void begin_value(struct json *j, const char *key)
{
    const bool broken = j->depth <= j->broken_depth;
    if (j->depth > 0) {
        if (j->open[j->depth - 1].used)
            output_puts(j->out, broken ? "," : ", ");
        if (broken)
            json_break_line(j);
        j->open[j->depth - 1].used = true;
    }
    if (key) {
        json_put_escaped(j->out, text_of(key));
        output_puts(j->out, ": ");
    }
}

static void json_open(struct json *j, const char *key, const char *opening, char closing)
{
    json_literal(j, key, text_of(opening));
    assert(j->depth < JSON_MAX_DEPTH);
    j->open[j->depth].closing = closing;
    j->open[j->depth].used = false;
    j->depth++;
}

void json_begin_object(struct json *j, const char *key)
{
    json_open(j, key, "{", '}');
}

void json_begin_array(struct json *j, const char *key)
{
    json_open(j, key, "[", ']');
}

void json_end(struct json *j)
{
    assert(j->depth > 0);
    j->depth--;
    if (j->open[j->depth].used && j->depth < j->broken_depth)
        json_break_line(j);
    output_put(j->out, text_span(&j->open[j->depth].closing, 1));
}

void json_text(struct json *j, const char *key, struct text bytes)
{
    begin_value(j, key);
    json_put_escaped(j->out, bytes);
}

void json_literal(struct json *j, const char *key, struct text literal)
{
    begin_value(j, key);
    output_put(j->out, literal);
}

void json_int(struct json *j, const char *key, int64_t x)
{
    begin_value(j, key);
    output_printf(j->out, "%" PRId64, x);
}

void json_u64(struct json *j, const char *key, uint64_t x)
{
    begin_value(j, key);
    output_printf(j->out, "%" PRIu64, x);
}

void json_ints(struct json *j, const char *key, const int *x, int n)
{
    json_begin_array(j, key);
    for (int i = 0; i < n; i++)
        json_int(j, NULL, x[i]);
    json_end(j);
}

void json_double(struct json *j, const char *key, double x)
{
    json_literal(j, key, text_of(isfinite(x) ? figure_exact(x).text : "null"));
}

void json_null(struct json *j, const char *key)
{
    json_literal(j, key, text_of("null"));
}
