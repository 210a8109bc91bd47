#include "cli/study_args.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/numbers.h"

/* --- arguments ------------------------------------------------------------------------------- */

static void add(struct study_args *a, const char *format, va_list args)
{
    assert(a->n < STUDY_ARGS_MOST);
    va_list again;
    va_copy(again, args);
    const int len = vsnprintf(NULL, 0, format, args);
    char *item = len < 0 ? NULL : malloc((size_t)len + 1);
    if (item) {
        vsnprintf(item, (size_t)len + 1, format, again);
        a->items[a->n++] = item;
    } else {
        a->failed = true;
    }
    va_end(again);
}

void study_args_add(struct study_args *a, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add(a, format, args);
    va_end(args);
}

void study_args_pair(struct study_args *a, const char *option, const char *format, ...)
{
    va_list args;
    study_args_add(a, "--%s", option);
    va_start(args, format);
    add(a, format, args);
    va_end(args);
}

static void free_args(struct study_args *a)
{
    for (int i = 0; i < a->n; i++)
        free(a->items[i]);
    *a = (struct study_args){.n = 0};
}

/* --- options as they were given -------------------------------------------------------------- */

void study_args_number(double x, char *out, size_t size)
{
    double back = 0;
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, size, "%.*g", digits, x);
        if (parse_double(out, &back) && back == x)
            return;
    }
}

/* The value as text; false if it is the default. */
static bool format_value(const struct option *o, const void *at, char *out, size_t size)
{
    const char *fallback = o->fallback ? o->fallback : "0";
    int i = 0;
    double x = 0;
    switch (o->kind) {
    case OPTION_INT:
        snprintf(out, size, "%d", *(const int *)at);
        return !parse_int(fallback, -1, INT32_MAX, &i) || i != *(const int *)at;
    case OPTION_DOUBLE:
        study_args_number(*(const double *)at, out, size);
        return !parse_double(fallback, &x) || x != *(const double *)at;
    case OPTION_CHOICE: /* without a fallback: 0 is none given */
        snprintf(out, size, "%s", *(const int *)at ? o->choices[*(const int *)at - 1] : "");
        return *(const int *)at != 0;
    default:
        return false;
    }
}

static bool is_among(const char *name, const char *const *names)
{
    return names_find(names, name) >= 0;
}

void study_args_given(struct study_args *a, const struct option *table, const void *values,
                      const char *const *but)
{
    for (const struct option *o = table; o->kind != OPTION_END; o++) {
        const void *at = (const char *)values + o->offset;
        char text[64];
        if (is_among(o->name, but))
            continue;
        if (o->kind == OPTION_FLAG && *(const bool *)at)
            study_args_add(a, "--%s", o->name);
        else if (o->kind != OPTION_FLAG && format_value(o, at, text, sizeof text))
            study_args_pair(a, o->name, "%s", text);
    }
}

/* --- running --------------------------------------------------------------------------------- */

struct captured {
    struct output out; /* first */
    struct bytes *bytes;
    bool no_memory;
};

static bool capture(struct output *out, const char *bytes, size_t len)
{
    struct captured *c = (struct captured *)out;
    if (c->bytes && !bytes_put(c->bytes, (struct text){bytes, len}))
        c->no_memory = true;
    return !c->no_memory;
}

/* Bytes that mean nothing but themselves to a shell. */
static const char plain_bytes[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:=+-";

/* As a shell reads it back: in quotes, where it needs them, out of which its own quotes are taken.
 */
static bool put_quoted(struct bytes *line, struct text item)
{
    if (item.len && strspn(item.data, plain_bytes) == item.len)
        return bytes_put(line, item);
    bool whole = bytes_put(line, text_of("'"));
    for (size_t at = 0; at < item.len && whole; at++)
        whole = bytes_put(line, item.data[at] == '\'' ? text_of("'\\''")
                                                      : (struct text){item.data + at, 1});
    return whole && bytes_put(line, text_of("'"));
}

static bool join(const struct study_args *a, struct bytes *line)
{
    bool whole = !a->failed;
    for (int i = 0; i < a->n; i++)
        whole = whole && bytes_put(line, text_of(i ? " " : "")) &&
                put_quoted(line, text_of(a->items[i]));
    return whole;
}

enum status study_args_join(struct study_args *a, struct bytes *line, struct err *e)
{
    const bool whole = join(a, line);
    free_args(a);
    return whole ? STATUS_OK : err_no_memory(e, "a command line", line->len);
}

static void show(const struct study_args *a, const struct common_options *common)
{
    struct bytes line = {.data = NULL};
    if (join(a, &line))
        say(common, "%.*s", (int)line.len, line.data);
    bytes_free(&line);
}

enum status study_args_run(struct study_args *a, const struct common_options *common,
                           struct listener listener, struct bytes *printed, struct err *e)
{
    struct captured to = {.bytes = printed};
    output_init(&to.out, capture);
    enum status s = STATUS_NO_MEMORY;
    if (a->failed) {
        s = err_no_memory(e, "a command line", STUDY_ARGS_MOST);
    } else {
        const struct command *c = command_find(a->items[0]);
        const struct invocation inv = {
            .command = c->name, .out = &to.out, .start_ns = clock_ns(), .listener = listener};
        if (common->verbose)
            show(a, common);
        s = command_run(c, a->n - 1, a->items + 1, &inv, e);
        if (!output_flush(&to.out) && s == STATUS_OK)
            s = err_no_memory(e, "what a command printed", to.out.len);
    }
    free_args(a);
    return s;
}
