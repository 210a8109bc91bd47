#include "args/record.h"

#include "base/mem.h"
#include "base/numbers.h"

/* The value of an option that a record keeps; NULL: it keeps none. */
static const char *recorded(const struct option_row *row)
{
    return row->option->unrecorded ? NULL : row->given;
}

enum status record_make(const struct option_rows *rows, struct bytes *out, struct err *e)
{
    const struct text end = text_span("", 1);
    bool fits = true;
    for (int i = 0; i < rows->n_options; i++) {
        const char *value = recorded(&rows->items[i]);
        if (value)
            fits &= bytes_put(out, text_of("--")) &&
                    bytes_put(out, text_of(rows->items[i].option->name)) &&
                    bytes_put(out, text_of(value[0] ? "=" : "")) &&
                    bytes_put(out, text_of(value)) && bytes_put(out, end);
    }
    while (fits && out->len % 8 != 0)
        fits = bytes_put(out, end);
    return fits ? STATUS_OK : err_no_memory(e, "the options", out->len);
}

enum status record_parse(const struct option_spec *spec, const struct bytes *record, char **argv,
                         void *values, struct option_rows *rows, struct err *e)
{
    char **words;
    bool help;
    size_t n = 0, n_more = 0;
    while (argv[n_more])
        n_more++;
    TRY_ZEROED(words, record->len + n_more + 1, "the options", e);
    for (size_t at = 0; at < record->len; at += strlen(record->data + at) + 1)
        if (record->data[at])
            words[n++] = record->data + at;
    memcpy(words + n, argv, n_more * sizeof *argv);
    const enum status s = options_parse(spec, words, values, rows, &help, e);
    free(words);
    return s;
}

/* Returns the value that a record has of an option; NULL: it has none. */
static const char *recorded_of(const struct bytes *record, const char *name)
{
    const size_t len = strlen(name);
    for (size_t at = 0; at < record->len; at += strlen(record->data + at) + 1) {
        const char *word = record->data + at, *end = word + strlen("--") + len;
        if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, name, len) == 0 &&
            (!*end || *end == '='))
            return end + (*end == '=');
    }
    return NULL;
}

/* Whether two values are the same word, or two spellings of a number. */
static bool same_value(const char *a, const char *b)
{
    double x, y;
    return str_is(a, b) || (parse_double(a, &x) && parse_double(b, &y) && !(x < y) && !(x > y));
}

enum status record_compare(const struct bytes *record, const struct option_rows *now,
                           const char *const *but, struct err *e)
{
    for (int i = 0; i < now->n_options; i++) {
        const struct option *o = now->items[i].option;
        const char *was = recorded_of(record, o->name), *is = recorded(&now->items[i]);
        const char *before = was ? was : o->fallback;
        if (is && names_find(but, o->name) < 0 && (!before || !same_value(is, before)))
            return err_usage(
                e, "--%s%s%.60s: the run to resume was begun %s --%s%s%.60s; leave the option out",
                o->name, is[0] ? " " : "", is, was ? "with" : "without", o->name,
                was && was[0] ? " " : "", was ? was : "");
    }
    return STATUS_OK;
}
