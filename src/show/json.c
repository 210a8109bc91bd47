#include "show/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "show/figures.h"
#include "text/unicode.h"

void json_init(struct json *j, struct output *out, int broken_depth)
{
    *j = (struct json){.out = out, .broken_depth = broken_depth};
}

static void json_break_line(struct json *j)
{
    output_puts(j->out, "\n");
    output_repeat(j->out, ' ', 2 * (size_t)j->depth);
}

/* What stands before a key, or before a value that has none. */
static void begin_item(struct json *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    if (j->depth == 0)
        return;
    const bool broken = j->depth <= j->broken_depth;
    if (j->open[j->depth - 1].used)
        output_puts(j->out, broken ? "," : ", ");
    if (broken)
        json_break_line(j);
    j->open[j->depth - 1].used = true;
}

static void json_open(struct json *j, const char *opening, char closing)
{
    begin_item(j);
    assert(j->depth < JSON_MAX_DEPTH);
    output_puts(j->out, opening);
    j->open[j->depth].closing = closing;
    j->open[j->depth].used = false;
    j->depth++;
}

void json_begin_object(struct json *j)
{
    json_open(j, "{", '}');
}

void json_begin_array(struct json *j)
{
    json_open(j, "[", ']');
}

void json_end(struct json *j)
{
    assert(j->depth > 0);
    j->depth--;
    if (j->open[j->depth].used && j->depth < j->broken_depth)
        json_break_line(j);
    output_put(j->out, (struct text){&j->open[j->depth].closing, 1});
}

static void json_put_escaped(struct output *out, struct text s)
{
    output_puts(out, "\"");
    while (s.len > 0) {
        uint32_t code;
        const struct text bytes = utf8_next(&s, &code);
        if (code == UNICODE_INVALID)
            output_puts(out, "\xef\xbf\xbd");
        else if (code == '"' || code == '\\')
            output_printf(out, "\\%c", (int)code);
        else if (code == '\n')
            output_puts(out, "\\n");
        else if (code == '\r')
            output_puts(out, "\\r");
        else if (code == '\t')
            output_puts(out, "\\t");
        else if (utf8_is_control(code))
            output_printf(out, "\\u%04x", (unsigned)code);
        else
            output_put(out, bytes);
    }
    output_puts(out, "\"");
}

void json_key(struct json *j, const char *key)
{
    begin_item(j);
    json_put_escaped(j->out, text_of(key));
    output_puts(j->out, ": ");
    j->after_key = true;
}

void json_key_object(struct json *j, const char *key)
{
    json_key(j, key);
    json_begin_object(j);
}

void json_key_array(struct json *j, const char *key)
{
    json_key(j, key);
    json_begin_array(j);
}

void json_text(struct json *j, struct text bytes)
{
    begin_item(j);
    json_put_escaped(j->out, bytes);
}

void json_string(struct json *j, const char *s)
{
    json_text(j, text_of(s));
}

void json_literal(struct json *j, struct text literal)
{
    begin_item(j);
    output_put(j->out, literal);
}

void json_int(struct json *j, int64_t x)
{
    begin_item(j);
    output_printf(j->out, "%" PRId64, x);
}

void json_u64(struct json *j, uint64_t x)
{
    begin_item(j);
    output_printf(j->out, "%" PRIu64, x);
}

void json_double(struct json *j, double x)
{
    json_literal(j, text_of(isfinite(x) ? figure_exact(x).text : "null"));
}

void json_bool(struct json *j, bool x)
{
    json_literal(j, text_of(x ? "true" : "false"));
}

void json_null(struct json *j)
{
    json_literal(j, text_of("null"));
}
